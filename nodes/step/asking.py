"""Asking a person: the one way to an interrupt, and to one clear sentence for a bad answer."""

from typing import Any

from langgraph.types import interrupt
from pydantic import ValidationError

from ...graphs.spec.questions import unfit


def ask(question: dict[str, Any], schema: Any) -> Any:  # noqa: ANN401  # a type, or what annotates one
    """Ask a person, and wait for the answer.

    It must be the first effect of its node: what stands before it runs again when the answer is
    there. What is to be done with the answer belongs into a step of its own, after that node: only
    with the next step is the answer safe from a kill, and is none of LangGraph's any more, which
    would give it to another question of the same step.

    An answer that does not fit is not recorded. LangGraph (measured with 1.2.22) does so only where
    ``schema`` refuses it: every check belongs in there, by a validator where a type does not say
    it. With a check after this call the same answer would come again at each resume, whatever a
    person says.
    """
    try:
        return interrupt(question, response_schema=schema)
    except ValidationError as error:
        raise unfit(error) from error
