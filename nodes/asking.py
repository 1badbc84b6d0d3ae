"""Asking a person: the one way to an interrupt, and to one clear sentence for a bad answer."""

from typing import Any

from langgraph.config import get_config
from langgraph.types import interrupt
from pydantic import ValidationError

from duologue.graphs.errors import AnswerError


def ask(question: dict[str, Any], schema: Any) -> Any:  # noqa: ANN401  # a type, or what annotates one
    """Ask a person, and wait for the answer.

    It must be the first effect of its node, or of its task: what stands before it runs again when
    the answer is there. An answer that does not fit is not recorded, which LangGraph (measured with
    1.2.22) promises of nothing but what ``schema`` checks: so every check belongs into it, by a
    validator where a type does not say it. A check behind this call would come too late: the answer
    would be given again at each resume, whatever a person says.

    Args:
        question: What is asked, as plain values.
        schema: What the answer must be: anything that pydantic makes a schema of.

    Returns:
        The answer, as what ``schema`` makes of it.

    Raises:
        AnswerError: It does not fit; says why. The question stays open.
        langgraph.errors.GraphInterrupt: There is none yet.
    """
    try:
        answer = interrupt(question, response_schema=schema)
    except ValidationError as error:
        raise unfit(error) from error
    _forget_spent_answer()
    return answer


def unfit(error: ValidationError) -> AnswerError:
    """Make one clear sentence of why an answer does not fit.

    Args:
        error: What pydantic found.
    """
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(map(str, first["loc"]))
    text = first["msg"].removeprefix("Value error, ")
    where = f"{field}: {text[:1].lower()}{text[1:]}" if field else text
    return AnswerError(f"the answer does not fit, and the question stays open: {where}")


def _forget_spent_answer() -> None:
    """Drop an answer of the session that this node has had already.

    What ``Command(resume=answer)`` gives (an answer to no interrupt by its id) stays stored up to
    the next checkpoint, and LangGraph gives it to the next interrupt of the same step that has none
    of its own: a decision on a call would then be the answer to what its tool asks. There is no
    public way to it; where LangGraph has another one, nothing happens here and a test fails.
    """
    pad = get_config()["configurable"].get("__pregel_scratchpad")
    if pad is not None and pad.resume and pad.get_null_resume(False) == pad.resume[-1]:
        pad.get_null_resume(True)
