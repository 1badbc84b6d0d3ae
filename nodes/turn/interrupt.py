"""Questions to a person: the only function that interrupts a session, and the rules for asking."""

from typing import Any, NamedTuple

from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt, interrupt
from pydantic import TypeAdapter, ValidationError

from ...graphs.common.content import Content
from ...graphs.conversation.questions import Asking, Because, describe_misfit, schema_of
from ...graphs.log.memory import select_heard
from ...graphs.rules.met_ends import explain_guards
from ...graphs.rules.position import Leaving
from ...graphs.rules.questions import question_payload
from ...graphs.rules.turns import Dialogue, meaning
from ...graphs.store.serializer import check_storable
from .node_context import NodeContext


def ask(
    question: dict[str, Any],
    schema: Any,  # noqa: ANN401  # a type, or an annotation
    *,
    asks_again: bool,
) -> Any:  # noqa: ANN401  # the answer as the schema parses it
    """Ask a person, and wait for the answer.

    This must be the node's first effect: any code before it runs again when the answer
    arrives. The answer must take effect in a separate step, after that node. An answer is safe from
    a kill only with the next step; until then LangGraph could use it for another question of the
    same step.

    An answer that does not fit must not be recorded. LangGraph (measured with 1.2.22) records every
    answer that ``schema`` accepts. Therefore every check belongs in the schema, in a validator if
    no type expresses it. If a check followed this call, each resume would repeat the recorded
    answer, whatever a person enters. With ``asks_again``, the question is asked again and contains
    the problem, as the clients of a server expect. Otherwise the answer raises an error.
    """
    try:
        return interrupt(question, response_schema=schema)
    except ValidationError as error:
        problem = describe_misfit(error)
        if not asks_again:
            raise problem from error
    # The node's first question keeps its id.
    again = Interrupt.from_ns(
        question | {"problem": str(problem)},
        get_config()["configurable"]["checkpoint_ns"],
        response_schema=TypeAdapter(schema).json_schema(),
    )
    raise GraphInterrupt((again,))


def describe_unstorable(asked: GraphInterrupt) -> Exception | None:
    """Return the error if the question of a user's tool or agent cannot be stored, else None."""
    try:
        for one in asked.args[0]:
            check_storable(one.value)
    except Exception as error:
        return error
    return None


async def ask_for_message(context: NodeContext) -> Leaving | Content | None:
    """Ask the person who replies for the speaker whose turn begins, if the rules require it."""
    turn = context.turn
    asked = context.find_question(turn.speaker, turn.stage)
    if asked is None:
        if context.speaker.human is None:
            return None
        waiting = context.find_waiting_message(turn.speaker)
        return None if waiting is None else waiting.content
    why = explain_guards(context, context.session.reader.tallies(context.log))
    if why and asked.because is Because.TURN:
        asked = asked._replace(because=Because.GUARD, why=why)
    return await _ask_and_read(context, asked)


class Interruption(NamedTuple):
    """A person's answer about calls that wait."""

    speaker: str
    """The speaker that the person speaks for."""
    content: Content
    """The message that interrupts the calls. Empty if they may run."""


async def ask_about_calls(context: NodeContext) -> Leaving | Interruption | None:
    """Ask the person who sees the waiting calls, if there is one."""
    asked = context.find_question_of_calls(context.turn.speaker)
    if asked is None:
        return None
    found = await _ask_and_read(context, asked)
    return found if isinstance(found, Leaving) else Interruption(asked.speaker, found)


async def _ask_and_read(context: NodeContext, asked: Asking) -> Leaving | Content:
    """Ask a person and interpret the answer.

    The result is an empty text if the person says nothing: the speaker's next kind of reply is
    used, or the waiting calls run.
    """
    waiting = context.find_waiting_message(asked.speaker)
    if waiting is not None:
        return meaning(asked, waiting.content) or ""
    heard = select_heard(context.conversation, context.log, asked.speaker)
    dialogue = Dialogue(context.conversation, context.position, log=heard)
    question = question_payload(dialogue, context.task, asked)
    again = context.resources.serves_clients
    found = meaning(asked, ask(question, schema_of(asked.empty), asks_again=again))
    if context.resources.written is not None:
        # LangGraph does not wait for the write. A kill after this would repeat the question.
        await context.resources.written()
    return found or ""
