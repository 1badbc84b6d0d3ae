"""Types that tools, functions and hooks receive: the turn, the state and the code runner."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias, final, get_args

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import BaseTool, ToolException

# ToolRuntime fails with typing.TypedDict on Python 3.11.
from typing_extensions import TypedDict

from ...graphs.conversation.sandbox import Language
from ..sandbox.sandbox import Ran


@dataclass(frozen=True)
class Turn:
    """A speaker's turn, as functions and hooks see it."""

    session: str | None
    """The session's id. None if the session is not stored."""
    speaker: str
    """Name of the speaker whose turn it is."""
    messages: tuple[BaseMessage, ...]
    """The speaker's view: its system prompt, then alternating user and assistant messages. They are
    copies; changes have no effect.
    """
    heard: str = ""
    """Text that the speaker has heard since its last message. Empty if it has heard nothing."""


BeforeSpeaker: TypeAlias = Callable[
    [Turn], HumanMessage | AIMessage | Awaitable[HumanMessage | AIMessage | None] | None
]
"""Accepts the turn. Returns a `HumanMessage` that replaces the text heard since the speaker's last
message, an `AIMessage` without tool calls that becomes the reply, or None to change nothing. Only
the text of the message is used.
"""

AfterSpeaker: TypeAlias = Callable[
    [Turn, AIMessage], AIMessage | Awaitable[AIMessage | None] | None
]
"""Accepts the turn and the reply. Returns a message whose text replaces the reply's, or None. The
tool calls of the reply never change.
"""

BeforeTool: TypeAlias = Callable[
    [Turn, ToolCall], ToolCall | ToolMessage | Awaitable[ToolCall | ToolMessage | None] | None
]
"""Accepts the turn and a tool call. Returns the same call with other arguments, a `ToolMessage` as
its result without running the tool, or None.
"""

AfterTool: TypeAlias = Callable[
    [Turn, ToolCall, ToolMessage], ToolMessage | Awaitable[ToolMessage | None] | None
]
"""Accepts the turn, the tool call as it was run, and its result. Returns another result, or None.
"""


@final
@dataclass(frozen=True)
class Hook:
    """Functions around a speaker's turn and its tool calls, each sync or async (Lagent's hooks).

    A sync function runs in a thread. All functions receive copies. The hooks of a speaker run in
    the order in which the speaker names them, each with the result of the one before. If a function
    raises, the turn ends: earlier answers of the model are stored, and resuming the session runs
    the hooks again without another model call.

    Each function returns None to change nothing, or:

    - ``before_speaker(turn)``: a `HumanMessage` that replaces the text heard, or an `AIMessage`
      that becomes the reply
    - ``after_speaker(turn, reply)``: an `AIMessage` that replaces the reply
    - ``before_tool(turn, call)``: the call with other ``args``, or a `ToolMessage` as its result
    - ``after_tool(turn, call, result)``: a `ToolMessage` that replaces the result

    ``turn`` is a `Turn`.

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> def shout(turn, reply):
        ...     return AIMessage(reply.text.upper())
        >>> loud = Hook(after_speaker=shout)
    """

    before_speaker: BeforeSpeaker | None = None
    """Called at the start of each turn. The log stores the returned text for this speaker alone, in
    place of the text heard.
    """
    after_speaker: AfterSpeaker | None = None
    """Called with each accepted reply, and with text that accompanies a tool call. The log stores
    the changed reply as the message, and the model's answer as a record.
    """
    before_tool: BeforeTool | None = None
    """Called before each tool call. The log stores the call as the speaker made it, and the changed
    arguments with the result.
    """
    after_tool: AfterTool | None = None
    """Called after each tool call. The log stores the changed result, and the tool's original
    result as a record.
    """

    @property
    def name(self) -> str | None:
        """Name of the hook's first function. Used if the hook is passed without a name."""
        functions = (one for one in vars(self).values() if one is not None)
        return next((getattr(one, "__name__", None) for one in functions), None)

    def __init_subclass__(cls) -> None:
        """Refuse subclasses."""
        raise TypeError(
            f"{cls.__name__}: Hook can't have subclasses; pass it functions or an object's "
            "methods, as in Hook(after_speaker=function)"
        )


RunCode: TypeAlias = Callable[[Language, str], Awaitable[Ran]]
"""Runs code of a language in the session's sandbox. An error of the code is part of the result and
does not raise.
"""


class ArgumentsError(ToolException):
    """Invalid arguments of a tool call. The error counts as the speaker's, who sees the message."""


class ToolState(TypedDict):
    """The contents of ``runtime.state`` in a tool that accepts LangGraph's `ToolRuntime`.

    ``runtime.tool_call_id`` is the call's id. A call that is repeated after a crash keeps its id.
    The model supplies none of these values.
    """

    session: str | None
    """The session's id. None if the session is not stored."""
    speaker: str
    """Name of the speaker that makes the call."""
    messages: list[BaseMessage]
    """The messages that the speaker has sent, heard and not forgotten, oldest first, each with its
    speaker's name in ``name``. The last message contains the call.
    """
    run_code: RunCode
    """Runs code in the session's sandbox, for tools with ``metadata={"sandbox": [languages]}``."""


def languages_of(tool: BaseTool) -> tuple[Language, ...]:
    """Return the languages that a tool runs in the session's sandbox."""
    named = (tool.metadata or {}).get("sandbox") or ()
    return tuple(language for language in get_args(Language) if language in named)


def timeout_of(tool: BaseTool) -> float | None:
    """Return the time limit of a tool's calls in seconds, or None."""
    seconds = (tool.metadata or {}).get("timeout")
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None
