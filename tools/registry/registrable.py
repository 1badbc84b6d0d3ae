"""Kinds of objects that can be registered: the checks of each kind, and loading of entry points."""

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint
from math import inf
from typing import Any, Final, cast, get_args

from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, TypeAdapter, ValidationError

from ...graphs.common.data import NAME_LENGTH, Name
from ...graphs.common.errors import SpecError
from ...graphs.common.validation import list_names, name_type
from ...graphs.conversation.sandbox import Language
from ...graphs.speakers.formats import schema_of
from .functions import check_agent, takes_values
from .hooks import Hook

NOUNS: Final[Mapping[str, str]] = {
    "tools": "tool",
    "functions": "function",
    "agents": "agent",
    "hooks": "hook",
    "schemas": "schema",
    "predicates": "predicate",
    "orders": "order",
    "prompts": "prompt",
}
"""The kinds, each with its noun in error messages. The groups of entry points are
``duologue.tools``, ``duologue.functions`` and so on.
"""

ALL_NOUNS: Final[Mapping[str, str]] = {**NOUNS, "scores": "score"}
"""All kinds, including scores, which only batches can name."""

_TAKEN: Final = frozenset({"auto", "required", "none"})
"""Names that models' APIs use for the choice of tools."""

_TAKES: Final[Mapping[str, tuple[str, ...]]] = {
    "functions": ("turn",),
    "predicates": ("messages",),
    "orders": ("messages", "names"),
    "before_speaker": ("turn",),
    "after_speaker": ("turn", "reply"),
    "before_tool": ("turn", "call"),
    "after_tool": ("turn", "call", "result"),
}
"""The arguments with which each kind of function is called."""


def check_kind(kind: str, found: object, where: str) -> None:
    """Raise SpecError unless an object fits the kind under which it is registered."""
    match kind:
        case "tools":
            fits, what = isinstance(found, BaseTool), "a LangChain tool"
        case "agents":
            fits = isinstance(found, Runnable) and not isinstance(found, BaseTool)
            what = "a LangChain Runnable, such as a compiled graph"
        case "hooks":
            fits, what = found is None or isinstance(found, Hook), "a Hook"
        case "schemas":
            fits = isinstance(found, type) and issubclass(found, BaseModel)
            what = "a pydantic model's class"
        case "prompts":
            fits, what = isinstance(found, str) and bool(found.strip()), "a text"
        case _:
            fits, what = callable(found), "a function"
    if not fits:
        raise SpecError(f"{where} must be {what}, not {name_type(found)}")
    _check_content(kind, found, where)


def _check_content(kind: str, found: Any, where: str) -> None:  # noqa: ANN401
    """Raise SpecError unless an object of the right type can be used."""
    if kind == "tools":
        _check_tool(found, where)
    elif kind == "agents":
        check_agent(found, where)
    elif kind == "schemas":
        _check_schema(found, where)
    elif isinstance(found, Hook):
        for point, function in vars(found).items():
            if function is not None:
                _check_function(function, _TAKES[point], f"{where}: {point}")
    elif kind == "scores":
        takes = ("result", "values") if takes_values(found) else ("result",)
        _check_function(found, takes, where)
    elif kind in _TAKES:
        _check_function(found, _TAKES[kind], where)


def _check_tool(tool: BaseTool, where: str) -> None:
    name = tool.name
    if not name.strip() or not name.isprintable():
        raise SpecError(f"{where}: {name!r} can't be a tool's name; use printable characters")
    if name != name.strip() or len(name) > NAME_LENGTH:
        raise SpecError(
            f"{where}: {name!r} can't be a tool's name; choose one of up to {NAME_LENGTH} "
            "characters without spaces around it"
        )
    _check_metadata(tool.metadata or {}, f"{where}: the tool {name!r}")
    if name in _TAKEN:
        raise SpecError(
            f"{where}: {name!r} can't be a tool's name, since tool_choice gives this word a "
            "meaning; choose another name"
        )
    if not tool.description.strip():
        raise SpecError(
            f"{where}: the tool {name!r} has no description for models; add a docstring, or pass "
            "description="
        )
    try:
        # Arguments that the runtime fills in, such as a ToolRuntime, are not in the schema.
        told = convert_to_openai_tool(tool)["function"]
        json.dumps(told, allow_nan=False, ensure_ascii=False).encode()
        kind = told.get("parameters", {}).get("type", "object")
        fault = None if kind == "object" else f"they are not an object, but {kind!r}"
    except Exception as error:
        fault = _first_line(error)
    if fault is not None:
        raise SpecError(
            f"{where}: the arguments of the tool {name!r} can't be written as a JSON schema "
            f"({fault}); give it an args_schema of plain types or pydantic models"
        )


def _check_schema(model: type[BaseModel], where: str) -> None:
    try:
        json.dumps(schema_of(model), allow_nan=False, ensure_ascii=False).encode()
    except Exception as error:
        raise SpecError(
            f"{where}: {model.__name__!r} can't be written as a JSON schema "
            f"({_first_line(error)}); give it fields of plain types or pydantic models"
        ) from error


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message; pydantic adds links and advice below it."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _check_metadata(metadata: Mapping[str, Any], where: str) -> None:
    languages, seconds = metadata.get("sandbox"), metadata.get("timeout")
    if languages is not None and (
        not isinstance(languages, list | tuple)
        or any(language not in get_args(Language) for language in languages)
    ):
        known = " and ".join(repr(language) for language in get_args(Language))
        raise SpecError(f'{where}: metadata["sandbox"] must be a list of {known}')
    if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds < inf):
        raise SpecError(f'{where}: metadata["timeout"] must be a number of seconds above 0')


def _check_function(function: object, takes: tuple[str, ...], where: str) -> None:
    if not callable(function):
        raise SpecError(f"{where} must be a function, not {type(function).__name__}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some functions written in C have no signature.
        return
    try:
        signature.bind(*takes)
    except TypeError as error:
        raise SpecError(f"{where} must take ({', '.join(takes)}): {error}") from error


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
