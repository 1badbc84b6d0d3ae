"""The events that the messages of a log stand for."""

from collections.abc import Iterator

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
from ..log.kinds import Kind
from ..log.messages import About, Source, is_said, line, place_of
from ..rules.outcome import Outcome
from ..sessions.stored_session import StoredSession
from ..spec.conversation import Conversation


def replayed(result: StoredSession) -> Iterator[Event]:
    """Give the events that a session as it stands has had."""
    for message in result.messages:
        yield from events_of(result.conversation, message)
    if result.outcome is not None:
        yield ConversationEnded.of(result.session_id, result.outcome)


def events_of(conversation: Conversation, message: BaseMessage) -> Iterator[Event]:
    """Give the events that a new message of the log stands for."""
    about = line(message)
    if about.thought is not None and about.thought.text and about.kind is not Kind.ANSWER:
        yield ThoughtReceived(speaker=about.speaker, text=about.thought.text)
    speaker = about.speaker or ""
    match about.kind:
        case Kind.SPEECH:
            yield _said(conversation, message, about)
        case Kind.DRAFT:
            yield ReplyRejected(
                id=place_of(message),
                speaker=about.speaker,
                text=message.text,
                problem=about.problem or "",
                cut_off=about.cut_off,
            )
        case Kind.CODE | Kind.TOOL_CALLS if isinstance(message, AIMessage):
            if is_said(message, about):
                yield _said(conversation, message, about)
            yield from _started(message, about.kind, speaker)
        case Kind.TOOL_RESULT if isinstance(message, ToolMessage):
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


def _beside(message: BaseMessage, about: About) -> Iterator[Event]:
    """Give the events of what stands beside the speakers' turns."""
    place = place_of(message)
    match about.kind:
        case Kind.SPECIFIED_TASK:
            yield TaskSpecified(text=message.text, problem=about.problem)
        case Kind.REFLECTION if about.verdict is not None:
            yield VerdictGiven(id=place, by=about.speaker, verdict=about.verdict)
        case Kind.SUMMARY:
            yield HistoryShortened(id=place, speaker=about.speaker or "", text=message.text)
        case Kind.CHOICE:
            yield SpeakerChosen(id=place, speaker=about.to or "", problem=about.problem)
        case Kind.ENDED:
            yield ConversationReopened(id=place, outcome=Outcome.model_validate(about.outcome))


def _said(conversation: Conversation, message: BaseMessage, about: About) -> MessageSaid:
    has_tokens = conversation.end_chat.when is not None
    heard = heard_text(conversation, message, about) if has_tokens else message.text
    only = about.confidants if about.audience else ()
    return MessageSaid(
        id=place_of(message),
        speaker=about.speaker or "",
        text=message.text,
        heard=None if heard == message.text else heard,
        problem=about.problem,
        cut_off=about.cut_off,
        alone=about.audience is not None and not only,
        only=only,
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
        if message.tool_calls:
            yield CodeStarted(id=place_of(message), speaker=speaker, blocks=tuple(blocks))
        return
    for call in message.tool_calls:
        yield ToolCallRequested(
            speaker=speaker,
            call_id=call["id"] or "",
            name=call["name"],
            arguments=call["args"],
        )
