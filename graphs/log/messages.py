"""The messages of the log: LangChain's, each with its `About` and its place beside it.

A message's id is its own among all conversations: that of the model which gave it, or a random one.
LangGraph streams what a node writes in its mode ``messages`` unless a model's tokens had the same
id. Its place in the log is what people read and type, and what lines name one another by.
"""

from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any
from uuid import uuid4

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    ToolMessage,
)
from langchain_core.messages.tool import ToolCall
from pydantic import Field, JsonValue

from ..common.data import Data
from ..speakers.approval import DecisionType
from ..spec.judges import Verdict
from ..spec.usage import told_of
from .kinds import Kind
from .stage import ALOUD, Stage
from .thoughts import Thought

KEY = "duologue"
"""Where a message's `About` stands in its ``additional_kwargs``."""

PLACE = "duologue_place"
"""Where its place in the log stands there, counted from 0."""


class Source(StrEnum):
    """What gave a reply."""

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


class Failure(StrEnum):
    """Whose fault it is that a call gave no result."""

    CALL = "call"
    """The call's: it names no tool there is, or its arguments are no JSON or do not fit."""
    TOOL = "tool"
    """The tool's: it raised, or took too long."""
    PERSON = "person"
    """A person's: it was not let run."""


class Flaw(StrEnum):
    """What may be wrong with a reply."""

    BLANK = "blank"
    """It says nothing."""
    ROLE_FLIP = "role_flip"
    """It speaks another's part."""
    FORM = "form"
    """It does not fit the speaker's output format."""
    REPEATED = "repeated"
    """It is the speaker's own last message once more."""
    ECHO = "echo"
    """It is what another has just said, word for word."""
    NOT_NEXT = "not_next"
    """It names as the next speaker somebody who can't be."""
    SAME_CALLS = "same_calls"
    """It makes the same calls of tools once more, whose results are known."""
    NO_REPLY = "no_reply"
    """It only repeats how it was asked for: placeholders, marks alone, or what it was told."""
    UNANSWERED = "unanswered"
    """It says a done token before another speaker has said anything."""


class About(Data):
    """What stands beside a message in the log."""

    kind: Kind
    """What kind of line it is."""
    speaker: str | None = None
    """Who said it. None: the conversation itself."""
    audience: tuple[str, ...] | None = None
    """Who may hear it beside the speaker. None: everyone."""
    to: str | None = None
    """Whom it is meant for, where others hear it too."""
    stage: Stage = Stage.ROUNDS
    """The part of the conversation that a speech belongs to."""
    flaw: Flaw | None = None
    """What was wrong with it, where it was not as asked."""
    problem: str | None = None
    """The same in the words that the speaker was told."""
    thought: Thought | None = None
    """What its model thought with it."""
    cut_off: bool = False
    """Whether the model's answer ended at its longest length, and not by itself."""
    verdict: Verdict | None = None
    """The verdict it holds."""
    source: Source = Source.MODEL
    """What gave it, where it is a speaker's reply."""
    parsed: JsonValue = None
    """What it says by the speaker's output format, as plain values."""
    since: str | None = None
    """The place of the first message that a summary, or a reset memory, does not stand for. None:
    it stands for everything before it."""
    instead_of: tuple[str, ...] = ()
    """The places of the messages that it stands for in the speaker's view."""
    failure: Failure | None = None
    """Whose fault it is, where it is what a failed call gave."""
    arguments: dict[str, JsonValue] | None = None
    """The arguments that a tool was called with, where a hook or a person has changed them."""
    tool: str | None = None
    """The tool that was run, where a person chose another than the one that was called."""
    decision: DecisionType | None = None
    """What a person decided of the call, where one was asked before it ran."""
    refusal: str | None = None
    """Why a person refused the call, in the person's words."""
    tool_round: int | None = None
    """Which round of tools of its turn it completes, of those in which a call succeeded; on the
    last result of the round alone. None: it completes none."""
    interrupts: bool = False
    """Whether it is what a person has said to calls that waited: the turn of who called goes on."""
    to_user: dict[str, str] = Field(default_factory=dict)
    """What of it the speaker said by an argument of its calls, by their ids. The calls are kept
    without it."""
    handed_to: tuple[str, ...] = ()
    """Whom it names to speak next by calls of ``hand_off``, as these are given. The calls are kept
    nowhere else."""
    private: bool = False
    """Whether they say that only the one who is named is to hear it."""
    outcome: dict[str, JsonValue] | None = None
    """The outcome that the conversation had here, where it went on after its end."""
    edited: bool = False
    """Whether its words were changed where it stands, and what follows from them is still to be
    read again."""
    was: "About | None" = None
    """What stood beside a removed message before it was removed."""

    def heard_by(self, name: str) -> bool:
        """Whether this speaker hears the line."""
        return self.audience is None or name in self.audience

    @property
    def counts(self) -> bool:
        """Whether it is a speech that others hear as such, in the rounds or as last words."""
        return self.kind is Kind.SPEECH and self.is_aloud

    @property
    def is_speech(self) -> bool:
        """Whether it is what a speaker said in its turn."""
        return self.kind is Kind.SPEECH

    @property
    def ends_turn(self) -> bool:
        """Whether a turn is over with it."""
        return self.kind is Kind.SPEECH and not self.interrupts

    @property
    def is_aloud(self) -> bool:
        """Whether others hear it, in the rounds or as last words."""
        return self.stage in ALOUD and (self.audience is None or bool(self.confidants))

    @property
    def confidants(self) -> tuple[str, ...]:
        """Who alone hears it beside its speaker; nobody where all do, too."""
        return tuple(name for name in self.audience or () if name != self.speaker)


