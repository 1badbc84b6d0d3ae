"""A separate judge, which compares the conversation with a list of criteria, and its calls.

Each verdict is one call, with a schema or with a line of words for each criterion. An unreadable
verdict counts as not complete and is recorded as unreadable. The judge can also read the log of a
stored session, which does not run.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage
from pydantic import Field, create_model

from ...graphs.conversation.conversation import Conversation
from ...graphs.conversation.judges import (
    VERDICT_TEMPERATURE,
    Finding,
    FindingReason,
    SeparateJudge,
    Verdict,
)
from ...graphs.conversation.usage import Usage
from ...graphs.log.messages import metadata, place_of
from ...graphs.log.metadata import NOBODY, JudgeQuestion, Reflection, Summary
from ...graphs.log.transcript import format_transcript, numbered_transcript, transcript_lines
from ...graphs.prompts import prompts
from ...graphs.prompts.prompts import SHORTENED, RenderPrompt, fill_template
from ...graphs.rules.history import shorten_messages
from ...graphs.rules.position import Phase, Position
from ...graphs.rules.transitions import record_verdict
from ...graphs.speakers.call_settings import ModelSettings
from ...graphs.speakers.speaker import Speaker
from ...graphs.speakers.structured_answers import OwnAnswer
from ...graphs.text.words import tokens_of
from ..models.answers import get_thought
from ..models.gate import StepGate
from ..models.model import Model
from ..turn.long_histories import Shortened, ask_within_room
from ..turn.node_context import NodeContext, Resources, notify
from ..turn.running_sessions import RunningSession
from .self_judge import answer_limit, is_last, phrase_question, record_unreadable
from .verdicts_in_words import read_lines

T = TypeVar("T")


async def ask_observer(
    context: NodeContext,
    model: Model,
    system: Sequence[str],
    question: str,
    ask: Callable[[list[BaseMessage]], Awaitable[tuple[AIMessage, T]]],
    *,
    private: bool,
    most: int | None = None,
    is_numbered: bool = False,
) -> tuple[AIMessage, T]:
    """Ask an observer who has heard the conversation, or read its numbered lines.

    If the conversation is too long for the model, or leaves no room for a whole answer, its older
    half is left out from then on. A single message that is too long is shortened.
    """
    limit: int | None = None
    render_prompt = context.conversation.render_prompt

    def ask_in_prompt() -> Awaitable[tuple[AIMessage, T]]:
        seen = _select_seen(context.lines())
        transcript = (
            numbered_transcript(context.log, seen)
            if is_numbered
            else format_transcript(seen, private=private)
        ) or render_prompt(prompts.EMPTY_CONVERSATION)
        # Constant parts first and the question last, so that most of the prompt can be cached.
        heard = render_prompt(prompts.CONVERSATION_SO_FAR, transcript=transcript, question=question)
        prompt: list[BaseMessage] = [SystemMessage("\n\n".join(system)), HumanMessage(heard)]
        return ask(prompt if limit is None else shorten_messages(prompt, limit, render_prompt))

    def shorten(tokens: int | None) -> Shortened | None:
        nonlocal limit
        since = _find_half(_select_seen(context.lines()), private=private)
        if since is not None:
            text = fill_template(SHORTENED, name=prompts.OBSERVER)
            context.add("", Summary(audience=NOBODY, since=since, problem=text))
            return Shortened(text)
        if tokens is None:
            return None
        limit = tokens
        return Shortened(is_limited=True)

    return await ask_within_room(context, model, ask_in_prompt, shorten, most=most)


def _select_seen(log: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the part of a log that observers still see."""
    cuts = (
        one for one in map(metadata, reversed(log)) if isinstance(one, Summary) and not one.speaker
    )
    since = next((cut.since for cut in cuts), None)
    places = (place for place, message in enumerate(log) if place_of(message) == since)
    return list(log[next(places, 0) :])


def _find_half(log: Sequence[BaseMessage], *, private: bool) -> str | None:
    """Return the place in the log at which the newer half begins, or None for a single message."""
    spoken = [message for message in log if format_transcript([message], private=private)]
    left = sum(tokens_of(message.text) for message in spoken)
    most = left // 2
    for message, following in pairwise(spoken):
        left -= tokens_of(message.text)
        if left <= most:
            return place_of(following)
    return place_of(spoken[-1]) if len(spoken) > 1 else None


