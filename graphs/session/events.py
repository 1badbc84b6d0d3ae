"""Functions that turn a log and streamed tokens into the events of a run, and describe events."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from ..common.content import describe_content, files_of, make_content
from ..common.sanitize import escape_invisible
from ..conversation.conversation import Conversation
from ..events import (
    CodeBlock,
    CodeStarted,
    ConversationEnded,
    ConversationReopened,
    Event,
    HistoryShortened,
    MessageSaid,
    MessageStarted,
    MessageToken,
    Notice,
    ReplyRejected,
    SpeakerChosen,
    TaskSpecified,
    ThoughtReceived,
    ToolCallFinished,
    ToolCallRequested,
    ToolRoundLimitReached,
    VerdictGiven,
)
from ..log.heard_text import heard_text
from ..log.messages import metadata, place_of, says_something, thought_text
from ..log.metadata import (
    CodeCalls,
    Draft,
    EarlierEnd,
    InnerSession,
    MessageMetadata,
    Reflection,
    SpeakerChoice,
    SpeakerReply,
    SpecifiedTask,
    Speech,
    Summary,
    ToolCalls,
    ToolResult,
)
from ..rules.outcome import Outcome
from ..rules.why import (
    describe_choice,
    describe_inner,
    describe_reopening,
    describe_verdict,
)
from .stored_session import StoredSession


def events_of_session(result: StoredSession) -> Iterator[Event]:
    """Yield the events of a stored session."""
    yield from events_of(result.conversation, result.messages)
    if result.outcome is not None:
        yield ConversationEnded.of(result.session_id, result.outcome)


def events_of(conversation: Conversation, log: Iterable[BaseMessage]) -> Iterator[Event]:
    """Yield the events for the messages of a log."""
    for message in log:
        yield from _events_of_message(conversation, message)


def _events_of_message(conversation: Conversation, message: BaseMessage) -> Iterator[Event]:
    about = metadata(message)
    if thought := thought_text(about):
        yield ThoughtReceived(speaker=about.speaker, text=thought)
    speaker = about.speaker or ""
    match about:
        case Speech() if about.is_delivered:
            return
        case Speech():
            yield _message_event(conversation, message, about)
        case Draft():
            yield ReplyRejected(
                id=place_of(message),
                speaker=about.speaker,
                text=message.text,
                problem=about.problem or "",
                cut_off=about.cut_off,
                stop=about.stop,
            )
        case CodeCalls() | ToolCalls() if isinstance(message, AIMessage):
            if says_something(message, about):
                yield _message_event(conversation, message, about)
            yield from _start_calls(message, speaker, runs_code=isinstance(about, CodeCalls))
        case ToolResult() if isinstance(message, ToolMessage):
            yield ToolCallFinished(
                speaker=speaker,
                call_id=message.tool_call_id,
                text=message.text,
                failed=message.status == "error",
                decision=about.decision,
                files=tuple(files_of(message.content)),
                artifact=message.artifact,
            )
            if about.artifact_problem:
                yield Notice(text=f"{about.artifact_problem}.")
            if about.tool_round == conversation.max_tool_rounds:
                yield ToolRoundLimitReached(
                    id=place_of(message), speaker=speaker, rounds=about.tool_round
                )
        case _:
            yield from _events_of_record(message, about)


def _events_of_record(message: BaseMessage, about: MessageMetadata) -> Iterator[Event]:
    """Yield the events of messages that are not part of a speaker's turn."""
    place = place_of(message)
    match about:
        case SpecifiedTask():
            yield TaskSpecified(text=message.text, problem=about.problem)
        case Reflection() if about.verdict is not None:
            yield VerdictGiven(id=place, by=about.speaker, verdict=about.verdict)
        case Summary():
            yield HistoryShortened(id=place, speaker=about.speaker or "", text=message.text)
        case SpeakerChoice(to=str(name)):
            yield SpeakerChosen(id=place, speaker=name, problem=about.problem)
        case InnerSession():
            yield Notice(text=f"{describe_inner(about)} ({place})")
        case EarlierEnd():
            yield ConversationReopened(id=place, outcome=Outcome.model_validate(about.outcome))


def _message_event(
    conversation: Conversation, message: BaseMessage, about: SpeakerReply
) -> MessageSaid:
    has_tokens = conversation.end_chat.when is not None
    heard = heard_text(conversation, message, about) if has_tokens else message.text
    return MessageSaid(
        id=place_of(message),
        speaker=about.speaker or "",
        text=message.text,
        heard_text=None if heard == message.text else heard,
        problem=about.problem,
        cut_off=about.cut_off,
        stop=about.stop,
        audience=None if about.audience is None else about.confidants,
        parsed=about.parsed,
        files=tuple(files_of(message.content)),
        has_tool_calls=isinstance(about, ToolCalls),
        source=about.source,
    )


def _start_calls(message: AIMessage, speaker: str, *, runs_code: bool) -> Iterator[Event]:
    """Yield the events of tool calls, or of complete blocks of code, that start to run."""
    made = message.tool_calls
    if runs_code and made:
        blocks = (CodeBlock(language=one["name"], code=one["args"]["code"]) for one in made)
        yield CodeStarted(id=place_of(message), speaker=speaker, blocks=tuple(blocks))
        return
    for call in made:
        yield ToolCallRequested(
            speaker=speaker,
            call_id=call["id"] or "",
            name=call["name"],
            arguments=call["args"],
        )


