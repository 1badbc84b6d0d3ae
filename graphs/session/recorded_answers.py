"""Answers of models and people that a log records, for a replay.

All functions are pure. `graphs.session.replay` uses the answers.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCall

from ...nodes.models.answers import RECORDED
from ...nodes.testing import Reply
from ..common.content import Content
from ..conversation.conversation import Conversation
from ..conversation.judges import HAND_OFF, Moderator, SeparateJudge, Verdict
from ..conversation.questions import EXIT, ApprovalQuestion, MessageQuestion
from ..ends.all_ends import Reason
from ..log.inner_log import read_inner_log
from ..log.messages import metadata, newest_calls
from ..log.metadata import (
    CallOutcome,
    Draft,
    InnerSession,
    MessageMetadata,
    ModelOutput,
    PendingAnswer,
    Reflection,
    Source,
    SpeakerChoice,
    SpeakerReply,
    SpecifiedTask,
    Speech,
    Summary,
    ToolCalls,
    UnheardReply,
    is_by_person,
    outcome_of,
)
from ..log.reply_parts import STOP
from ..rules.approval_question import needing_approval
from ..rules.outcome import Outcome
from ..speakers.interrupt_on import Action, AnyDecision, Approve, Decisions, Edit, Reject, Respond
from ..speakers.model_thought import THOUGHT
from ..speakers.speaker import TO_USER
from .stored_session import StoredSession


def answers(conversation: Conversation, log: Sequence[AnyMessage]) -> Iterator[Reply | AIMessage]:
    """Yield the answers of models that a log records."""
    for message, about in _first_versions(log):
        if isinstance(about, InnerSession):
            # The inner conversation runs again before the reply or the result that it led to.
            yield from answers(*read_inner_log(about))
            continue
        reply = _answer(conversation, message, about)
        if reply is not None:
            yield reply


def replies_of_agents(log: Sequence[AnyMessage]) -> Iterator[dict[str, Any]]:
    """Yield the replies of custom agents, as states of such an agent."""
    made: list[AnyMessage] = []
    calls: set[str | None] = set()
    for message, about in _first_versions(log):
        is_by_agent = isinstance(about, SpeakerReply) and about.source is Source.AGENT
        if is_by_agent and isinstance(about, ToolCalls) and isinstance(message, AIMessage):
            calls |= {call["id"] for call in message.tool_calls}
            made.append(AIMessage(message.text, tool_calls=message.tool_calls))
        elif isinstance(message, ToolMessage) and message.tool_call_id in calls:
            made.append(message)
        elif is_by_agent and isinstance(about, Speech | UnheardReply):
            thought = {THOUGHT: about.thought}
            said = AIMessage(message.text, additional_kwargs=thought)
            yield {"messages": [*made, said], "structured_response": about.parsed}
            made = []


def inner_conversations_in(log: Sequence[AnyMessage]) -> Iterator[Conversation]:
    """Yield the inner conversations of a log, at all levels."""
    for message in log:
        about = metadata(message)
        if isinstance(about, InnerSession):
            conversation, inner = read_inner_log(about)
            yield conversation
            yield from inner_conversations_in(inner)


def _first_versions(log: Sequence[AnyMessage]) -> Iterator[tuple[AnyMessage, MessageMetadata]]:
    """Yield the messages of a log as they were first given, without their later versions."""
    waiting = False
    pending: set[str | None] = set()
    for message in log:
        about = metadata(message)
        if isinstance(about, PendingAnswer):
            pending.add(about.speaker)
        elif isinstance(about, SpeakerReply) and about.speaker in pending:
            # This reply uses a pending answer, which was yielded already.
            pending.discard(about.speaker)
            continue
        if waiting and isinstance(about, Speech | ToolCalls | UnheardReply):
            # A later version: the answer after hooks changed it, or the first try that was said
            # after all.
            waiting = isinstance(about, UnheardReply)
            continue
        if about.speaker is not None and not isinstance(message, ToolMessage):
            waiting = isinstance(about, UnheardReply)
        yield message, about


def _answer(
    conversation: Conversation, message: AnyMessage, about: MessageMetadata
) -> Reply | AIMessage | None:
    match about:
        case SpecifiedTask():
            # A blank rewrite leaves the task unchanged, and so does a rewrite that is rejected
            # twice. On replay the unchanged task is rejected for the same reason.
            is_blank = message.text == conversation.task and about.problem is None
            return _make_answer("" if is_blank else message.text, about)
        case PendingAnswer() if isinstance(message, AIMessage):
            # Calls that are made at once arrive in any order, so the answer names its speaker.
            named = {"name": about.speaker}
            return _speaker_answer(message, about).model_copy(update=named)
        case Draft() | Speech() | ToolCalls() | UnheardReply():
            if not isinstance(message, AIMessage):
                # A draft of the task has no speaker.
                return _make_answer(message.text, about) if isinstance(about, Draft) else None
            return _speaker_answer(message, about) if about.source is Source.MODEL else None
        case Reflection():
            return _make_answer(_judge_answer(conversation, message.text, about.verdict), about)
        case SpeakerChoice() if _is_asked(conversation):
            return _make_answer(message.text, about)
        case Summary() if about.problem is not None:
            return Reply(error=400, code="context_length_exceeded", message=about.problem)
        case Summary():
            return _make_answer(message.text, about)
        case _:
            return None


def _make_answer(text: str, about: ModelOutput) -> AIMessage:
    """Return a model's answer, with its thought already separated."""
    return AIMessage(text, additional_kwargs={THOUGHT: about.thought, STOP: about.stop})


