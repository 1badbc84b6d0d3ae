"""Asking a judge once more where its verdict can't be read: a step of its own."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AnyMessage

from ...graphs.log.messages import make_message
from ...graphs.log.metadata import NOBODY, Reflection
from ...graphs.rules.position import Phase
from ...graphs.rules.transitions import unread
from ...graphs.spec.judges import Judge, SeparateJudge
from ..models.answers import thought_of
from ..models.model import Model
from ..prompts import judging as prompts
from ..step.resources import Moment
from ..turn.prompt import Asked

_MORE = 8
"""How many times longer the second answer may be: a model that thinks needs room for it."""


def is_second(moment: Moment) -> bool:
    """Whether it is asked once more."""
    return moment.position.phase is Phase.UNREAD


def as_asked(moment: Moment, question: str) -> str:
    """Give a question as it is asked now."""
    if not is_second(moment):
        return question
    return moment.conversation.render_prompt(prompts.RETRY_FORMAT, question=question)


def longest(moment: Moment, judge: Judge | SeparateJudge, model: Model, tokens: int) -> int | None:
    """Give the longest answer, in tokens, by what its form needs. None: the model's own."""
    if judge.max_tokens is not None:
        return judge.max_tokens
    return model.adapter.accepted_limit(tokens * (_MORE if is_second(moment) else 1))


async def asked_again(
    moment: Moment, found: Asked[Any], before: Sequence[AnyMessage], speaker: str | None
) -> dict[str, Any]:
    """Write down an answer that can't be read, behind what stands before it."""
    answer = found.answer
    about = Reflection(
        speaker=speaker,
        audience=NOBODY,
        problem=prompts.UNREADABLE,
        thought=thought_of(answer),
    )
    place = len(moment.log) + len(found.new) + len(before)
    new = [*found.new, *before, make_message(place, answer.text, about, answer=answer)]
    return await moment.step(unread(moment.conversation, moment.position), new, found.usage)
