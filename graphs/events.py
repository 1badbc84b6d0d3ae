"""The events of a conversation: `stream` yields them, and ``--json`` prints one per line.

In JSON the field ``event`` names the event. In Python, `match` on the classes: type checkers then
know the fields of each event. A pattern names its fields: ``MessageSaid(text=text)``, not
``MessageSaid(text)``. `graphs.session.events` reads the log as events.

Example:
    >>> from duologue import chat, stream
    >>> from duologue.graphs.events import ConversationEnded, MessageSaid
    >>> from duologue.nodes.testing import ScriptedChatModel
    >>> model = ScriptedChatModel(["Hello!"])
    >>> for event in stream(chat("Hi."), model=model, store="memory:", answer=lambda _: "exit"):
    ...     match event:
    ...         case MessageSaid(speaker=name, text=text):
    ...             print(f"{name}: {text}")
    ...         case ConversationEnded(reason=reason):
    ...             print(reason.value)
    User: Hi.
    Assistant: Hello!
    quit
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, PlainSerializer, computed_field

from .common.addresses import show_address
from .common.data import Data
from .conversation.judges import Verdict
from .conversation.questions import Question
from .ends.end_chat import Reason
from .log.metadata import Source
from .rules.outcome import Outcome
from .speakers.call_settings import DecisionType
from .speakers.reply_parts import Stop


class _Event(Data):
    event: str
    """The name of this event in JSON."""


class SessionStarted(_Event):
    """The start of a run: always the first event."""

    event: Literal["session"] = "session"
    session: str
    """The session's id."""
    store: Annotated[str, PlainSerializer(show_address)]
    """The address of the store that contains the session. `repr` and ``model_dump`` hide its
    password."""
    title: str
    """The conversation's title, or its task."""
    resumed: bool
    """Whether the run continues an earlier one."""
    ended: bool = False
    """Whether the conversation had already ended. If so, its messages are repeated as events."""
    people: tuple[str, ...] = ()
    """The names of the speakers whose replies people write."""

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Return the fields for `repr`, with the password of the store hidden."""
        for name, value in super().__repr_args__():
            yield name, show_address(value) if name == "store" else value


class Notice(_Event):
    """A sentence for the reader of the events, such as a warning or the reason for a delay."""

    event: Literal["notice"] = "notice"
    text: str
    """The sentence."""


class TaskSpecified(_Event):
    """The task for the speakers, after a model was asked to make the task more specific."""

    event: Literal["task"] = "task"
    text: str
    """The task."""
    problem: str | None = None
    """Why the original task was kept. None if the task was rewritten."""


class MessageStarted(_Event):
    """The start of a message whose text follows in `MessageToken` events.

    If a second event of this class arrives before the whole message, the message begins again:
    ignore the tokens received so far.
    """

    event: Literal["message_start"] = "message_start"
    speaker: str
    """The name of the speaker."""


class MessageToken(_Event):
    """A piece of a message that is still being written."""

    event: Literal["token"] = "token"
    speaker: str
    """The name of the speaker."""
    text: str
    """The piece, as the other speakers hear it."""


class ThoughtReceived(_Event):
    """The thoughts of a model before its answer. No speaker hears them. The answer follows."""

    event: Literal["thought"] = "thought"
    speaker: str | None
    """The name of the model's speaker. None for other models, such as a judge's."""
    text: str
    """The thought."""


class MessageSaid(_Event):
    """A whole message of a speaker, as the log contains it."""

    event: Literal["message"] = "message"
    id: str
    """The message's place in the log, such as ``m0004``."""
    speaker: str
    """The name of the speaker."""
    text: str
    """The whole message."""
    heard_text: str | None = None
    """The part of the text that others hear, if the message contains a done token. None if they
    hear all of it."""
    problem: str | None = None
    """The rule that the message breaks, although the message was accepted. None if it breaks
    none."""
    cut_off: bool = False
    """Whether the message was cut off at the token limit."""
    stop: Stop | None = None
    """Why the model stopped before the message was complete. None if it is complete."""
    audience: tuple[str, ...] | None = None
    """The names of the other speakers who hear the message. Empty if no other speaker hears it, for
    example a private answer or an opening answer. None if everyone hears it."""
    parsed: JsonValue = None
    """The content, parsed according to the speaker's format, as plain values. None if nothing was
    parsed."""
    files: tuple[dict[str, Any], ...] = Field(default=(), exclude=True)
    """The images and other files of the message, as content blocks with their bytes in base64.
    ``model_dump`` leaves them out."""
    has_tool_calls: bool = False
    """Whether the message came with tool calls. If so, the speaker's turn continues."""
    source: Source = Source.MODEL
    """The origin of the message: ``human`` if a person said it, ``model``, ``function``,
    ``agent``, ``text`` (the speaker's fixed text), ``code``, ``tool`` or ``hook``."""


