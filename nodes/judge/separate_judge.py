"""A separate judge, which compares the conversation with a list of criteria.

Each verdict is one call, with a schema or with a line of words for each criterion. An unreadable
verdict counts as not complete and is recorded as unreadable.
"""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from pydantic import Field, create_model

from ...graphs.conversation.judges import VERDICT_TEMPERATURE, Finding, SeparateJudge, Verdict
from ...graphs.log.messages import make_message
from ...graphs.log.metadata import NOBODY, JudgeQuestion, Reflection
from ...graphs.prompts import judging as prompts
from ...graphs.prompts.texts import RenderPrompt
from ...graphs.rules.transitions import after_verdict
from ...graphs.rules.turns import is_judged
from ...graphs.speakers.model_settings import ModelSettings
from ...graphs.speakers.speaker import Speaker
from ...graphs.speakers.structured_answers import OwnAnswer
from ..models.answers import thought_of
from ..models.model import Model
from ..turn.node_context import NodeContext
from ..turn.prompt import ModelAnswer
from .observer import ask_observer
from .self_judge import answer_limit, is_second, phrase_question, record_unreadable
from .verdicts import read_lines

_TOKENS, _EACH = 200, 50
"""Output token limit of a verdict: its constant part, and the part for each criterion."""

Findings = dict[str, Finding]
"""The finding for each criterion."""


async def judge_criteria(context: NodeContext, judge: SeparateJudge) -> dict[str, Any]:
    """Ask the separate judge about its criteria, and record the verdict."""
    speaker = context.conversation.speaker(context.turn.speaker)
    model = await context.model(judge.model)
    found = await ask_criteria(context, judge, model)
    answer, findings = found.answer, found.found
    number = len(context.log) + len(found.new)
    asked = context.conversation.render_prompt(prompts.JUDGE_CRITERIA)
    question = make_message(number, asked, JudgeQuestion(audience=NOBODY))
    if findings is None and not is_second(context):
        return await record_unreadable(context, found, [question], None)
    is_final = not is_judged(context.conversation, context.position)
    verdict = make_verdict(speaker.name, findings, is_final=is_final)
    kept = (speaker.name,) if speaker.keep_self_reflection and verdict.readable else NOBODY
    render_prompt = context.conversation.render_prompt
    text = (
        render_prompt(prompts.JUDGE_VERDICT, verdict=_in_words(findings))
        if findings
        else str(answer.text)
    )
    about = Reflection(audience=kept, verdict=verdict, thought=thought_of(answer))
    lines = [question, make_message(number + 1, text, about, answer=answer)]
    # A final verdict is requested after a cap was reached. It only reports the state; the cap
    # remains the reason for the end.
    completes = verdict.complete and not verdict.final
    position = after_verdict(context.conversation, context.position, complete=completes)
    return await context.step(position, [*found.new, *lines], found.usage)


def make_verdict(speaker: str, findings: Findings | None, *, is_final: bool) -> Verdict:
    """Return the verdict with these findings, or an unreadable verdict if they are None."""
    return Verdict(
        speaker=speaker,
        complete=findings is not None and set(findings.values()) == {Finding.MET},
        objectives_left=tuple(
            criterion for criterion, found in (findings or {}).items() if found is not Finding.MET
        ),
        readable=findings is not None,
        findings=findings or {},
        final=is_final,
    )


async def ask_criteria(
    context: NodeContext, judge: SeparateJudge, model: Model
) -> ModelAnswer[Findings | None]:
    """Ask the judge about its criteria. The findings are None if its answer can't be read."""
    most = answer_limit(context, judge, model, _TOKENS + _EACH * len(judge.criteria))
    own = ModelSettings(temperature=judge.temperature, max_tokens=judge.max_tokens)
    settings = context.settings("judge", own, VERDICT_TEMPERATURE, most)
    question = context.conversation.render_prompt(prompts.JUDGE_CRITERIA)
    if judge.form == "lines":
        question = context.conversation.render_prompt(prompts.JUDGE_IN_LINES, question=question)

    question = phrase_question(context, question)

    async def ask(prompt: list[BaseMessage]) -> tuple[AIMessage, Findings | None]:
        if judge.form == "lines":
            answer = await model.answer(prompt, settings, purpose=Reflection)
            return answer, read_lines(answer.text, judge.criteria)
        answer, found = await model.structured(
            prompt,
            _schema(judge.criteria),
            settings,
            purpose=Reflection,
            instead='judge.form = "lines"',
        )
        if found is None:
            return answer, None
        return answer, dict(zip(judge.criteria, found.model_dump().values(), strict=True))

    system = _system(context, judge)
    return await ask_observer(context, model, system, question, ask, private=True, most=most)


def _system(context: NodeContext, judge: SeparateJudge) -> list[str]:
    render_prompt = context.conversation.render_prompt
    numbered = (f"{number}. {text}" for number, text in enumerate(judge.criteria, start=1))
    return [
        judge.prompt or render_prompt(prompts.SEPARATE_JUDGE),
        *_describe_tasks(context.conversation.speakers, context.task, render_prompt),
        render_prompt(prompts.CRITERIA, criteria="\n".join(numbered)),
    ]


def _schema(criteria: tuple[str, ...]) -> type[OwnAnswer]:
    """Return a model with a field for each criterion, since a list could be too short."""
    fields: dict[str, Any] = {
        f"criterion_{number}": (Finding, Field(description=text))
        for number, text in enumerate(criteria, start=1)
    }
    return create_model("Findings", __base__=OwnAnswer, **fields)


def _in_words(findings: Findings) -> str:
    return "; ".join(f"{criterion} ({found.in_words})" for criterion, found in findings.items())


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
