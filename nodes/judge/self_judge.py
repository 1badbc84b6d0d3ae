"""Verdicts of speakers about their own tasks.

Each verdict is one call with a schema, or two questions for models without structured output. An
unreadable verdict is requested again. If it stays unreadable, it counts as not complete and is
recorded as unreadable.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Self

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from pydantic import BeforeValidator, Field, model_validator

from ...graphs.conversation.judges import (
    VERDICT_TEMPERATURE,
    Judge,
    SeparateJudge,
    Verdict,
)
from ...graphs.log.messages import make_message, metadata
from ...graphs.log.metadata import NOBODY, JudgeQuestion, Reflection, Speech
from ...graphs.log.viewpoint import order_messages
from ...graphs.prompts import prompts
from ...graphs.rules.position import Phase
from ...graphs.rules.transitions import record_phase, record_unread_verdict, record_verdict
from ...graphs.speakers.reply_parts import StopCause
from ...graphs.speakers.speaker import SPEAKER_TEMPERATURE, Speaker
from ...graphs.speakers.structured_answers import OwnAnswer
from ..models.answers import get_thought
from ..models.model import Model
from ..models.settings import CallSettings
from ..models.stops import stop_of
from ..turn.long_histories import ModelAnswer, ask_model
from ..turn.node_context import NodeContext
from ..turn.prompt import view_of
from .verdicts_in_words import yes_or_no

_MORE = 8
"""Factor by which the second request raises the output token limit, since a thinking model needs
room.
"""


def is_second(context: NodeContext) -> bool:
    """Return whether the verdict is requested for the second time."""
    return context.position.phase is Phase.UNREAD


def is_last(context: NodeContext, judge: Judge | SeparateJudge, answer: AIMessage) -> bool:
    """Return whether an unreadable answer is the last one.

    An answer whose thought has used up the user's limit would do so again.
    """
    stop = stop_of(answer)
    is_used_up = stop is not None and stop.cause is StopCause.THOUGHT
    return is_second(context) or (is_used_up and judge.max_tokens is not None)


def phrase_question(context: NodeContext, question: str) -> str:
    """Return a question, with a note about its form if it is asked for the second time."""
    if not is_second(context):
        return question
    return context.conversation.render_prompt(prompts.RETRY_FORMAT, question=question)


def answer_limit(
    context: NodeContext, judge: Judge | SeparateJudge, model: Model, tokens: int
) -> int | None:
    """Return the output token limit of a verdict, or None for the model's own limit."""
    if judge.max_tokens is not None or not model.adapter.accepts_limit:
        return judge.max_tokens
    return tokens * (_MORE if is_second(context) else 1)


async def record_unreadable(
    context: NodeContext, found: ModelAnswer[Any], before: Sequence[AnyMessage], speaker: str | None
) -> dict[str, Any]:
    """Record an unreadable answer, and before it the given messages."""
    answer = found.answer
    about = Reflection(
        speaker=speaker,
        audience=NOBODY,
        problem=prompts.UNREADABLE,
        thought=get_thought(answer),
    )
    place = len(context.log) + len(found.new) + len(before)
    new = [*found.new, *before, make_message(place, answer.text, about, answer=answer)]
    return await context.step(record_unread_verdict(context), new, found.usage)


_MOST_OBJECTIVES = 5
"""Maximum number of objectives. Further objectives of a longer list are dropped."""

_STRUCTURED, _LEFT, _WORD = 500, 400, 200
"""Output token limits: of a structured verdict, of the objectives left, and of yes or no."""


def _limit_objectives(given: object) -> object:
    if not isinstance(given, list):
        return given
    return [one for one in given if not isinstance(one, str) or one.strip()][:_MOST_OBJECTIVES]


class Judgement(OwnAnswer):
    """The objectives that are left, and whether the task is complete."""

    objectives_left: Annotated[list[str], BeforeValidator(_limit_objectives)] = Field(
        max_length=_MOST_OBJECTIVES,
        description="The objectives that are not met yet, each in a few words. At most "
        f"{_MOST_OBJECTIVES}, the most important first.",
    )
    complete: bool = Field(description="True if every objective of the task is met.")

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        if self.complete and self.objectives_left:
            raise ValueError("objectives_left: must be empty if the task is complete")
        return self


