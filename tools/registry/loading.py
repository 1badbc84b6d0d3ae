"""Checks of registered objects, and loading of entry points."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Any, cast

from langchain_core.tools import BaseTool, tool
from pydantic import TypeAdapter, ValidationError

from ...graphs.common.data import NAME_LENGTH, Name
from ...graphs.common.errors import SpecError
from ...graphs.common.validation import list_names
from .registrable import ALL_NOUNS, check_kind


def load_entry_points(kind: str, entries: Sequence[EntryPoint], path: str) -> Any:  # noqa: ANN401
    """Load the object of an entry point, and raise SpecError if it does not fit its kind."""
    entry, *others = entries
    if any(other.value != entry.value for other in others):
        offered = list_names(sorted({one.value for one in entries}))
        raise SpecError(
            f"{path}: several packages offer a {ALL_NOUNS[kind]} {entry.name!r}: {offered}; "
            "register the one you mean"
        )
    what = f"the {ALL_NOUNS[kind]} {entry.name!r} of {entry.value}"
    try:
        found = entry.load()
    except BaseException as error:
        # Even SystemExit: a module must not end the program that runs conversations.
        raise SpecError(
            f"{path}: {what} can't be loaded: {type(error).__name__}: {error}"
        ) from error
    check_kind(kind, found, f"{path}: {what}")
    if kind == "tools" and found.name != entry.name:
        raise SpecError(
            f"{path}: {what} has the name {found.name!r} in its code; give it the "
            "same name in both places"
        )
    return found


def by_name(kind: str, given: object) -> Mapping[str, Any]:
    """Return a dict of objects by name, empty for None. Raise SpecError if it is not a dict."""
    if given is not None and not isinstance(given, Mapping):
        raise SpecError(f"{kind}: must be a dict from names to {kind}, not {type(given).__name__}")
    return given or {}


_NAME: TypeAdapter[str] = TypeAdapter(Name)


def check_name(name: object, kind: str) -> None:
    """Raise SpecError for a name that no conversation could contain."""
    try:
        fits = _NAME.validate_python(name, strict=True) == name
    except ValidationError:
        fits = False
    if not fits:
        raise SpecError(
            f"{kind}: {name!r} can't be a name; use text on one line, of up to {NAME_LENGTH} "
            "characters without spaces around it"
        )


def as_tool(given: object, where: str) -> Any:  # noqa: ANN401  # checked by `check_kind`
    """Return a function as a LangChain tool, and any other object unchanged.

    The docstring and types of the function describe the tool to models.
    """
    if not inspect.isroutine(given):
        return given
    name = given.__name__
    if not inspect.getdoc(given):
        raise SpecError(
            f"{where}: the function {name!r} has no docstring; add one that describes the tool to "
            "models"
        )
    try:
        return tool(given)
    except Exception as error:
        raise SpecError(f"{where}: the function {name!r} can't become a tool: {error}") from error


def tools_in(given: object) -> Iterable[BaseTool]:
    """Return the tools, or none for None. Raise SpecError if they are not a list of tools."""
    # A tool is a pydantic model, and these are iterable.
    is_list = isinstance(given, Iterable) and not isinstance(given, BaseTool | str | Mapping)
    if given is not None and not is_list:
        raise SpecError(f"tools: must be a list of tools, not {type(given).__name__}")
    return cast("Iterable[BaseTool]", given or ())
