"""What happens in a conversation, one event at a time.

Which events a message of the log stands for is in `graphs.run.log_events`.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, computed_field

from ..common.data import Data
from ..rules.outcome import Outcome
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
    ended: bool = False
    """Whether it has ended already: what was said is told again."""
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
    problem: str | None = None
    """Why the task stays as it was given. None: it was rewritten."""


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


class ThoughtNoted(Data):
    """What a model has thought: nobody hears it. The message that it belongs to follows."""

    event: Literal["thought"] = "thought"
    speaker: str | None
    """Whose model it is. None: nobody's, such as a judge's."""
    text: str


class MessageSaid(Data):
    """A speaker's message, whole, as it stands in the log."""

    event: Literal["message"] = "message"
    id: str
    speaker: str
    text: str
    heard: str | None = None
    """What others hear of it, and its tokens are. None: all of it; else it says a done token."""
    problem: str | None = None
    """What is wrong with it, where it was accepted all the same."""
    cut_off: bool = False
    """Whether it ended at the longest length of an answer, and not by itself."""
    alone: bool = False
    """Whether nobody else heard it: a private or an opening answer."""
    only: tuple[str, ...] = ()
    """Who alone heard it, where not all did."""
    parsed: JsonValue = None
    """What it says by the speaker's output format, as plain values."""
    calling: bool = False
    """Whether it stands beside a call of tools: the speaker's turn goes on."""
    human: bool = False
    """Whether a person has said it."""


class ReplyRejected(Data):
    """A reply that broke a rule or was cut off, and is asked for again. Its tokens do not count."""

    event: Literal["rejected"] = "rejected"
    id: str
    speaker: str | None
    """Who replied. None: the task's rewriting."""
    text: str
    problem: str
    cut_off: bool = False
    """Whether it ended at the longest length of an answer, and not by itself."""


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


class ToolRoundsReached(Data):
    """A speaker has had all rounds of tools that a turn may have: it answers without tools."""

    event: Literal["tool_rounds"] = "tool_rounds"
    id: str
    speaker: str
    rounds: int
    """How many rounds in which a call succeeded it has had in this turn."""


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


class WentOn(Data):
    """The conversation had ended here, and went on since something more was said."""

    event: Literal["went_on"] = "went_on"
    id: str
    outcome: Outcome
    """Why, when and by whom it had ended."""


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
    | ThoughtNoted
    | MessageSaid
    | ReplyRejected
    | ToolCalled
    | CodeStarted
    | ToolAnswered
    | ToolRoundsReached
    | VerdictGiven
    | SpeakerChosen
    | HistoryShortened
    | WentOn
    | QuestionAsked
    | Ended
)
"""Anything that happens."""
