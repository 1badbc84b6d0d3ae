"""Verdicts of speakers about their own tasks.

Each verdict is one call with a schema, or two questions for models without structured output. An
unreadable verdict is requested again. If it stays unreadable, it counts as not complete and is
recorded as unreadable.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Self

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import BeforeValidator, Field, model_validator

from ...graphs.conversation.judges import VERDICT_TEMPERATURE, Judge, SeparateJudge, Verdict
from ...graphs.log.messages import metadata
from ...graphs.log.metadata import NOBODY, JudgeQuestion, Reflection, Speech
from ...graphs.log.viewpoint import order_messages
from ...graphs.prompts import prompts
from ...graphs.rules.position import Phase
from ...graphs.rules.transitions import record_phase, record_unread_verdict, record_verdict
from ...graphs.speakers.reply_parts import StopCause
from ...graphs.speakers.speaker import SPEAKER_TEMPERATURE
from ...graphs.speakers.structured_answers import OwnAnswer
from ..models.answers import get_thought
from ..models.model import Model
from ..models.settings import CallSettings
from ..models.stops import stop_of
from ..turn.long_histories import ask_speaker
from ..turn.node_context import NodeContext
from ..turn.prompt import PromptAdditions, view_of
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
    context: NodeContext, answer: AIMessage, speaker: str | None
) -> dict[str, Any]:
    """Record an unreadable answer."""
    about = Reflection(
        speaker=speaker,
        audience=NOBODY,
        problem=prompts.UNREADABLE,
        thought=get_thought(answer),
    )
    context.add(answer.text, about, answer)
    return await context.step(record_unread_verdict(context))


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
    model = await context.model(context.speaker.model)
    judge = context.conversation.judge
    assert isinstance(judge, Judge)  # noqa: S101  # a separate judge has its own module
    if judge.form == "structured":
        return await _ask_with_schema(context, model, judge)
    if (left := _find_first_answer(context)) is None:
        return await _ask_what_is_left(context, model, judge)
    return await _ask_if_complete(context, model, judge, left)


def _make_settings(
    context: NodeContext,
    judge: Judge,
    most: int | None,
    temperature: float | str | None,
    default: float = VERDICT_TEMPERATURE,
) -> CallSettings:
    # The speaker's stop texts and output limit are for its messages; a verdict has its own form.
    own = context.speaker.model_settings.model_copy(
        update={"temperature": temperature, "stop": (), "max_tokens": judge.max_tokens}
    )
    return context.settings(context.path_of("model_settings"), own, default, most)


def _find_audience(context: NodeContext) -> tuple[str, ...]:
    return (context.turn.speaker,) if context.speaker.keep_self_reflection else NOBODY


async def _ask_with_schema(context: NodeContext, model: Model, judge: Judge) -> dict[str, Any]:
    words = context.conversation.render_prompt(prompts.JUDGE_OWN_TASK)
    additions = PromptAdditions(last=[HumanMessage(phrase_question(context, words))])
    most = answer_limit(context, judge, model, _STRUCTURED)
    speaker = context.speaker

    async def ask() -> tuple[AIMessage, Judgement | None]:
        return await model.answer_by_schema(
            _build_prompt(context, additions),
            Judgement,
            _make_settings(context, judge, most, judge.temperature),
            purpose=Reflection,
            instead='judge.form = "two_questions"',
            speaker=speaker.name,
            tool_calling=speaker.tool_calling,
        )

    answer, judgement = await ask_speaker(context, model, ask, additions, most=most)
    if judgement is None:
        verdict = Verdict(speaker=speaker.name, complete=False, readable=False)
        text = str(answer.text)
    else:
        left = tuple(judgement.objectives_left)
        verdict = Verdict(speaker=speaker.name, complete=judgement.complete, objectives_left=left)
        # The verdict in words, as the speaker itself would say it.
        none_left = prompts.NO_OBJECTIVES_LEFT if judgement.complete else prompts.TASK_NOT_COMPLETE
        said = prompts.OBJECTIVES_LEFT if left else none_left
        text = context.conversation.render_prompt(said, objectives="; ".join(left))
    # An unreadable answer has no use in the speaker's view.
    audience = _find_audience(context) if verdict.readable else NOBODY
    context.add(words, JudgeQuestion(audience=audience))
    if judgement is None and not is_last(context, judge, answer):
        return await record_unreadable(context, answer, speaker.name)
    return await _record_answer(context, answer, text, audience, verdict)


def _build_prompt(context: NodeContext, additions: PromptAdditions) -> list[BaseMessage]:
    return order_messages([*view_of(context, additions), *additions.last])


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


async def _ask_what_is_left(context: NodeContext, model: Model, judge: Judge) -> dict[str, Any]:
    words = context.conversation.render_prompt(prompts.LIST_OBJECTIVES_LEFT)
    most = answer_limit(context, judge, model, _LEFT)
    own = context.speaker.model_settings.temperature
    settings = _make_settings(context, judge, most, own, SPEAKER_TEMPERATURE)
    answer = await _ask_in_text(context, model, [HumanMessage(words)], settings)
    audience = _find_audience(context)
    context.add(words, JudgeQuestion(audience=audience))
    return await _record_answer(context, answer, answer.text, audience, None)


async def _ask_if_complete(
    context: NodeContext, model: Model, judge: Judge, left: tuple[BaseMessage, BaseMessage]
) -> dict[str, Any]:
    first, reflection = left
    render_prompt = context.conversation.render_prompt
    words = render_prompt(prompts.IS_TASK_COMPLETE)
    # Kept reflections are in the view already; others are shown for this question only.
    before: list[BaseMessage] = []
    if not context.speaker.keep_self_reflection:
        shown = reflection.text.strip() or render_prompt(prompts.NO_OBJECTIVES_LEFT)
        before = [HumanMessage(first.text), AIMessage(shown)]
    most = answer_limit(context, judge, model, _WORD)
    settings = _make_settings(context, judge, most, judge.temperature)
    asked = [*before, HumanMessage(phrase_question(context, words))]
    answer = await _ask_in_text(context, model, asked, settings)
    complete = yes_or_no(answer.text)
    if complete is None and not is_last(context, judge, answer):
        return await record_unreadable(context, answer, context.turn.speaker)
    verdict = Verdict(
        speaker=context.turn.speaker,
        complete=complete is True,
        objectives_left=() if complete else (reflection.text,),
        readable=complete is not None,
    )
    context.add(words, JudgeQuestion(audience=NOBODY))
    return await _record_answer(context, answer, answer.text, NOBODY, verdict)


async def _record_answer(
    context: NodeContext,
    answer: AIMessage,
    text: str,
    audience: tuple[str, ...],
    verdict: Verdict | None,
) -> dict[str, Any]:
    """Record an answer, with a verdict unless it is the first of two answers."""
    about = Reflection(
        speaker=context.turn.speaker,
        audience=audience,
        verdict=verdict,
        thought=get_thought(answer),
    )
    context.add(text, about, answer)
    return await context.step(
        record_phase(context.position, Phase.ASKED)
        if verdict is None
        else record_verdict(context, complete=verdict.complete)
    )


async def _ask_in_text(
    context: NodeContext, model: Model, last: Sequence[BaseMessage], settings: CallSettings
) -> AIMessage:
    """Ask a question after the messages that the speaker sees."""
    additions, speaker = PromptAdditions(last=last), context.speaker

    async def ask() -> tuple[AIMessage, None]:
        answer = await model.answer(
            _build_prompt(context, additions),
            settings,
            purpose=Reflection,
            speaker=speaker.name,
            tool_calling=speaker.tool_calling,
        )
        return answer, None

    most = settings.values.get("max_tokens")
    answer, _ = await ask_speaker(context, model, ask, additions, most=most)
    return answer