async def judge_yourself(context: NodeContext) -> dict[str, Any]:
    """Ask the speaker of the last turn whether its task is complete."""
    conversation = context.conversation
    speaker = conversation.speaker(context.turn.speaker)
    model = await context.model(speaker.model)
    assert isinstance(conversation.judge, Judge)  # noqa: S101  # a separate judge has its own module
    judge = conversation.judge
    if judge.form == "structured":
        return await _ask_with_schema(context, speaker, model, judge)
    if (left := _find_first_answer(context)) is None:
        return await _ask_what_is_left(context, speaker, model, judge)
    return await _ask_if_complete(context, speaker, model, judge, left)


def _make_settings(
    context: NodeContext,
    speaker: Speaker,
    judge: Judge,
    most: int | None,
    temperature: float | str | None,
    default: float = VERDICT_TEMPERATURE,
) -> CallSettings:
    # The speaker's stop texts and output limit are for its messages; a verdict has its own form.
    own = speaker.model_settings.model_copy(
        update={"temperature": temperature, "stop": (), "max_tokens": judge.max_tokens}
    )
    return context.settings(context.path_of(speaker, "model_settings"), own, default, most)


def _find_audience(speaker: Speaker) -> tuple[str, ...]:
    return (speaker.name,) if speaker.keep_self_reflection else NOBODY


async def _ask_with_schema(
    context: NodeContext, speaker: Speaker, model: Model, judge: Judge
) -> dict[str, Any]:
    words = context.conversation.render_prompt(prompts.JUDGE_OWN_TASK)
    question = HumanMessage(phrase_question(context, words))
    most = answer_limit(context, judge, model, _STRUCTURED)

    async def ask(log: list[BaseMessage]) -> tuple[AIMessage, Judgement | None]:
        return await model.answer_by_schema(
            order_messages([*view_of(context, speaker, log, behind=[question]), question]),
            Judgement,
            _make_settings(context, speaker, judge, most, judge.temperature),
            purpose=Reflection,
            instead='judge.form = "two_questions"',
            speaker=speaker.name,
            tool_calling=speaker.tool_calling,
        )

    found = await ask_model(context, speaker, model, ask, behind=[question], most=most)
    judgement = found.found
    if judgement is None and not is_last(context, judge, found.answer):
        before = [_make_question(context, found, words, NOBODY)]
        return await record_unreadable(context, found, before, speaker.name)
    if judgement is None:
        verdict = Verdict(speaker=speaker.name, complete=False, readable=False)
        text = str(found.answer.text)
    else:
        left = tuple(judgement.objectives_left)
        verdict = Verdict(speaker=speaker.name, complete=judgement.complete, objectives_left=left)
        text = _describe_verdict(context, verdict)
    # An unreadable answer has no use in the speaker's view.
    audience = _find_audience(speaker) if verdict.readable else NOBODY
    return await _record_answer(context, found, words, text, audience, verdict)


def _describe_verdict(context: NodeContext, verdict: Verdict) -> str:
    """Return a verdict in words, as the speaker itself would say it."""
    render_prompt = context.conversation.render_prompt
    if verdict.objectives_left:
        return render_prompt(prompts.OBJECTIVES_LEFT, objectives="; ".join(verdict.objectives_left))
    return render_prompt(
        prompts.NO_OBJECTIVES_LEFT if verdict.complete else prompts.TASK_NOT_COMPLETE
    )


def _find_first_answer(context: NodeContext) -> tuple[BaseMessage, BaseMessage] | None:
    """Return the first question and its answer if the second question is next, or None."""
    if context.position.phase not in (Phase.ASKED, Phase.UNREAD):
        return None
    for answer, question in pairwise(reversed(context.log)):
        about = metadata(answer)
        if isinstance(about, Speech):
            return None
        if isinstance(about, Reflection) and about.verdict is None and about.problem is None:
            return question, answer
    return None


