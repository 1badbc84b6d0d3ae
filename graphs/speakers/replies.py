"""Sources of a speaker's replies, as data: a person, functions, agents, code, a model, a text.

They are tried in order. The rules for when a person is asked, and for the meaning of an answer, are
in `graphs.rules.turns`.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, JsonValue, ValidatorFunctionWrapHandler, WrapValidator

from ..common.data import (
    MOST,
    Accepts,
    AnyCase,
    Kinded,
    Mark,
    Named,
    Spec,
    Text,
    Thing,
    by_kind,
    default,
    is_agent,
    is_method_of_agent,
)

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

TERMINATE = "TERMINATE"
"""AutoGen's word for a completed task."""


class HumanInputMode(AnyCase):
    """Rules for when a person is asked (AutoGen's ``human_input_mode``); case is ignored."""

    ALWAYS = "ALWAYS"
    """The person is asked in each turn. An empty answer leaves the reply to the next source, but
    after a termination message it ends the conversation. The cap on automatic replies does not
    apply."""
    TERMINATE = "TERMINATE"
    """The person is asked after a termination message, or when the number of automatic replies
    reaches its cap."""
    NEVER = "NEVER"
    """The person is never asked; a termination message, or the cap on automatic replies, ends the
    conversation."""


class _Reply(Kinded):
    may_give_none: ClassVar[bool] = False
    """Whether this source may return no reply, so that the next source is tried."""


class HumanReply(_Reply):
    """A reply by a person, always or sometimes (AutoGen's user proxy).

    The person can answer with text, which is the reply; with empty text, which leaves the reply to
    the next source or ends the conversation; or with ``exit``, which leaves the conversation
    (Agere).
    """

    may_give_none: ClassVar[bool] = True

    kind: Literal["human"] = "human"
    """The kind of source."""
    human_input_mode: Accepts[HumanInputMode, HumanInputMode | str] = Field(
        default=default(HumanInputMode.ALWAYS), kw_only=False
    )
    """The rule for when the person is asked: ``ALWAYS``, ``TERMINATE`` or ``NEVER``."""
    max_consecutive_auto_reply: Annotated[int, Field(strict=True, ge=0, le=MOST)] = 100
    """Maximum number of consecutive replies from the sources after this one. The first message does
    not count, and a text from the person resets the count."""
    termination: Mark = TERMINATE
    """The word that ends a termination message. It counts like a done token whose ``match`` is
    ``last``."""
    is_termination: Accepts[Named | None, Thing | None] = default(None)
    """A registered predicate that replaces the search for the word. It receives the messages so
    far, the newest one last. None searches for the word."""
    sees_calls: bool = False
    """Whether the person is also asked when other speakers have called tools, before the calls run.
    A text from the person interrupts the calls, and each run counts as an automatic reply (AutoGen,
    whose user proxy runs the tools)."""


class FunctionReply(_Reply):
    """A reply by a registered function, or none (AutoGen's registered reply functions)."""

    may_give_none: ClassVar[bool] = True

    kind: Literal["function"] = "function"
    """The kind of source."""
    name: Named = Field(kw_only=False)
    """The registered name. The function receives the `Turn` and returns the reply's text, or None
    to leave the reply to the next source."""

    if TYPE_CHECKING:

        def __init__(self, name: str | Callable[..., Any], **fields: Any) -> None: ...


class AgentReply(_Reply):
    """A reply by a user's own agent: a compiled graph, or any other LangChain Runnable.

    The agent receives the messages that the speaker's model would receive, as a list. It returns a
    text, a message, or a state with ``messages``, the last of which is the reply.
    """

    kind: Literal["agent"] = "agent"
    """The kind of source."""
    name: Named = Field(kw_only=False)
    """The registered name."""
    with_system_prompt: bool = True
    """Whether the messages begin with the speaker's system prompt."""

    if TYPE_CHECKING:

        def __init__(self, name: str | Runnable[Any, Any], **fields: Any) -> None: ...


class InnerSpec(dict[str, Any]):
    """The stored form of an inner conversation, which carries the conversation itself.

    It serializes, prints and compares as a plain dict.

    Attributes:
        brought: The `Conversation`. None until it is first read from the stored form.
    """

    brought: object = None

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        """Pickle the stored form only, because objects of the conversation stay in this process."""
        return dict, ({**self},)

    def __deepcopy__(self, memo: object) -> Self:
        """Return the spec itself, so that the objects of the conversation are not copied."""
        return self


def is_conversation(given: object) -> bool:
    """Return whether an object is a `Conversation`, whose class is defined in a higher layer."""
    return isinstance(given, Spec) and hasattr(given, "stored")


def _read_inner(given: Any, handler: ValidatorFunctionWrapHandler) -> InnerSpec:  # noqa: ANN401
    """Read a conversation, or its fields. `Conversation` checks the fields."""
    if isinstance(given, InnerSpec):
        return given
    if is_conversation(given):
        made = InnerSpec(given.stored())
        made.brought = given
        return made
    if not isinstance(given, Mapping):
        raise ValueError(
            "must be a conversation, which load_conversation reads from a file, or its fields"
        )
    return InnerSpec(handler({**given}))


