"""What tools, functions and hooks may know of the conversation in which they are called."""

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
    """The session's id. None where nothing keeps the session."""
    speaker: str
    """Whose turn it is."""
    messages: tuple[BaseMessage, ...]
    """What the speaker sees: its system prompt, then user and assistant messages in turn. These are
    copies: changing them changes nothing."""
    heard: str = ""
    """What it has heard since it last spoke; empty where that is nothing."""


BeforeSpeaker: TypeAlias = Callable[
    [Turn], HumanMessage | AIMessage | Awaitable[HumanMessage | AIMessage | None] | None
]
"""Gives a human message to replace what the speaker has heard since it last spoke, an AI message
without calls of tools to speak in its place, or None to leave all as it is. Only text counts."""

AfterSpeaker: TypeAlias = Callable[
    [Turn, AIMessage], AIMessage | Awaitable[AIMessage | None] | None
]
"""Takes what the speaker says; gives what it says instead, or None. Its calls of tools stay as they
are."""

BeforeTool: TypeAlias = Callable[
    [Turn, ToolCall], ToolCall | ToolMessage | Awaitable[ToolCall | ToolMessage | None] | None
]
"""Takes a call; gives the same call with other arguments, a tool message to answer it without the
tool, or None."""

AfterTool: TypeAlias = Callable[
    [Turn, ToolCall, ToolMessage], ToolMessage | Awaitable[ToolMessage | None] | None
]
"""Takes a call as it was run, and the tool's answer; gives another answer, or None."""


@final
@dataclass(frozen=True)
class Hook:
    """Functions around a speaker's turn and its tools, each sync or async (Lagent's hooks).

    One that is not async runs in a thread. They see copies, in the order in which the speaker names
    its hooks; each sees what the one before it has made of it. One that raises ends the turn: what
    was answered before is kept, and resuming the session runs the hooks again without asking the
    model.

    Each gives None to leave all as it is, or: ``before_speaker(turn)`` a `HumanMessage` to be heard
    or an `AIMessage` to be said instead; ``after_speaker(turn, reply)`` the `AIMessage` to be said;
    ``before_tool(turn, call)`` the call with other ``args``, or a `ToolMessage` as its answer;
    ``after_tool(turn, call, answer)`` another `ToolMessage`. ``turn`` is a `Turn`.

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> def shout(turn, reply):
        ...     return AIMessage(reply.text.upper())
        >>> loud = Hook(after_speaker=shout)
    """

    before_speaker: BeforeSpeaker | None = None
    """Called at the start of each turn. What it makes of what was heard stands in the log, for this
    speaker alone, in the place of what was said."""
    after_speaker: AfterSpeaker | None = None
    """Called with each accepted reply, and with what is said beside a call of tools. The log keeps
    what it makes of it as what was said, and the answer before it for the record."""
    before_tool: BeforeTool | None = None
    """Called before each call of a tool. The log keeps the call as the speaker made it, and beside
    the result the changed arguments."""
    after_tool: AfterTool | None = None
    """Called after each call of a tool. The log keeps what it makes of the result, and what the
    tool gave before it for the record."""

    @property
    def name(self) -> str | None:
        """The name of its first function: what it is called where nobody names it."""
        functions = (one for one in vars(self).values() if one is not None)
        return next((getattr(one, "__name__", None) for one in functions), None)

    def __init_subclass__(cls) -> None:
        """Refuse subclasses."""
        raise TypeError(
            f"{cls.__name__}: Hook has no subclasses: give it functions or an object's methods, "
            "as in Hook(after_speaker=function)"
        )


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
    """Return the languages that a tool runs in the session's sandbox."""
    named = (tool.metadata or {}).get("sandbox") or ()
    return tuple(language for language in get_args(Language) if language in named)


def timeout_of(tool: BaseTool) -> float | None:
    """Return how long a call of a tool may take, in seconds."""
    seconds = (tool.metadata or {}).get("timeout")
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None
