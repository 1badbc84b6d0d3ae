"""The events of a log's messages."""

from collections.abc import Iterable, Iterator

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from ..events import (
    CodeBlock,
    CodeStarted,
    ConversationEnded,
    ConversationReopened,
    Event,
    HistoryShortened,
    MessageSaid,
    ReplyRejected,
    SpeakerChosen,
    TaskSpecified,
    ThoughtReceived,
    ToolCallFinished,
    ToolCallRequested,
    ToolRoundLimitReached,
    VerdictGiven,
)
from ..log.done_tokens import heard_text
from ..log.messages import metadata, place_of, says_something
from ..log.metadata import (
    CodeCalls,
    Draft,
    EarlierEnd,
    MessageMetadata,
    Reflection,
    SpeakerChoice,
    SpeakerReply,
    SpecifiedTask,
    Speech,
    Summary,
    ToolCalls,
    ToolResult,
    thought_text,
)
from ..rules.outcome import Outcome
from ..sessions.stored_session import StoredSession
from ..spec.conversation import Conversation


def events_of_session(result: StoredSession) -> Iterator[Event]:
    """Yield the events that a stored session has had."""
    yield from events_of(result.conversation, result.messages)
    if result.outcome is not None:
        yield ConversationEnded.of(result.session_id, result.outcome)


def events_of(conversation: Conversation, log: Iterable[BaseMessage]) -> Iterator[Event]:
    """Yield the events of the messages of a log, or of its new messages."""
    for message in log:
        yield from _events_of_message(conversation, message)


def _events_of_message(conversation: Conversation, message: BaseMessage) -> Iterator[Event]:
    about = metadata(message)
    if thought := thought_text(about):
        yield ThoughtReceived(speaker=about.speaker, text=thought)
    speaker = about.speaker or ""
    match about:
        case Speech():
            yield _said(conversation, message, about)
        case Draft():
            yield ReplyRejected(
                id=place_of(message),
                speaker=about.speaker,
                text=message.text,
                problem=about.problem or "",
                cut_off=about.cut_off,
            )
        case CodeCalls() | ToolCalls() if isinstance(message, AIMessage):
            if says_something(message, about):
                yield _said(conversation, message, about)
            runs_code = isinstance(about, CodeCalls)
            yield from (_code_started if runs_code else _calls_requested)(message, speaker)
        case ToolResult() if isinstance(message, ToolMessage):
            yield ToolCallFinished(
                speaker=speaker,
                call_id=message.tool_call_id,
                text=message.text,
                failed=message.status == "error",
                decision=about.decision,
            )
            if about.tool_round == conversation.max_tool_rounds:
                yield ToolRoundLimitReached(
                    id=place_of(message), speaker=speaker, rounds=about.tool_round
                )
        case _:
            yield from _beside(message, about)


def _beside(message: BaseMessage, about: MessageMetadata) -> Iterator[Event]:
    """Yield the events of messages that are no part of a speaker's turn."""
    place = place_of(message)
    match about:
        case SpecifiedTask():
            yield TaskSpecified(text=message.text, problem=about.problem)
        case Reflection() if about.verdict is not None:
            yield VerdictGiven(id=place, by=about.speaker, verdict=about.verdict)
        case Summary():
            yield HistoryShortened(id=place, speaker=about.speaker or "", text=message.text)
        case SpeakerChoice():
            yield SpeakerChosen(id=place, speaker=about.to or "", problem=about.problem)
        case EarlierEnd():
            yield ConversationReopened(id=place, outcome=Outcome.model_validate(about.outcome))


def _said(conversation: Conversation, message: BaseMessage, about: SpeakerReply) -> MessageSaid:
    has_tokens = conversation.end_chat.when is not None
    heard = heard_text(conversation, message, about) if has_tokens else message.text
    return MessageSaid(
        id=place_of(message),
        speaker=about.speaker or "",
        text=message.text,
        heard_text=None if heard == message.text else heard,
        problem=about.problem,
        cut_off=about.cut_off,
        audience=None if about.audience is None else about.confidants,
        parsed=about.parsed,
        has_tool_calls=isinstance(about, ToolCalls),
        source=about.source,
    )


def _code_started(message: AIMessage, speaker: str) -> Iterator[Event]:
    """Yield the event of code that runs now, if there is any whole block."""
    blocks = tuple(
        CodeBlock(language=call["name"], code=call["args"]["code"]) for call in message.tool_calls
    )
    if blocks:
        yield CodeStarted(id=place_of(message), speaker=speaker, blocks=blocks)


def _calls_requested(message: AIMessage, speaker: str) -> Iterator[Event]:
    """Yield the events of tool calls that run now."""
    for call in message.tool_calls:
        yield ToolCallRequested(
            speaker=speaker,
            call_id=call["id"] or "",
            name=call["name"],
            arguments=call["args"],
        )
