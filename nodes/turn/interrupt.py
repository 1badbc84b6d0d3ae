"""Asking a person: the one way to an interrupt, and when the rules ask for a message."""

from typing import Any, NamedTuple

from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt, interrupt
from pydantic import TypeAdapter, ValidationError

from ...graphs.conversation.questions import (
    Asking,
    Because,
    describe_misfit,
    interrupt_payload,
    schema_of,
)
from ...graphs.log.messages import newest_calls
from ...graphs.log.viewpoint import newly_heard
from ...graphs.rules.met_ends import explain_guards
from ...graphs.rules.position import Leaving, Phase
from ...graphs.rules.turns import NextTurn, asking, asking_of_calls, meaning
from ...graphs.store.serializer import check_storable
from .node_context import NodeContext


def ask(
    question: dict[str, Any],
    schema: Any,  # noqa: ANN401  # a type, or what annotates one
    *,
    asks_again: bool,
) -> Any:  # noqa: ANN401  # what the schema makes of the answer
    """Ask a person, and wait for the answer.

    It must be the first effect of its node: what stands before it runs again when the answer is
    there. What is to be done with the answer belongs into a step of its own, after that node: only
    with the next step is the answer safe from a kill, and is none of LangGraph's any more, which
    would give it to another question of the same step.

    An answer that does not fit is not recorded. LangGraph (measured with 1.2.22) does so only where
    ``schema`` refuses it: every check belongs in there, by a validator where a type does not say
    it. With a check after this call the same answer would come again at each resume, whatever a
    person says. With ``asks_again`` the question is asked once more and says why, as a server's
    clients want it; else it is one error.
    """
    try:
        return interrupt(question, response_schema=schema)
    except ValidationError as error:
        problem = describe_misfit(error)
        if not asks_again:
            raise problem from error
    # It is the node's first question, so it keeps its id.
    again = Interrupt.from_ns(
        question | {"problem": str(problem)},
        get_config()["configurable"]["checkpoint_ns"],
        response_schema=TypeAdapter(schema).json_schema(),
    )
    raise GraphInterrupt((again,))


def describe_unstorable(asked: GraphInterrupt) -> Exception | None:
    """Give why what a tool or an agent of the user's own asks can't be stored while it waits."""
    try:
        for one in asked.args[0]:
            check_storable(one.value)
    except Exception as error:
        return error
    return None


async def ask_for_message(context: NodeContext) -> Leaving | str | None:
    """Ask the person who speaks for the speaker whose turn begins, if one is asked."""
    turn = NextTurn(context.turn.speaker, context.turn.stage)
    asked = asking(context.conversation, context.position, turn)
    if asked is None:
        if context.conversation.speaker(turn.speaker).human is None:
            return None
        brought = context.brought(turn.speaker)
        return None if brought is None else brought.text
    tallies = context.reader.tallies(context.log)
    why = explain_guards(context.conversation, context.position, tallies)
    if why and asked.because is Because.TURN:
        asked = asked._replace(because=Because.GUARD, why=why)
    return await _answer(context, asked)


class Interruption(NamedTuple):
    """What a person says to calls that wait."""

    speaker: str
    """Whom the person speaks for."""
    text: str
    """What is said, which interrupts them; empty where they are run."""


async def ask_about_calls(context: NodeContext) -> Leaving | Interruption | None:
    """Ask the person who is to see the calls that wait, if there is one."""
    asked = asking_of_calls(context.conversation, context.position, context.turn.speaker)
    if asked is None:
        return None
    found = await _answer(context, asked)
    return found if isinstance(found, Leaving) else Interruption(asked.speaker, found)


async def _answer(context: NodeContext, asked: Asking) -> Leaving | str:
    """Ask, and say what the answer means; empty where something else replies."""
    brought = context.brought(asked.speaker)
    if brought is not None:
        return meaning(asked, brought.text) or ""
    heard = newly_heard(context.conversation, context.log, asked.speaker)
    calls = newest_calls(context.log).tool_calls if context.position.phase is Phase.CALLED else ()
    own = context.conversation.speaker(asked.speaker).task
    task = "\n\n".join(filter(None, [context.task, own]))
    question = interrupt_payload(asked, task, heard, calls)
    again = context.resources.asks_again
    found = meaning(asked, ask(question, schema_of(asked.empty), asks_again=again))
    if context.resources.written is not None:
        # LangGraph does not wait for it: a kill after this would have the person asked again.
        await context.resources.written()
    return found or ""