_TOKENS, _EACH, _EACH_REASON = 200, 50, 150
"""Output token limit of a verdict: its constant part, the part for each criterion, and the part for
each reason."""


class Decision(NamedTuple):
    """A judge's decision on one criterion."""

    finding: Finding
    reason: FindingReason | None = None


Decisions = dict[str, Decision]
"""The decision on each criterion."""


class _ReasonedFinding(OwnAnswer):
    """A finding, after its reason: a model that writes the reason first decides by it."""

    reason: str = Field(description="The reason, in one sentence")
    message: int = Field(description="The number of the message that shows it, or 0")
    finding: Finding


async def judge_criteria(context: NodeContext, judge: SeparateJudge) -> dict[str, Any]:
    """Ask the separate judge about its criteria, and record the verdict."""
    speaker = context.speaker
    answer, decisions = await ask_criteria(context, judge, await context.model(judge.model))
    asked = context.conversation.render_prompt(prompts.JUDGE_CRITERIA)
    context.add(asked, JudgeQuestion(audience=NOBODY))
    if decisions is None and not is_last(context, judge, answer):
        return await record_unreadable(context, answer, None)
    is_final = not context.is_judged()
    verdict = make_verdict(speaker.name, decisions, is_final=is_final)
    kept = (speaker.name,) if speaker.keep_self_reflection and verdict.readable else NOBODY
    text = str(answer.text)
    if decisions:
        words = "; ".join(f"{one} ({verdict.describe_finding(one)})" for one in verdict.findings)
        text = context.conversation.render_prompt(prompts.JUDGE_VERDICT, verdict=words)
    about = Reflection(audience=kept, verdict=verdict, thought=get_thought(answer))
    context.add(text, about, answer)
    # A final verdict is requested after a cap was reached. It only reports the state; the cap
    # remains the reason for the end.
    completes = verdict.complete and not verdict.final
    return await context.step(record_verdict(context, complete=completes))


def make_verdict(speaker: str, decisions: Decisions | None, *, is_final: bool) -> Verdict:
    """Return the verdict with these decisions, or an unreadable verdict if they are None."""
    found = decisions or {}
    findings = {criterion: one.finding for criterion, one in found.items()}
    return Verdict(
        speaker=speaker,
        complete=decisions is not None and set(findings.values()) == {Finding.MET},
        objectives_left=tuple(
            criterion for criterion, one in findings.items() if one is not Finding.MET
        ),
        readable=decisions is not None,
        findings=findings,
        reasons={
            criterion: one.reason for criterion, one in found.items() if one.reason is not None
        },
        final=is_final,
    )


async def ask_criteria(
    context: NodeContext, judge: SeparateJudge, model: Model
) -> tuple[AIMessage, Decisions | None]:
    """Ask the judge about its criteria. The decisions are None if its answer can't be read."""
    each = _EACH + (_EACH_REASON if judge.with_reasons else 0)
    most = answer_limit(context, judge, model, _TOKENS + each * len(judge.criteria))
    own = ModelSettings(temperature=judge.temperature, max_tokens=judge.max_tokens)
    settings = context.settings("judge", own, VERDICT_TEMPERATURE, most)
    render_prompt = context.conversation.render_prompt
    question = render_prompt(prompts.JUDGE_CRITERIA)
    if judge.form == "lines":
        question = render_prompt(prompts.JUDGE_IN_LINES, question=question)
    if judge.with_reasons:
        question = render_prompt(prompts.JUDGE_WITH_REASONS, question=question)

    question = phrase_question(context, question)

    async def ask(prompt: list[BaseMessage]) -> tuple[AIMessage, Decisions | None]:
        if judge.form == "lines":
            answer = await model.answer(prompt, settings, purpose=Reflection)
            lines = read_lines(answer.text, judge.criteria)
            if lines is None:
                return answer, None
            return answer, {text: Decision(one) for text, one in lines.items()}
        answer, found = await model.answer_by_schema(
            prompt,
            _build_schema(judge.criteria, with_reasons=judge.with_reasons),
            settings,
            purpose=Reflection,
            instead='judge.form = "lines"',
        )
        return answer, None if found is None else _read_decisions(judge, found, context.log)

    return await ask_observer(
        context,
        model,
        _build_system_prompt(context, judge),
        question,
        ask,
        private=True,
        most=most,
        is_numbered=judge.with_reasons,
    )


