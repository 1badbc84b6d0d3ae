"""The node for decisions after a turn: predicates, task completion and the next speaker.

A function, a moderator model or a speaker chooses the next speaker. If a moderator's choice can't
be read, or is not a speaker's name, the moderator is asked once more. If the second choice can't be
read either, the log records that, and the next speaker in order speaks.
"""

from collections.abc import Sequence
from typing import Any, Literal

from langchain_core.messages import AIMessage, BaseMessage
from pydantic import create_model

from ..graphs.common.errors import SpecError, list_names
from ..graphs.conversation.judges import (
    VERDICT_TEMPERATURE,
    Handoff,
    Moderator,
    SeparateJudge,
    TurnFunction,
)
from ..graphs.log.metadata import NOBODY, SpeakerChoice
from ..graphs.log.state import State
from ..graphs.prompts import prompts
from ..graphs.rules.position import Phase
from ..graphs.rules.transitions import record_choice, record_phase
from ..graphs.rules.turns import next_speaker
from ..graphs.speakers.call_settings import ModelSettings
from ..graphs.speakers.structured_answers import OwnAnswer
from ..graphs.text.names import read_name
from ..tools.registry.functions import call
from .judge.self_judge import judge_yourself
from .judge.separate_judge import ask_observer, judge_criteria
from .models.answers import get_thought
from .models.model import Model
from .turn.node_context import NodeContext, Resources, heard_messages


async def completion_judge(state: State, resources: Resources) -> dict[str, Any]:
    """Evaluate predicates, judge whether a task is complete, or choose the next speaker."""
    context = await NodeContext.read(state, resources)
    if (repaired := await context.repair_position()) is not None:
        return repaired
    due, judge = context.turn.due, context.conversation.judge
    if due is Phase.CHECKED:
        # In a separate step, so that the speaker's message is stored even if a predicate raises an
        # error.
        return await context.step(record_phase(context.position, Phase.CHECKED))
    if due is Phase.CHOSEN:
        return await choose(context)
    if isinstance(judge, SeparateJudge):
        return await judge_criteria(context, judge)
    return await judge_yourself(context)


UNREADABLE_CHOICE = "This is not the name of a speaker who can be next."
"""The problem that the log stores with a choice that can't be read."""


async def choose(context: NodeContext) -> dict[str, Any]:
    """Choose the next speaker, and record the choice."""
    order = context.conversation.turn_order
    if isinstance(order, TurnFunction):
        name = await _call_order(context, order.name)
        return await _record_choice(context, AIMessage(name), name)
    if isinstance(order, Handoff):
        name = next_speaker(context.conversation, context.turn.speaker, context.log)
        return await _record_choice(context, AIMessage(name), name)
    assert isinstance(order, Moderator)  # noqa: S101  # no one chooses in a round-robin
    # A moderator never chooses the current speaker.
    names = [name for name in context.conversation.names if name != context.position.speaker]
    if len(names) == 1:
        return await _record_choice(context, AIMessage(names[0]), names[0])
    model = await context.model(order.model)
    return await _record_choice(context, *await _ask_moderator(context, order, model, names))


async def _call_order(context: NodeContext, function: str) -> str:
    names = context.conversation.names
    order = context.resources.registry.order(function)
    spoken = heard_messages(context.log)
    if not spoken:
        # All messages were removed, and functions may look at the newest message.
        return context.next_in_order()
    name = await call("order", function, order, spoken, names)
    if name not in names:
        raise SpecError(
            f"the order {function!r} chose {name!r}, who is not a speaker; return one of "
            f"{list_names(names)}"
        )
    return name


async def _ask_moderator(
    context: NodeContext, order: Moderator, model: Model, names: Sequence[str]
) -> tuple[AIMessage, str | None]:
    own = ModelSettings(temperature=order.temperature)
    settings = context.settings("turn_order", own, VERDICT_TEMPERATURE)
    render_prompt, known = context.conversation.render_prompt, ", ".join(names)
    question = render_prompt(prompts.CHOOSE_NEXT_SPEAKER, names=known)
    if order.form == "word":
        question = render_prompt(prompts.NEXT_SPEAKER_NAME_ONLY, question=question)
    if context.position.phase is Phase.UNCHOSEN:
        question = render_prompt(prompts.RETRY_CHOICE, question=question, names=known)
    system = _build_system_prompt(context, order)
    # Users number the speakers in their own prompts.
    listed = "\n".join((*system, question))

    async def ask(prompt: list[BaseMessage]) -> tuple[AIMessage, str | None]:
        if order.form == "word":
            answer = await model.answer(prompt, settings, purpose=SpeakerChoice)
        else:
            answer, _ = await model.answer_by_schema(
                prompt,
                _build_schema(names),
                settings,
                purpose=SpeakerChoice,
                instead='turn_order.form = "word"',
            )
        return answer, read_name(answer.text, names, context.conversation.names, listed=listed)

    return await ask_observer(context, model, system, question, ask, private=False)


def _build_system_prompt(context: NodeContext, order: Moderator) -> list[str]:
    render_prompt = context.conversation.render_prompt
    system = [
        order.prompt or render_prompt(prompts.MODERATOR),
        render_prompt(prompts.SPEAKER_NAMES, names=", ".join(context.conversation.names)),
    ]
    return (
        system
        if context.task is None
        else [*system, render_prompt(prompts.CONVERSATION_TASK, task=context.task)]
    )


def _build_schema(names: Sequence[str]) -> type[OwnAnswer]:
    one_of = Literal[tuple(names)]  # type: ignore[valid-type]  # the names are known only now
    fields: dict[str, Any] = {"next_speaker": (one_of, ...)}
    return create_model("Choice", __base__=OwnAnswer, **fields)


async def _record_choice(
    context: NodeContext, answer: AIMessage, name: str | None
) -> dict[str, Any]:
    if name is None and context.position.phase is not Phase.UNCHOSEN:
        position = record_phase(context.position, Phase.UNCHOSEN)
    else:
        position = record_choice(context, name)
    about = SpeakerChoice(
        audience=NOBODY,
        to=position.chosen,
        problem=None if name is not None else UNREADABLE_CHOICE,
        thought=get_thought(answer),
    )
    context.add(answer.text, about, answer)
    return await context.step(position)
