"""What a tool may know of the conversation in which it is called, and what it says of itself."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias, get_args

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool, ToolException

# ToolRuntime fails with typing.TypedDict on Python 3.11.
from typing_extensions import TypedDict

from ...graphs.spec.sandbox import Language
from ..sandbox.sandbox import Ran

RunCode: TypeAlias = Callable[[Language, str], Awaitable[Ran]]
"""Takes a language and code; runs it in the session's sandbox. It does not raise for what the code
does."""


class ArgumentsError(ToolException):
    """A call's arguments do not fit. The speaker is told, and it counts as its own mistake."""


class ToolState(TypedDict):
    """What stands in ``runtime.state`` of a tool that takes LangGraph's `ToolRuntime`.

    The call's id is ``runtime.tool_call_id``: the same one where a call that was cut short by a
    kill is made again. None of it comes from the model.
    """

    session: str | None
    """The session's id. None where nothing keeps the session."""
    speaker: str
    """Who calls."""
    messages: list[BaseMessage]
    """What that speaker has said and heard and not forgotten, oldest first, each with who said it
    as ``name``; after it the call."""
    run_code: RunCode
    """Runs code in the session's sandbox, for tools with ``metadata={"sandbox": [languages]}``."""


def languages_of(tool: BaseTool) -> tuple[Language, ...]:
    """Give the languages that a tool runs in the session's sandbox."""
    named = (tool.metadata or {}).get("sandbox") or ()
    return tuple(language for language in get_args(Language) if language in named)


def timeout_of(tool: BaseTool) -> float | None:
    """Give how long a call of a tool may take, in seconds."""
    seconds = (tool.metadata or {}).get("timeout")
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None