NOBODY: tuple[str, ...] = ()
"""The audience of what is kept for the record only."""


_TOLD = About(kind=Kind.INSTRUCTION)
"""What stands beside a message from elsewhere."""


class _Beside(dict[str, Any]):
    """An `About` as plain values, which every store can keep; read once, so it never changes."""

    @cached_property
    def about(self) -> About:
        return About.model_validate(self)


def line(message: BaseMessage) -> About:
    """Read what stands beside a message of the log."""
    found = message.additional_kwargs.get(KEY)
    if found is None:
        return _TOLD
    if isinstance(found, _Beside):
        return found.about
    # As a store gives it. From here on the reading stays with the message.
    about = About.model_validate(found)
    kept = message.additional_kwargs[KEY] = _Beside(found)
    kept.about = about
    return about


def said(
    number: int,
    text: str,
    about: About,
    *,
    id: str | None = None,  # noqa: A002  # as LangChain calls it
    answer: AIMessage | None = None,
    tool_calls: Sequence[ToolCall] = (),
    invalid_tool_calls: Sequence[InvalidToolCall] = (),
) -> AnyMessage:
    """Make the message at this place of the log.

    Its id, its usage and what is known of its model are those of a model's answer, if it has one.
    """
    text = storable(text)
    message_id = id or (answer.id if answer else None) or str(uuid4())
    if about.speaker is None or about.source is Source.HUMAN:
        extra = beside(about, number)
        return HumanMessage(text, id=message_id, name=about.speaker, additional_kwargs=extra)
    return AIMessage(
        text,
        id=message_id,
        name=about.speaker,
        additional_kwargs=beside(about, number),
        usage_metadata=answer.usage_metadata if answer else None,
        response_metadata=told_of(answer) if answer else {},
        tool_calls=list(tool_calls),
        invalid_tool_calls=list(invalid_tool_calls),
    )


def result(
    number: int,
    text: str,
    *,
    speaker: str,
    call_id: str,
    failure: Failure | None = None,
    arguments: dict[str, Any] | None = None,
    tool: str | None = None,
    decision: DecisionType | None = None,
    refusal: str | None = None,
    parsed: JsonValue = None,
    tool_round: int | None = None,
    final: bool = True,
) -> ToolMessage:
    """Make the message of a tool's answer, heard by the speaker who called it."""
    about = About(
        kind=Kind.TOOL_RESULT if final else Kind.ANSWER,
        speaker=speaker,
        audience=(speaker,) if final else NOBODY,
        failure=failure,
        arguments=arguments,
        tool=tool,
        decision=decision,
        refusal=refusal,
        parsed=parsed,
        tool_round=tool_round,
    )
    return ToolMessage(
        storable(text),
        id=str(uuid4()),
        tool_call_id=call_id,
        status="error" if failure else "success",
        additional_kwargs=beside(about, number),
    )


def beside(about: About, number: int) -> dict[str, Any]:
    """Give what stands beside the message at this place of the log."""
    return {KEY: _Beside(about.model_dump(mode="json", exclude_defaults=True)), PLACE: number}


def storable(text: str) -> str:
    """Make text that can be stored and sent: lone surrogates, which no encoding has, become "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


_PLACE_NAME = "m{:04d}"


def place_name(number: int) -> str:
    """Name a place in the log, as people read and type it: ``m0004``."""
    return _PLACE_NAME.format(number)


def number_of(place: str) -> int:
    """Read a place that `place_name` has named."""
    return int(place.removeprefix("m"))


def place_of(message: BaseMessage) -> str:
    """Name the place of a message; one from elsewhere, which has none, is named by its id."""
    number = message.additional_kwargs.get(PLACE)
    return str(message.id) if number is None else _PLACE_NAME.format(number)


def speeches(log: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Give what the speakers said in their turns, oldest first."""
    return [message for message in log if line(message).kind is Kind.SPEECH]


def since_end(log: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """Give what came after an earlier end of the conversation, or all."""
    for place in reversed(range(len(log))):
        if line(log[place]).kind is Kind.ENDED:
            return log[place + 1 :]
    return log


def is_said(message: BaseMessage, about: About) -> bool:
    """Whether a speaker says something with a message: in its turn, or beside a call of tools."""
    row = about.kind.row
    speaks = row.is_spoken and row.is_reply
    return speaks and (not row.has_calls or bool(message.text.strip()))


def calling(log: Sequence[BaseMessage]) -> AIMessage:
    """Give the newest message that calls tools or runs code; results may come after it."""
    return next(
        message
        for message in reversed(log)
        if isinstance(message, AIMessage)
        and line(message).kind.row.has_calls
        and (message.tool_calls or message.invalid_tool_calls)
    )
