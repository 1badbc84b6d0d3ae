"""What happens in a conversation, one event at a time."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from pydantic import Field, JsonValue, computed_field

from ..common.data import Data
from ..log.kinds import Kind
from ..log.messages import About, Source, is_said, line, place_of
from ..rules.outcome import Outcome
from ..sessions.result import Result
from ..speakers.approval import DecisionType
from ..spec.ends import Reason
from ..spec.judges import Verdict
from ..spec.questions import Question


class SessionStarted(Data):
    """The first event: which session runs, and where it is kept."""

    event: Literal["session"] = "session"
    session: str
    """The session's id."""
    store: str
    """Where it is kept."""
    title: str
    """What it is about."""
    resumed: bool
    """Whether it goes on from an earlier run."""
    people: tuple[str, ...] = ()
    """The speakers that people speak for."""


class Notice(Data):
    """Something takes a moment, or is worth knowing."""

    event: Literal["notice"] = "notice"
    text: str


class TaskSpecified(Data):
    """The task that the speakers are given."""

    event: Literal["task"] = "task"
    text: str


class SpeechStarted(Data):
    """A speaker begins a message that is told token by token.

    Another one before the message is whole: it begins anew, and the tokens so far do not count.
    """

    event: Literal["start"] = "start"
    speaker: str


class Token(Data):
    """A piece of what a speaker is saying."""

    event: Literal["token"] = "token"
    speaker: str
    text: str


class MessageSaid(Data):
    """A speaker's message, whole, as it stands in the log."""

    event: Literal["message"] = "message"
    id: str
    speaker: str
    text: str
    problem: str | None = None
    """What is wrong with it, where it was accepted all the same."""
    alone: bool = False
    """Whether nobody else heard it: a private or an opening answer."""
    parsed: JsonValue = None
    """What it says by the speaker's output format, as plain values."""
    calling: bool = False
    """Whether it stands beside a call of tools: the speaker's turn goes on."""
    human: bool = False
    """Whether a person has said it."""


class ReplyRejected(Data):
    """A reply that broke a rule and is asked for once more. Its tokens do not count."""

    event: Literal["rejected"] = "rejected"
    id: str
    speaker: str | None
    """Who replied. None: the task's rewriting."""
    text: str
    problem: str


class ToolCalled(Data):
    """A speaker's call of a tool."""

    event: Literal["tool_call"] = "tool_call"
    speaker: str
    call_id: str
    name: str
    arguments: dict[str, Any]


class CodeBlock(Data):
    """Code that is run."""

    language: str
    """``python`` or ``shell``; what it is labelled with, where it is neither."""
    code: str


class CodeStarted(Data):
    """A speaker runs the code that it has heard. What came of it is its next message."""

    event: Literal["code"] = "code"
    id: str
    speaker: str
    blocks: tuple[CodeBlock, ...]
    """The blocks, in order; those after one that fails are not run."""


class ToolAnswered(Data):
    """A tool's answer."""

    event: Literal["tool_result"] = "tool_result"
    speaker: str
    call_id: str
    text: str
    failed: bool
    decision: DecisionType | None = None
    """What a person decided of the call, where one was asked before it ran."""


class VerdictGiven(Data):
    """A judge's answer."""

    event: Literal["verdict"] = "verdict"
    id: str
    by: str | None = None
    """Who judged its own task. None: a separate judge."""
    verdict: Verdict


class SpeakerChosen(Data):
    """Who speaks next, where that is chosen."""

    event: Literal["next_speaker"] = "next_speaker"
    id: str
    speaker: str
    problem: str | None = None
    """What was wrong with the choice, where the next in order speaks instead."""


class HistoryShortened(Data):
    """The older part of what a speaker has heard and said is left out of its prompts from here on.

    The log keeps it.
    """

    event: Literal["shortened"] = "shortened"
    id: str
    speaker: str
    text: str
    """The summary that stands for it; empty where there is none."""


class QuestionAsked(Data):
    """A person is asked. Where nobody answers at once, the session waits, and this is the last."""

    event: Literal["question"] = "question"
    question: Annotated[Question, Field(discriminator="kind")]
    """What is asked."""


class Ended(Outcome):
    """The last event: why, when and by whom the conversation ended, and what it used."""

    event: Literal["outcome"] = "outcome"
    session: str

    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def reason(self) -> Reason:
        """The reason: the first of those that held."""
        return self.reasons[0]

    @classmethod
    def of(cls, session: str, outcome: Outcome) -> "Ended":
        """Make the event of a session's outcome."""
        return cls(session=session, **dict(outcome))


Event = (
    SessionStarted
    | Notice
    | TaskSpecified
    | SpeechStarted
    | Token
    | MessageSaid
    | ReplyRejected
    | ToolCalled
    | CodeStarted
    | ToolAnswered
    | VerdictGiven
    | SpeakerChosen
    | HistoryShortened
    | QuestionAsked
    | Ended
)
"""Anything that happens."""


def replayed(result: Result) -> Iterator[Event]:
    """Give the events that a session as it stands has had."""
    for message in result.messages:
        yield from events_of(message)
    if result.outcome is not None:
        yield Ended.of(result.session, result.outcome)


def events_of(message: BaseMessage) -> Iterator[Event]:
    """Give the events that a new message of the log stands for."""
    about = line(message)
    speaker = about.speaker or ""
    match about.kind:
        case Kind.SPEECH:
            yield _said(message, about)
        case Kind.DRAFT:
            yield ReplyRejected(
                id=place_of(message),
                speaker=about.speaker,
                text=message.text,
                problem=about.problem or "",
            )
        case Kind.SPECIFIED_TASK:
            yield TaskSpecified(text=message.text)
        case Kind.CODE | Kind.TOOL_CALLS if isinstance(message, AIMessage):
            if is_said(message, about):
                yield _said(message, about)
            yield from _started(message, about.kind, speaker)
        case Kind.TOOL_RESULT if isinstance(message, ToolMessage):
            yield ToolAnswered(
                speaker=speaker,
                call_id=message.tool_call_id,
                text=message.text,
                failed=message.status == "error",
                decision=about.decision,
            )
        case Kind.REFLECTION if about.verdict is not None:
            yield VerdictGiven(id=place_of(message), by=about.speaker, verdict=about.verdict)
        case Kind.SUMMARY:
            yield HistoryShortened(id=place_of(message), speaker=speaker, text=message.text)
        case Kind.CHOICE:
            yield SpeakerChosen(id=place_of(message), speaker=about.to or "", problem=about.problem)
        case _:
            return


def _said(message: BaseMessage, about: About) -> MessageSaid:
    return MessageSaid(
        id=place_of(message),
        speaker=about.speaker or "",
        text=message.text,
        problem=about.problem,
        alone=about.audience is not None,
        parsed=about.parsed,
        calling=about.kind is Kind.TOOL_CALLS,
        human=about.source is Source.HUMAN,
    )


def _started(message: AIMessage, kind: Kind, speaker: str) -> Iterator[Event]:
    """Give the events of code, or of tools, that run now."""
    if kind is Kind.CODE:
        blocks = (
            CodeBlock(language=call["name"], code=call["args"]["code"])
            for call in message.tool_calls
        )
        yield CodeStarted(id=place_of(message), speaker=speaker, blocks=tuple(blocks))
        return
    for call in message.tool_calls:
        yield ToolCalled(
            speaker=speaker,
            call_id=call["id"] or "",
            name=call["name"],
            arguments=call["args"],
        )