async def _ask_what_is_left(
    context: NodeContext, speaker: Speaker, model: Model, judge: Judge
) -> dict[str, Any]:
    words = context.conversation.render_prompt(prompts.LIST_OBJECTIVES_LEFT)
    question = HumanMessage(words)
    most = answer_limit(context, judge, model, _LEFT)
    own = speaker.model_settings.temperature
    settings = _make_settings(context, speaker, judge, most, own, SPEAKER_TEMPERATURE)
    found = await _ask_in_text(context, speaker, model, [question], settings)
    text = found.answer.text
    return await _record_answer(context, found, words, text, _find_audience(speaker), None)


async def _ask_if_complete(
    context: NodeContext,
    speaker: Speaker,
    model: Model,
    judge: Judge,
    left: tuple[BaseMessage, BaseMessage],
) -> dict[str, Any]:
    first, reflection = left
    render_prompt = context.conversation.render_prompt
    words = render_prompt(prompts.IS_TASK_COMPLETE)
    question = HumanMessage(phrase_question(context, words))
    # Kept reflections are in the view already; others are shown for this question only.
    before: list[BaseMessage] = []
    if not speaker.keep_self_reflection:
        answer = reflection.text.strip() or render_prompt(prompts.NO_OBJECTIVES_LEFT)
        before = [HumanMessage(first.text), AIMessage(answer)]
    behind, most = [*before, question], answer_limit(context, judge, model, _WORD)
    settings = _make_settings(context, speaker, judge, most, judge.temperature)
    found = await _ask_in_text(context, speaker, model, behind, settings)
    text = found.answer.text
    complete = yes_or_no(text)
    if complete is None and not is_last(context, judge, found.answer):
        return await record_unreadable(context, found, [], speaker.name)
    verdict = Verdict(
        speaker=speaker.name,
        complete=complete is True,
        objectives_left=() if complete else (reflection.text,),
        readable=complete is not None,
    )
    return await _record_answer(context, found, words, text, NOBODY, verdict)


async def _record_answer(
    context: NodeContext,
    found: ModelAnswer[Any],
    question: str,
    text: str,
    audience: tuple[str, ...],
    verdict: Verdict | None,
) -> dict[str, Any]:
    """Record a question and its answer, with a verdict unless it is the first of two questions."""
    number = len(context.log) + len(found.new)
    speaker = context.turn.speaker
    about = Reflection(
        speaker=speaker,
        audience=audience,
        verdict=verdict,
        thought=get_thought(found.answer),
    )
    lines = [
        _make_question(context, found, question, audience),
        make_message(number + 1, text, about, answer=found.answer),
    ]
    position = (
        record_phase(context.position, Phase.ASKED)
        if verdict is None
        else record_verdict(context, complete=verdict.complete)
    )
    return await context.step(position, [*found.new, *lines], found.usage)


def _make_question(
    context: NodeContext, found: ModelAnswer[Any], text: str, audience: tuple[str, ...]
) -> AnyMessage:
    """Return the log line of a question, placed before its answer."""
    about = JudgeQuestion(audience=audience)
    return make_message(len(context.log) + len(found.new), text, about)


async def _ask_in_text(
    context: NodeContext,
    speaker: Speaker,
    model: Model,
    behind: Sequence[BaseMessage],
    settings: CallSettings,
) -> ModelAnswer[None]:
    """Ask a question after the messages that the speaker sees."""

    async def ask(log: list[BaseMessage]) -> tuple[AIMessage, None]:
        answer = await model.answer(
            order_messages([*view_of(context, speaker, log, behind=behind), *behind]),
            settings,
            purpose=Reflection,
            speaker=speaker.name,
            tool_calling=speaker.tool_calling,
        )
        return answer, None

    most = settings.values.get("max_tokens")
    return await ask_model(context, speaker, model, ask, behind=behind, most=most)