@dataclass
class _Message:
    """The message that is being streamed."""

    answer: str | None = None
    """The id of the model answer that the current pieces come from, or None."""
    told: str = ""
    """The text of the message that was already yielded."""
    says: str = ""
    """The text received so far from the current model answer."""
    space: str = ""
    """White space at the end of the content so far. It is dropped if nothing follows."""
    is_beside: bool = False
    """Whether text that accompanies tool calls has arrived."""
    thought: str = ""
    """The thought that was already yielded."""


class TokenStream:
    """A converter of message pieces into events, as they arrive, one speaker at a time.

    The tokens between the newest `MessageStarted` and the complete message form, joined, the text
    that the other speakers hear. If an answer is interrupted and requested again, the events
    continue as long as the new answer repeats the old one; if it differs, a second `MessageStarted`
    starts the message again.
    """

    def __init__(self, beside: Collection[str] = ()) -> None:
        self._beside = beside
        self._now = _Message()
        self._rejected = False

    def add_content(self, speaker: str, text: str, answer: str | None) -> Iterator[Event]:
        """Yield the events of a piece of a message's content."""
        if answer != self._now.answer:
            self._now = _Message(answer, self._now.told, thought=self._now.thought)
        now = self._now
        if now.is_beside:
            # This text follows the text that accompanies the calls, and is yielded with the whole
            # message.
            return
        if speaker in self._beside:
            # White space at the end is dropped if text that accompanies tool calls follows.
            text = now.space + text
            now.space = text[len(text.rstrip()) :]
            text = text.rstrip()
        yield from self._add(speaker, text)

    def add_text_beside_calls(self, speaker: str, text: str) -> Iterator[Event]:
        """Yield the events of a piece of the text that accompanies tool calls."""
        self._now.is_beside = True
        yield from self._add(speaker, text)

    def add_thought(
        self, speaker: str | None, text: str, answer: str | None = None
    ) -> Iterator[Event]:
        """Yield the event of a thought, without the part that was already yielded."""
        new = text.removeprefix(self._now.thought).strip()
        self._now.thought = text
        if new:
            yield ThoughtReceived(speaker=speaker, text=new)

    def complete(self, event: Event) -> Iterator[Event]:
        """Yield the events that complete a message, once it is in the log."""
        if isinstance(event, ThoughtReceived):
            yield from self.add_thought(event.speaker, event.text)
            self._now.thought = ""
            return
        if isinstance(event, HistoryShortened):
            # The history was shortened while the message was written; the record precedes it in the
            # log.
            yield event
            return
        told = self._now.told
        if isinstance(event, ReplyRejected) and told and event.speaker:
            # The tokens of a rejected reply do not count, so the next message starts again.
            self._rejected = True
        elif isinstance(event, MessageSaid) and (told or self._rejected) and event.speaker:
            self._rejected = False
            text = event.text if event.heard_text is None else event.heard_text
            if told and text.startswith(told):
                yield from self._token(event.speaker, text[len(told) :])
            else:
                yield MessageStarted(speaker=event.speaker)
                yield from self._token(event.speaker, text)
        self._now = _Message()
        yield event

    def _add(self, speaker: str, piece: str) -> Iterator[Event]:
        if not piece:
            return
        now = self._now
        goes_on = now.says == now.told
        now.says += piece
        if goes_on:
            if not now.told:
                yield MessageStarted(speaker=speaker)
        elif now.told.startswith(now.says):
            # The repeated answer repeats text that was already yielded.
            return
        elif now.says.startswith(now.told):
            piece = now.says[len(now.told) :]
        else:
            yield MessageStarted(speaker=speaker)
            piece = now.says
        now.told = now.says
        yield from self._token(speaker, piece)

    @staticmethod
    def _token(speaker: str, piece: str) -> Iterator[Event]:
        if piece:
            yield MessageToken(speaker=speaker, text=piece)


def describe_event(
    event: ToolCallRequested
    | CodeStarted
    | ToolCallFinished
    | ToolRoundLimitReached
    | VerdictGiven
    | SpeakerChosen
    | HistoryShortened
    | ConversationReopened,
) -> str:
    """Describe an event in one line. The text is empty if there is nothing to describe."""
    match event:
        case CodeStarted():
            count = len(event.blocks)
            return f"{event.speaker} runs {'the code' if count == 1 else f'{count} blocks of code'}"
        case ToolCallRequested():
            arguments = ", ".join(f"{key}={value!r}" for key, value in event.arguments.items())
            return f"{event.speaker} calls {escape_invisible(f'{event.name}({arguments})')}"
        case ToolCallFinished():
            return _describe_result(event)
        case ToolRoundLimitReached():
            rounds = f"{event.rounds} rounds of tool calls"
            return f"{event.speaker} has used {rounds} and answers without tools"
        case VerdictGiven():
            return describe_verdict(event.verdict, separate=event.by is None)
        case SpeakerChosen():
            return describe_choice(event.speaker, readable=event.problem is None)
        case ConversationReopened():
            return describe_reopening(event.outcome)
        case HistoryShortened():
            # A cut without a summary was already reported when it happened.
            return f"{event.speaker} summarized the history: {event.text}" if event.text else ""


def _describe_result(event: ToolCallFinished) -> str:
    """Return the result of a call, or the decision of the person who answered instead."""
    if event.decision == "reject":
        return event.text
    if event.decision == "respond":
        return f"A person answers in its place: {event.text}"
    text = describe_content(make_content(event.text, event.files))
    return f"{'The call failed' if event.failed else 'It returns'}: {text}"