class ConversationReply(_Reply):
    """A reply that is the output of an inner conversation (agentchat's `SocietyOfMindAgent`).

    Each reply runs a new inner conversation. If the speaker has heard and said only one message so
    far, this message is the task of the inner conversation, otherwise all of them are, each with
    its speaker's name. If it has heard none, the inner conversation has its own task. If one person
    takes part in the inner conversation, the text is the person's first message instead.
    """

    kind: Literal["conversation"] = "conversation"
    """The kind of source."""
    conversation: Accepts[
        Annotated[dict[str, JsonValue], WrapValidator(_read_inner)], Spec | Mapping[str, Any]
    ] = Field(kw_only=False)
    """The inner conversation: a `Conversation` or its fields. In a file also the path of another
    file, relative to the file that names it."""

    if TYPE_CHECKING:

        def __init__(self, conversation: Spec | Mapping[str, Any], **fields: Any) -> None: ...


class CodeReply(_Reply):
    """A reply by running code; the reply is the output (AutoGen's code execution).

    It runs the fenced code of the newest message that the speaker has heard, block by block, in the
    conversation's sandbox, and stops after the first block that fails. Code without a closing fence
    may be incomplete: it is not run, and the reply says so. Without code there is no reply.
    """

    may_give_none: ClassVar[bool] = True

    kind: Literal["code"] = "code"
    """The kind of source."""
    fences: Literal["all", "marked"] = "all"
    """The fences whose code is run. ``all``: every fence. If a fence has no label, its language is
    detected; code that can't be run is an error. ``marked``: only fences with a language that the
    sandbox runs; others are text."""


class ModelReply(_Reply):
    """A reply by the speaker's model, which may call the speaker's tools."""

    kind: Literal["model"] = "model"
    """The kind of source."""


class TextReply(_Reply):
    """A reply that is always the same text (AutoGen's default reply).

    This text never counts as a repetition.
    """

    kind: Literal["text"] = "text"
    """The kind of source."""
    text: Text = Field(kw_only=False)
    """The reply."""
    once: bool = False
    """Whether the text is used only for the speaker's first message (AutoGen's initial message)."""


def _read_reply(given: object) -> object:
    """Convert an object to the reply that uses it, and a plain string to a reply of this kind."""
    if is_conversation(given):
        return {"kind": "conversation", "conversation": given}
    if is_agent(given):
        return {"kind": "agent", "name": given}
    if is_method_of_agent(given):
        raise ValueError("must be the agent itself, not its method; write replies=[agent]")
    return {"kind": "function", "name": given} if callable(given) else by_kind(given)


AnyReply: TypeAlias = Annotated[
    HumanReply
    | FunctionReply
    | AgentReply
    | ConversationReply
    | CodeReply
    | ModelReply
    | TextReply,
    Field(discriminator="kind"),
    BeforeValidator(_read_reply),
]
"""Any source of replies."""


class Source(StrEnum):
    """The origin of a reply."""

    HUMAN = "human"
    """A person."""
    MODEL = "model"
    """The speaker's model."""
    FUNCTION = "function"
    """A registered function."""
    AGENT = "agent"
    """A user's own agent."""
    CONVERSATION = "conversation"
    """An inner conversation."""
    TEXT = "text"
    """The speaker's fixed text."""
    CODE = "code"
    """The code that the speaker ran."""
    TOOL = "tool"
    """The tools that the speaker called."""
    HANDOFF = "handoff"
    """A handoff that the speaker's model called together with tools. They have succeeded."""
    HOOK = "hook"
    """A hook that replies before the speaker's other sources."""


DATA: Final = (Source.CODE, Source.TOOL)
"""Sources whose replies are program output: its words end nothing, and its code is not run."""


class Failure(StrEnum):
    """The cause of a call that returned no result."""

    CALL = "call"
    """The call names an unknown tool, or its arguments are not JSON or do not fit the tool."""
    TOOL = "tool"
    """The tool raised an error or exceeded its timeout."""
    PERSON = "person"
    """A person did not let the call run."""


class Flaw(StrEnum):
    """A fault of a reply."""

    BLANK = "blank"
    """The reply is blank."""
    ROLE_FLIP = "role_flip"
    """The reply contains another speaker's part."""
    FORM = "form"
    """The reply does not fit the speaker's output format."""
    REPEATED = "repeated"
    """The reply repeats the speaker's own last message."""
    ECHO = "echo"
    """The reply repeats another speaker's message word for word."""
    NOT_NEXT = "not_next"
    """The reply names a next speaker that is not allowed."""
    SAME_CALLS = "same_calls"
    """The reply repeats tool calls whose results are known."""
    NO_REPLY = "no_reply"
    """The reply only repeats its request: placeholders, marks without text, or its instructions."""
    UNANSWERED = "unanswered"
    """The reply contains a done token before another speaker has spoken."""
    WRITTEN_CALL = "written_call"
    """The reply contains a tool call as text."""