class ReplyRejected(_Event):
    """A reply that broke a rule or was cut off. Ignore its tokens: another reply is requested."""

    event: Literal["rejected"] = "rejected"
    id: str
    """The reply's place in the log, such as ``m0004``."""
    speaker: str | None
    """The name of the speaker. None if the reply came from the model that rewrites the task."""
    text: str
    """The whole reply."""
    problem: str
    """The rule that the reply broke."""
    cut_off: bool = False
    """Whether the reply was cut off at the token limit."""
    stop: Stop | None = None
    """Why the model stopped before the reply was complete. None if it is complete."""


class ToolCallRequested(_Event):
    """A tool call that a speaker requests. A person may have to approve it before it runs."""

    event: Literal["tool_call"] = "tool_call"
    speaker: str
    """The name of the speaker."""
    call_id: str
    """The id of the call. The result's event has the same id."""
    name: str
    """The name of the tool."""
    arguments: dict[str, Any]
    """The arguments of the call, by name."""


class CodeBlock(Data):
    """A block of code that is run."""

    language: str
    """``python`` or ``shell``. For other code, the label of the block."""
    code: str
    """The code."""


class CodeStarted(_Event):
    """The moment when a speaker runs code that it heard. The next message contains the output."""

    event: Literal["code"] = "code"
    id: str
    """The place of the code in the log, such as ``m0004``."""
    speaker: str
    """The name of the speaker that runs the code."""
    blocks: tuple[CodeBlock, ...]
    """The blocks, in order. The blocks after one that fails do not run."""


class ToolCallFinished(_Event):
    """The result of a tool call."""

    event: Literal["tool_result"] = "tool_result"
    speaker: str
    """The name of the speaker that called the tool."""
    call_id: str
    """The id of the call."""
    text: str
    """The result, or the error, as text."""
    failed: bool
    """Whether the call failed."""
    decision: DecisionType | None = None
    """The decision of a person about the call. None if no person was asked."""
    files: tuple[dict[str, Any], ...] = Field(default=(), exclude=True)
    """The images and other files of the result, as content blocks with their bytes in base64.
    ``model_dump`` leaves them out."""
    artifact: Any = Field(default=None, exclude=True)
    """The artifact of the call, as it is stored. None if there is none. ``model_dump`` leaves it
    out."""


class ToolRoundLimitReached(_Event):
    """The moment when a speaker has used all tool rounds of its turn and must answer."""

    event: Literal["tool_rounds"] = "tool_rounds"
    id: str
    """The place of the last result in the log, such as ``m0004``."""
    speaker: str
    """The name of the speaker."""
    rounds: int
    """The number of rounds in this turn in which a call succeeded."""


class VerdictGiven(_Event):
    """A judge's verdict about a task."""

    event: Literal["verdict"] = "verdict"
    id: str
    """The place of the judge's answer in the log, such as ``m0004``."""
    by: str | None = None
    """The name of the speaker that judged its own task. None for a separate judge."""
    verdict: Verdict
    """The verdict."""


class SpeakerChosen(_Event):
    """The choice of the next speaker."""

    event: Literal["next_speaker"] = "next_speaker"
    id: str
    """The place of the choice in the log, such as ``m0004``."""
    speaker: str
    """The name of the next speaker."""
    problem: str | None = None
    """The reason why the choice could not be used; then the next speaker in order speaks. None if
    the choice was used."""


class HistoryShortened(_Event):
    """The older part of a speaker's history, which its prompts no longer contain.

    The log still contains this part.
    """

    event: Literal["shortened"] = "shortened"
    id: str
    """The place of the summary in the log, such as ``m0004``."""
    speaker: str
    """The name of the speaker."""
    text: str
    """The summary that replaces this part. Empty if there is no summary."""


class ConversationReopened(_Event):
    """An earlier end of the conversation, after which another message continued it."""

    event: Literal["reopened"] = "reopened"
    id: str
    """The place of the end in the log, such as ``m0004``."""
    outcome: Outcome
    """The outcome of the conversation at that end."""


class QuestionAsked(_Event):
    """A question to a person. It is the last event if no answer comes: the session then waits."""

    event: Literal["question"] = "question"
    question: Annotated[Question, Field(discriminator="kind")]
    """The question."""


class ConversationEnded(Outcome):
    """The end of the conversation: the last event, with the fields of an `Outcome`."""

    event: Literal["outcome"] = "outcome"
    """The name of this event in JSON."""
    session: str
    """The session's id."""

    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def reason(self) -> Reason:
        """The reason with the highest precedence."""
        return self.reasons[0]

    @classmethod
    def of(cls, session: str, outcome: Outcome) -> "ConversationEnded":
        """Return the event for a session's outcome."""
        return cls(session=session, **dict(outcome))


Event = (
    SessionStarted
    | Notice
    | TaskSpecified
    | MessageStarted
    | MessageToken
    | ThoughtReceived
    | MessageSaid
    | ReplyRejected
    | ToolCallRequested
    | CodeStarted
    | ToolCallFinished
    | ToolRoundLimitReached
    | VerdictGiven
    | SpeakerChosen
    | HistoryShortened
    | ConversationReopened
    | QuestionAsked
    | ConversationEnded
)
"""Any event of a conversation."""