def _read_decisions(
    judge: SeparateJudge, answer: OwnAnswer, log: Sequence[BaseMessage]
) -> Decisions:
    given = [getattr(answer, name) for name in type(answer).model_fields]
    if not judge.with_reasons:
        return {text: Decision(one) for text, one in zip(judge.criteria, given, strict=True)}
    count = len(transcript_lines(log))
    return {
        text: _check_reason(text, one, count)
        for text, one in zip(judge.criteria, given, strict=True)
    }


def _check_reason(criterion: str, given: _ReasonedFinding, count: int) -> Decision:
    """Return the decision, which is inconclusive if it contradicts itself or names no message."""
    finding, reason = given.finding, " ".join(given.reason.split())
    if not 0 <= given.message <= count:
        problem = f"the judge named message {given.message}, but there are {count}"
        return Decision(Finding.INCONCLUSIVE, FindingReason(text=problem))
    in_words = read_lines(f"1. {reason}", [criterion])
    if in_words is not None and in_words[criterion] is not finding:
        reason = f"the judge decided {finding.in_words!r}, but wrote: {reason}"
        finding = Finding.INCONCLUSIVE
    return Decision(finding, FindingReason(text=reason, message=given.message or None))


def _build_system_prompt(context: NodeContext, judge: SeparateJudge) -> list[str]:
    render_prompt = context.conversation.render_prompt
    numbered = (f"{number}. {text}" for number, text in enumerate(judge.criteria, start=1))
    return [
        judge.prompt or render_prompt(prompts.SEPARATE_JUDGE),
        *_describe_tasks(context.conversation.speakers, context.task, render_prompt),
        render_prompt(prompts.CRITERIA, criteria="\n".join(numbered)),
    ]


@lru_cache(256)
def _build_schema(criteria: tuple[str, ...], *, with_reasons: bool) -> type[OwnAnswer]:
    """Return a model with a field for each criterion, since a list could be too short."""
    kind = _ReasonedFinding if with_reasons else Finding
    fields: dict[str, Any] = {
        f"criterion_{number}": (kind, Field(description=text))
        for number, text in enumerate(criteria, start=1)
    }
    return create_model("Findings", __base__=OwnAnswer, **fields)


def _describe_tasks(
    speakers: Sequence[Speaker], task: str | None, render_prompt: RenderPrompt
) -> list[str]:
    """Return all tasks and all private information, for a judge who sees everything."""
    parts = [] if task is None else [render_prompt(prompts.CONVERSATION_TASK, task=task)]
    for speaker in speakers:
        if speaker.task is not None:
            parts.append(
                render_prompt(prompts.TASK_OF_SPEAKER, name=speaker.name, task=speaker.task)
            )
        opening = speaker.private_opening
        if opening is not None:
            information = " ".join(opening.lines) or opening.prompt
            parts.append(
                render_prompt(
                    prompts.PRIVATE_INFORMATION, name=speaker.name, information=information
                )
            )
    return parts


class LogDecisions(NamedTuple):
    """The answer of a judge who has read a log."""

    decisions: Decisions | None
    """The decision on each criterion. None if the answer can't be read."""
    text: str
    """The text of the answer."""
    usage: dict[str, Usage]
    """The usage of the call, by model."""


async def judge_log(
    resources: Resources,
    conversation: Conversation,
    log: Sequence[AnyMessage],
    task: str | None,
    judge: SeparateJudge,
    *,
    is_second: bool,
) -> LogDecisions:
    """Ask a judge once about a whole log.

    Args:
        resources: The models.
        conversation: The spec of the session.
        log: The log of the session.
        task: The task that the speakers received.
        judge: The judge.
        is_second: Whether an earlier answer could not be read.
    """
    whole, name = resources.models.gate, judge.model or conversation.model
    gate = None if whole is None else StepGate(whole)
    model = await resources.models.get(name, notify, gate)
    if gate is not None:
        model.check_price(conversation)
    position = Position(phase=Phase.UNREAD if is_second else Phase.SPOKEN)
    running = RunningSession(conversation)
    context = NodeContext(
        conversation, position, log=[*log], resources=resources, session=running, task=task
    )
    answer, decisions = await ask_criteria(context, judge, model)
    return LogDecisions(decisions, str(answer.text), context.usage)
