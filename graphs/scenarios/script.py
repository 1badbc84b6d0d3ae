"""Scripts of scenarios, as data: fixed and simulated turns, and checks between them."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt

from ..common.data import Kinded, Text, by_kind
from ..conversation.questions import is_exit


def _check_exit(text: str) -> str:
    if is_exit(text):
        raise ValueError(f"{text.strip()!r} alone leaves a conversation; write a whole sentence")
    return text


Line: TypeAlias = Annotated[Text, AfterValidator(_check_exit)]
"""The text of a fixed turn."""


class UserTurn(Kinded):
    """A turn of the user."""

    kind: Literal["user"] = "user"
    """The kind of step."""
    text: Line | None = None
    """The user's message. If None, the simulated user writes it."""


class AgentTurn(Kinded):
    """A turn of the agent."""

    kind: Literal["agent"] = "agent"
    """The kind of step."""
    text: Line | None = None
    """A fixed reply, which the agent then finds among its messages. If None, the agent replies."""


class CheckNow(Kinded):
    """A check in the middle of a conversation."""

    kind: Literal["check"] = "check"
    """The kind of step."""
    check: Callable[..., Any]
    """A function, as in `Scenario.checks`. It receives the result so far."""


class Proceed(Kinded):
    """Several rounds between the simulated user and the agent."""

    kind: Literal["proceed"] = "proceed"
    """The kind of step."""
    rounds: PositiveInt | None = None
    """Maximum number of replies of the agent. If None, the conversation continues to its end."""


class JudgeNow(Kinded):
    """A verdict about the criteria in the middle of a conversation."""

    kind: Literal["judge"] = "judge"
    """The kind of step."""


Step: TypeAlias = Annotated[
    Annotated[UserTurn | AgentTurn | CheckNow | Proceed | JudgeNow, Field(discriminator="kind")],
    BeforeValidator(by_kind),
]
"""A step of a script."""


def user(text: str | None = None) -> UserTurn:
    """Return a turn of the user.

    Args:
        text: The message. If None, the simulated user writes it.

    Raises:
        SpecError: The text is blank or only ``exit``.
    """
    return UserTurn(text=text)


def agent(text: str | None = None) -> AgentTurn:
    """Return a turn of the agent.

    Args:
        text: A fixed reply instead of the agent's. If None, the agent replies.

    Raises:
        SpecError: The text is blank or only ``exit``.
    """
    return AgentTurn(text=text)


def check(function: Callable[..., Any]) -> CheckNow:
    """Return a check that is called at this point of the conversation.

    If it is not met, the script and the simulation end.

    Args:
        function: The check, as in `Scenario.checks`. It receives the result so far.
    """
    return CheckNow(check=function)


def proceed(rounds: int | None = None) -> Proceed:
    """Return several simulated rounds.

    Args:
        rounds: Maximum number of replies of the agent. If None, the conversation continues to its
            end.

    Raises:
        SpecError: The number is below 1.
    """
    return Proceed(rounds=rounds)


def judge() -> JudgeNow:
    """Return a verdict about the criteria at this point of the conversation.

    If a criterion is not met, the script and the simulation end.
    """
    return JudgeNow()


def count_rounds(script: Sequence[Step]) -> int:
    """Return the number of rounds that a script needs, without a `proceed` to the end."""
    steps = [
        one.rounds if isinstance(one, Proceed) else isinstance(one, AgentTurn) for one in script
    ]
    return sum(one or 0 for one in steps)


def begins_with_agent(script: Sequence[Step]) -> bool:
    """Return whether the first step of a script is the agent's turn."""
    return isinstance(script[0], AgentTurn)


def check_order(script: Sequence[Step], *, has_criteria: bool) -> None:
    """Check that the turns of a script alternate, and that each step can be done at its place.

    Raises:
        ValueError: A step is at a wrong place; names it.
    """
    before: UserTurn | AgentTurn | Proceed | None = None
    for place, step in enumerate(script):
        problem = _find_problem(step, before, has_criteria=has_criteria)
        if problem:
            raise ValueError(f"script.{place}: {problem}")
        if isinstance(step, UserTurn | AgentTurn | Proceed):
            before = step
    if before is None:
        raise ValueError("script: it has no turn; add user(), agent() or proceed()")


def _find_problem(
    step: Step, before: UserTurn | AgentTurn | Proceed | None, *, has_criteria: bool
) -> str:
    """Return the reason why a step cannot follow the last turn, or an empty text."""
    match step, before:
        case AgentTurn(text=None), None:
            return "the agent has no message to answer; begin with user() or agent('…')"
        case AgentTurn(), AgentTurn() | Proceed():
            return "the agent replied last; add user() before it"
        case UserTurn(), UserTurn():
            return "the user spoke last; add agent() before it"
        case ((CheckNow() | JudgeNow()), None):
            return "nothing was said yet; put a turn before it"
        case JudgeNow(), _ if not has_criteria:
            return "there are no criteria to judge; set criteria, or use check(…)"
        case _, Proceed(rounds=None) if isinstance(step, UserTurn | Proceed):
            return "proceed() continues to the end; pass it a number of rounds"
    return ""
