"""Who speaks next, where that is chosen: by a registered function or by a moderator model.

A choice that can't be read, or is nobody's name, is recorded as such; the next in order speaks.
"""

from collections.abc import Sequence
from typing import Any, Literal

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from pydantic import BaseModel, ConfigDict, create_model

from duologue.graphs.data import listing
from duologue.graphs.end_chat import chose
from duologue.graphs.errors import SpecError
from duologue.graphs.judging import ByFunction, Moderator
from duologue.graphs.log import NOBODY, Kind, Line, said
from duologue.graphs.usage import Usage
from duologue.graphs.viewpoint import overheard
from duologue.nodes import prompts
from duologue.nodes.models import Model
from duologue.nodes.resources import Moment, heard
from duologue.tools.registry import call

UNREADABLE = "This names nobody who could speak next."
"""What is recorded of a choice that can't be read."""


async def choose(moment: Moment) -> dict[str, Any]:
    """Choose who speaks next.

    Args:
        moment: The session's state.

    Returns:
        The update of the state.

    Raises:
        ModelError: The model did not answer; the session can be resumed.
        SpecError: The function failed, or names nobody.
    """
    order = moment.conversation.turn_order
    if isinstance(order, ByFunction):
        name = await _called(moment, order.name)
        return await _chosen(moment, name, name, moment.usage)
    assert isinstance(order, Moderator)  # noqa: S101  # in a round-robin nobody chooses
    # A moderator gives the word to somebody else.
    names = [name for name in moment.conversation.names if name != moment.position.speaker]
    if len(names) == 1:
        return await _chosen(moment, names[0], names[0], moment.usage)
    model = await moment.model(order.model)
    answer, found = await _asked(moment, order, model, names)
    return await _chosen(moment, answer.text, found, moment.used(model, answer))


async def _called(moment: Moment, function: str) -> str:
    names = moment.conversation.names
    order = moment.resources.registry.orders[function]
    name = await call("order", function, order, heard(moment.log), names)
    if name not in names:
        raise SpecError(f"the order {function!r} chose {name!r}; there are {listing(names)}")
    return name


async def _asked(
    moment: Moment, order: Moderator, model: Model, names: Sequence[str]
) -> tuple[AIMessage, str | None]:
    parameters: dict[str, object] = {"temperature": order.temperature}
    question = prompts.filled(prompts.WHO_IS_NEXT, names=", ".join(names))
    if order.form == "word":
        question = prompts.filled(prompts.NAME_ALONE, question=question)
        answer = await model.answer(
            _prompt(moment, order, question), parameters, purpose=Kind.CHOICE
        )
        return answer, read_name(answer.text, names)
    answer, found = await model.structured(
        _prompt(moment, order, question),
        _schema(names),
        parameters,
        purpose=Kind.CHOICE,
        instead='turn_order.form = "word"',
    )
    return answer, None if found is None else str(found.model_dump()["next_speaker"])


def _prompt(moment: Moment, order: Moderator, question: str) -> list[BaseMessage]:
    system = [
        order.prompt or prompts.MODERATOR,
        prompts.filled(prompts.MEMBERS, names=", ".join(moment.conversation.names)),
    ]
    if moment.task is not None:
        system.append(f"The task: {moment.task}")
    transcript = overheard(moment.log, private=False) or prompts.NOTHING_SAID
    asked = prompts.filled(prompts.HEARD, transcript=transcript, question=question)
    return [SystemMessage("\n\n".join(system)), HumanMessage(asked)]


def _schema(names: Sequence[str]) -> type[BaseModel]:
    one_of = Literal[tuple(names)]  # type: ignore[valid-type]  # the names are known only now
    fields: dict[str, Any] = {"next_speaker": (one_of, ...)}
    return create_model("Choice", __config__=ConfigDict(extra="forbid"), **fields)


def read_name(text: str, names: Sequence[str]) -> str | None:
    """Read a moderator's answer, which must be a name and nothing else.

    Args:
        text: The answer.
        names: Who may be named.

    Returns:
        The name, whatever its case and the signs around it. None for anything else.
    """
    plain = text.strip(" \t\r\n*_`\"'.:!#>").casefold()
    return next((name for name in names if name.casefold() == plain), None)


async def _chosen(
    moment: Moment, text: str, name: str | None, usage: dict[str, Usage]
) -> dict[str, Any]:
    position = chose(moment.conversation, moment.position, name)
    about = Line(
        kind=Kind.CHOICE,
        audience=NOBODY,
        to=position.chosen,
        problem=None if name is not None else UNREADABLE,
    )
    return await moment.step(position, [said(len(moment.log), text, about)], usage)
