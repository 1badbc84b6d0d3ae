"""Asking a person: the one way to an interrupt, and to one clear sentence for a bad answer."""

from typing import Any

from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt, interrupt
from pydantic import TypeAdapter, ValidationError

from ...graphs.spec.questions import unfit
from ...graphs.store.serializer import check_storable


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
        problem = unfit(error)
        if not asks_again:
            raise problem from error
    # It is the node's first question, so it keeps its id.
    again = Interrupt.from_ns(
        question | {"problem": str(problem)},
        get_config()["configurable"]["checkpoint_ns"],
        response_schema=TypeAdapter(schema).json_schema(),
    )
    raise GraphInterrupt((again,))


def unstorable(asked: GraphInterrupt) -> Exception | None:
    """Give why what a tool or an agent of the user's own asks can't be stored while it waits."""
    try:
        for one in asked.args[0]:
            check_storable(one.value)
    except Exception as error:
        return error
    return None
