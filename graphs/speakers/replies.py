"""Where a speaker's words come from, as data: a person, functions, agents, code, a model, a text.

They are tried in order. When a person is asked, and what an answer means, is in
`graphs.rules.turns`.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from ..common.data import (
    MOST,
    Accepts,
    AnyCase,
    Kinded,
    Mark,
    Named,
    Text,
    Thing,
    by_kind,
    default,
    is_agent,
)

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

TERMINATE = "TERMINATE"
"""AutoGen's word for a task that is done."""


class HumanInputMode(AnyCase):
    """When a person is asked (AutoGen's ``human_input_mode``); any case is read."""

    ALWAYS = "ALWAYS"
    """In each turn. Without an answer the next of the replies is taken, except that an empty answer
    to a termination message ends the conversation. The cap on automatic replies does not count."""
    TERMINATE = "TERMINATE"
    """Once a termination message is received, or so many automatic replies were given."""
    NEVER = "NEVER"
    """Never; a termination message, or so many automatic replies, end the conversation."""


class _Reply(Kinded):
    may_give_none: ClassVar[bool] = False
    """Whether the next of the replies may be asked."""


class HumanReply(_Reply):
    """A person gives the reply, always or now and then (AutoGen's user proxy).

    A person may answer with text, which is said; with nothing, which leaves the reply to what
    comes after, or ends the conversation; or with ``exit``, which leaves it (Agere).
    """

    may_give_none: ClassVar[bool] = True

    kind: Literal["human"] = "human"
    """What gives it."""
    human_input_mode: Accepts[HumanInputMode, HumanInputMode | str] = Field(
        default=default(HumanInputMode.ALWAYS), kw_only=False
    )
    """When the person is asked: ``ALWAYS``, ``TERMINATE`` or ``NEVER``."""
    max_consecutive_auto_reply: Annotated[int, Field(strict=True, ge=0, le=MOST)] = 100
    """How many replies in a row may come from what comes after. The first message is none of
    them, and a person's text begins the count anew."""
    termination: Mark = TERMINATE
    """The word that ends a termination message, as a done token whose ``match`` is ``last``."""
    is_termination: Accepts[Named | None, Thing | None] = default(None)
    """A registered predicate that is asked instead of looking for the word. It is called with the
    messages said so far, the received one last."""
    sees_calls: bool = False
    """Whether the calls of tools by others are its turn, too, before they run: the person may say
    something, which interrupts them, and each run counts as an automatic reply (AutoGen, whose user
    proxy runs the tools)."""


class FunctionReply(_Reply):
    """A registered function gives the reply, or none (AutoGen's registered reply functions)."""

    may_give_none: ClassVar[bool] = True

    kind: Literal["function"] = "function"
    """What gives it."""
    name: Named = Field(kw_only=False)
    """The name it is registered by. It is called with the `Turn`, and gives the reply's text, or
    None to leave it to what comes next."""

    if TYPE_CHECKING:

        def __init__(self, name: str | Callable[..., Any], **fields: Any) -> None: ...


class AgentReply(_Reply):
    """An agent of your own gives the reply: a compiled graph, or any other LangChain Runnable.

    It gets what the speaker's model would be sent, as a list of messages. It gives text, a message,
    or a state with ``messages``, whose last one is said.
    """

    kind: Literal["agent"] = "agent"
    """What gives it."""
    name: Named = Field(kw_only=False)
    """The name it is registered by."""

    if TYPE_CHECKING:

        def __init__(self, name: str | Runnable[Any, Any], **fields: Any) -> None: ...


class CodeReply(_Reply):
    """Code is run, and what came of it is the reply (AutoGen's code execution).

    It runs the fenced code of the newest message that the speaker has heard, block by block, in the
    conversation's sandbox; the first that fails is the last. Code whose fence is not closed may not
    be whole: it is not run, and the reply says so. It gives no reply where there is no code.
    """

    may_give_none: ClassVar[bool] = True

    kind: Literal["code"] = "code"
    """What gives it."""
    fences: Literal["all", "marked"] = "all"
    """Which fences hold code to run. ``all``: every one; without a label the language is made out,
    and what can't be run is an error. ``marked``: those labelled with a language that the sandbox
    runs; others are text."""


class ModelReply(_Reply):
    """The speaker's model gives the reply, and may call the speaker's tools."""

    kind: Literal["model"] = "model"
    """What gives it."""


class TextReply(_Reply):
    """A text that is always the same (AutoGen's default reply). It never counts as a repetition."""

    kind: Literal["text"] = "text"
    """What gives it."""
    text: Text = Field(kw_only=False)
    """The reply."""
    once: bool = False
    """Whether it is the speaker's first message alone (AutoGen's message to begin with)."""


def _written(given: object) -> object:
    """Read a function or an agent as the reply that it gives, and a bare word as a kind."""
    if is_agent(given):
        return {"kind": "agent", "name": given}
    return {"kind": "function", "name": given} if callable(given) else by_kind(given)


AnyReply: TypeAlias = Annotated[
    HumanReply | FunctionReply | AgentReply | CodeReply | ModelReply | TextReply,
    Field(discriminator="kind"),
    BeforeValidator(_written),
]
"""Anything that gives a reply."""


class Source(StrEnum):
    """The origin of a reply."""

    HUMAN = "human"
    """A person."""
    MODEL = "model"
    """The speaker's model."""
    FUNCTION = "function"
    """A registered function."""
    AGENT = "agent"
    """An agent of the user's own."""
    TEXT = "text"
    """The speaker's fixed text."""
    CODE = "code"
    """The code that the speaker ran."""
    TOOL = "tool"
    """The tools that the speaker called."""
    HOOK = "hook"
    """A hook before the speaker."""


DATA: Final = (Source.CODE, Source.TOOL)
"""Sources of replies that nobody worded: no word in them ends anything, and no code is run."""


class Failure(StrEnum):
    """The cause of a call that returned no result."""

    CALL = "call"
    """The call: it names an unknown tool, or its arguments are not JSON or do not fit."""
    TOOL = "tool"
    """The tool: it raised an error, or took too long."""
    PERSON = "person"
    """A person, who did not let it run."""


class Flaw(StrEnum):
    """A fault of a reply."""

    BLANK = "blank"
    """It says nothing."""
    ROLE_FLIP = "role_flip"
    """It speaks another's part."""
    FORM = "form"
    """It does not fit the speaker's output format."""
    REPEATED = "repeated"
    """It repeats the speaker's own last message."""
    ECHO = "echo"
    """It repeats another speaker's message word for word."""
    NOT_NEXT = "not_next"
    """It names a next speaker who can't be the next."""
    SAME_CALLS = "same_calls"
    """It makes the same tool calls again, whose results are known."""
    NO_REPLY = "no_reply"
    """It only repeats its request: placeholders, marks alone, or its instructions."""
    UNANSWERED = "unanswered"
    """It says a done token before another speaker has said anything."""
