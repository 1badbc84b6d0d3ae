"""What may be registered, and whether something given is what it is registered as."""

import inspect
from collections.abc import Mapping
from typing import Any, Final

from langchain_core.tools import BaseTool
from pydantic import BaseModel

from duologue.graphs.errors import SpecError
from duologue.tools.hooks import Hook

KINDS: Final[Mapping[str, str]] = {
    "tools": "tool",
    "functions": "function",
    "hooks": "hook",
    "schemas": "schema",
    "predicates": "predicate",
    "orders": "order",
}
"""What may be registered, each with what an error calls one of them. Entry points stand in the
groups ``duologue.tools``, ``duologue.functions`` and so on."""

_TAKES: Final[Mapping[str, tuple[str, ...]]] = {
    "functions": ("turn",),
    "predicates": ("messages",),
    "orders": ("messages", "names"),
    "before_speaker": ("turn",),
    "after_speaker": ("turn", "reply"),
    "before_tool": ("turn", "call"),
    "after_tool": ("turn", "call", "result"),
}
"""What functions are called with."""


def check_kind(kind: str, found: object, where: str) -> None:
    """Make sure that something is what it is registered as.

    Args:
        kind: One of `KINDS`.
        found: What is registered.
        where: What it is, for an error.

    Raises:
        SpecError: It is something else, or a function that can't be called as it would be.
    """
    match kind:
        case "tools":
            fits, what = isinstance(found, BaseTool), "a LangChain tool"
        case "hooks":
            fits, what = found is None or isinstance(found, Hook), "a Hook"
        case "schemas":
            fits = isinstance(found, type) and issubclass(found, BaseModel)
            what = "a pydantic model's class"
        case _:
            fits, what = callable(found), "a function"
    if not fits:
        raise SpecError(f"{where} must be {what}, not {type(found).__name__}")
    if isinstance(found, Hook):
        for point, function in vars(found).items():
            if function is not None:
                _check_function(function, _TAKES[point], f"{where}: {point}")
    elif kind in _TAKES:
        _check_function(found, _TAKES[kind], where)


def _check_function(function: Any, takes: tuple[str, ...], where: str) -> None:  # noqa: ANN401
    if not callable(function):
        raise SpecError(f"{where} must be a function, not {type(function).__name__}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some that are written in C do not tell.
        return
    try:
        signature.bind(*takes)
    except TypeError as error:
        raise SpecError(f"{where} must take ({', '.join(takes)}): {error}") from error