def _speaker_answer(message: AIMessage, about: SpeakerReply) -> AIMessage:
    """Return the answer of a speaker's model as it was after parsing the server's response."""
    alone = {"private": True} if about.private else {}
    named = [
        ToolCall(name=HAND_OFF, args={"to": name, **alone}, id=None) for name in about.handed_to
    ]
    calls = [*message.tool_calls, *named]
    said = [about.to_user.get(str(call["id"])) for call in calls]
    is_blank = isinstance(about, Speech) and about.is_delivered
    return AIMessage(
        "" if is_blank else message.text,
        tool_calls=calls,
        invalid_tool_calls=[*message.invalid_tool_calls],
        additional_kwargs={
            THOUGHT: about.thought,
            RECORDED: True,
            STOP: about.stop,
            **({TO_USER: said} if any(said) else {}),
        },
    )


def _judge_answer(conversation: Conversation, text: str, verdict: Verdict | None) -> str:
    """Return the judge's answer, in the format that the judge was asked for."""
    judge = conversation.judge
    if verdict is None or not verdict.readable:
        return text
    if not isinstance(judge, SeparateJudge):
        left = list(verdict.objectives_left)
        answer: dict[str, object] = {"objectives_left": left, "complete": verdict.complete}
        return json.dumps(answer) if judge.form == "structured" else text
    found = [verdict.findings[criterion] for criterion in judge.criteria]
    numbered = list(enumerate(found, start=1))
    if judge.form == "lines":
        return "\n".join(f"{number}: {finding.in_words}" for number, finding in numbered)
    answers = {f"criterion_{number}": finding.value for number, finding in numbered}
    if not judge.with_reasons:
        return json.dumps(answers)
    reasons = [verdict.reasons[criterion] for criterion in judge.criteria]
    return json.dumps(
        {
            name: {"reason": reason.text, "message": reason.message or 0, "finding": finding}
            for (name, finding), reason in zip(answers.items(), reasons, strict=True)
        }
    )


def _is_asked(conversation: Conversation) -> bool:
    """Return whether a model chooses the next speaker. With two speakers, no model is asked."""
    return isinstance(conversation.turn_order, Moderator) and not conversation.is_pair


def message_given(
    question: MessageQuestion, rest: Sequence[BaseMessage], ended: Outcome | None
) -> Content | None:
    """Return a person's recorded answer to a question for a message. None if there is no answer."""
    if not rest:
        return _leaving_answer(ended)
    if isinstance(rest[0], ToolMessage):
        spoken = next((one for one in rest if not isinstance(one, ToolMessage)), None)
        about = None if spoken is None else metadata(spoken)
        interrupts = (
            isinstance(about, Speech) and about.interrupts and about.speaker == question.speaker
        )
        return spoken.content if spoken is not None and interrupts else ""
    for message in rest:
        about = metadata(message)
        if isinstance(about, SpeakerReply) and about.speaker is not None:
            if about.speaker != question.speaker:
                return None
            return message.content if is_by_person(about) else ""
    return None


def decisions_given(
    question: ApprovalQuestion,
    conversation: Conversation,
    log: Sequence[BaseMessage],
    rest: Sequence[BaseMessage],
    ended: Outcome | None,
) -> dict[str, Any] | str | None:
    """Return a person's recorded decisions about tool calls. None if a decision is missing."""
    if not rest:
        return _leaving_answer(ended)
    # If hooks changed a result, their version is the later message.
    results: dict[str, BaseMessage] = {}
    for one in takewhile(lambda found: isinstance(found, ToolMessage), rest):
        assert isinstance(one, ToolMessage)  # noqa: S101  # checked by `takewhile`
        results.setdefault(one.tool_call_id, one)
    called = newest_calls(log)
    speaker = conversation.speaker(metadata(called).speaker or "")
    decisions: list[AnyDecision] = []
    calls = needing_approval(speaker, called.tool_calls)
    for call, review in zip(calls, question.review_configs, strict=True):
        found = results.get(str(call["id"]))
        decision = None if found is None else _decision(call, found, review["allowed_decisions"])
        if decision is None:
            return None
        decisions.append(decision)
    return Decisions(decisions=tuple(decisions)).model_dump(mode="json")


def _decision(call: ToolCall, found: BaseMessage, allowed: Sequence[str]) -> AnyDecision | None:
    about = metadata(found)
    if not isinstance(about, CallOutcome):
        return None
    match about.decision:
        case "approve" if "approve" in allowed:
            return Approve(type="approve")
        case "approve" | "edit":
            # An edit that changes nothing is an approval.
            args = call["args"] if about.arguments is None else about.arguments
            action = Action(name=about.tool or call["name"], args=args)
            return Edit(type="edit", edited_action=action)
        case "reject":
            return Reject(type="reject", message=about.refusal)
        case "respond":
            return Respond(type="respond", message=found.text)
        case None:
            return None


def _leaving_answer(ended: Outcome | None) -> str | None:
    """Return the answer with which a person ended the conversation, or None."""
    for reason in () if ended is None else ended.reasons:
        if reason is Reason.QUIT:
            return EXIT
        if reason in (Reason.TERMINATION, Reason.MAX_CONSECUTIVE_AUTO_REPLY):
            return ""
    return None


def up_to_each_end(recorded: StoredSession) -> Iterator[StoredSession]:
    """Yield the session as it was at each end, and as it is now."""
    for place, message in enumerate(recorded.messages):
        if (ended := outcome_of(metadata(message))) is not None:
            outcome = Outcome.model_validate(ended)
            yield replace(recorded, messages=recorded.messages[:place], outcome=outcome)
    yield recorded
