"""The specification of a test by a simulated user, its ends and its verdicts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from ..common.data import (
    Accepts,
    Cap,
    DistinctNames,
    ModelName,
    Spec,
    Temperature,
    Text,
    check_distinct,
    default,
)
from ..conversation.conversation import Conversation
from ..conversation.judges import MOST_CRITERIA, Finding
from ..kinds.simulation import simulation
from .script import Step, check_order, count_rounds

EndKind: TypeAlias = Literal[
    "done",
    "gave_up",
    "handed_over",
    "stopped",
    "unfinished",
    "script_finished",
    "script_failed",
]
"""The ways in which a simulation ends, as in `Ending.kind`."""


_WORDS: Final[Mapping[EndKind, str]] = {
    "done": "the user's goal is met",
    "gave_up": "the user gave up",
    "handed_over": "the agent passed the user to a person",
    "script_finished": "the script is finished",
    "script_failed": "the script failed",
}


class Scenario(Spec):
    """A test of an agent by one simulated user.

    Raises:
        SpecError: A field is missing, unknown or wrong; names it.
    """

    goal: Text = Field(kw_only=False)
    """The user's private task, written to the user: "You want to …". The agent does not see it."""
    persona: Text | None = None
    """A description of the user and its style. No description if None."""
    knows: Text | None = None
    """The information that the user may reveal when it is needed. No information if None."""
    must_not_say: Text | None = None
    """The information that the user must not reveal. No such rule if None."""
    language: Text | None = None
    """The language in which the user writes. The model chooses if None."""
    tools: DistinctNames = ()
    """The tools that the user may call: registered names, or in Python the tools themselves."""
    criteria: Accepts[
        Annotated[tuple[Text, ...], AfterValidator(check_distinct)], Sequence[str]
    ] = Field(default=default(()), max_length=MOST_CRITERIA)
    """Statements about the conversation that a judge checks once, after the end."""
    checks: Accepts[tuple[Callable[..., Any], ...], Sequence[Callable[..., Any]]] = default(())
    """Functions, sync or async, that receive the `SimulationResult` after the end. A check is met
    if it returns True or None, and not met if it returns False or raises an AssertionError."""
    expected_ends: Accepts[tuple[EndKind, ...], Sequence[EndKind]] = Field(
        default=default(("done",)), min_length=1
    )
    """The kinds of end with which the simulation can pass: ``done``, ``gave_up``, ``handed_over``,
    ``script_finished``, or ``stopped``, which is any cap or guard. By default ``done`` and, for a
    scenario with a script, ``script_finished``."""
    max_iterations: Cap = 10
    """Maximum number of rounds. A script may need more if this field is not set."""
    script: Accepts[tuple[Step, ...] | None, Sequence[Step] | None] = default(None)
    """The steps of the conversation, in order: ``user()``, ``agent()``, ``check()``, ``proceed()``
    and ``judge()`` of `duologue.graphs.scenarios`. If the conversation ends before the last turn,
    the other turns are left out. If None, the simulated user and the agent talk to the end."""
    model: ModelName | None = None
    """The model of the simulated user. The option ``model`` of `simulate` if None."""
    temperature: Temperature = None
    """The temperature of the simulated user. 0.2 if None."""

    if TYPE_CHECKING:

        def __init__(self, goal: str, **fields: Any) -> None: ...

    @model_validator(mode="after")
    def _has_possible_script(self) -> Self:
        if self.script is None:
            return self
        check_order(self.script, has_criteria=bool(self.criteria))
        rounds = count_rounds(self.script)
        if "max_iterations" in self.model_fields_set and self.max_iterations < rounds:
            raise ValueError(
                f"max_iterations: the script has {rounds} rounds, more than {self.max_iterations}; "
                "raise it or shorten the script"
            )
        return self

    @property
    def accepted_ends(self) -> tuple[EndKind, ...]:
        """Return the kinds of end with which the simulation can pass.

        They are ``expected_ends``. The end of a script is one of them if that field is not set.
        """
        if self.script is None or "expected_ends" in self.model_fields_set:
            return self.expected_ends
        return (*self.expected_ends, "script_finished")

    def conversation(self, agent: Any) -> Conversation:  # noqa: ANN401  # any Runnable or name
        """Return the conversation of the simulated user with an agent.

        Args:
            agent: A Runnable, or the name of a registered agent.
        """
        own = {name: getattr(self, name) for name in _OF_CONVERSATION}
        if self.script is not None:
            # The cap must not end the conversation before the script does.
            own["max_iterations"] = max(self.max_iterations, count_rounds(self.script) + 1)
        user = {"name": "User", "model": self.model}
        return simulation(self.goal, agent=agent, user=user, **own)


_OF_CONVERSATION: Final = (
    *("persona", "knows", "must_not_say", "language", "tools", "criteria", "max_iterations"),
    "temperature",
)


@dataclass(frozen=True)
class Ending:
    """The end of a simulation. ``str(ending)`` is a short description."""

    kind: EndKind
    """The kind of end: ``done``, ``gave_up``, ``handed_over``, ``stopped`` by a cap or a guard,
    ``unfinished`` if the session waits for a person, ``script_finished`` if the script's last turn
    was played, or ``script_failed`` if a check or a criterion in the script was not met."""
    stop_reason: str | None
    """The reason of the session's end, such as ``"max_iterations"``. None if it has not ended."""
    text: str
    """The user's reason for giving up; for ``stopped``, the cause; for ``script_failed``, the step
    and its verdict. Otherwise empty."""

    def __str__(self) -> str:
        words = _WORDS.get(self.kind, self.kind)
        return f"{words}: {self.text}" if self.text else words


@dataclass(frozen=True)
class JudgeOpinion:
    """The decision of one of two judges on a criterion."""

    judge: str
    """The name of the judge's model."""
    finding: Finding
    """The decision."""
    reason: str
    """The reason."""
    message: int | None = None
    """The number of the message that shows it. None if there is none."""


@dataclass(frozen=True)
class ScenarioVerdict:
    """The verdict about one criterion or check."""

    name: str
    """The criterion, or the name of the check."""
    finding: Finding
    """The decision: met, not met or inconclusive."""
    reason: str
    """The reason. Empty for a check that is met."""
    message: int | None = None
    """The number of the message that shows it, as in the report. None if there is none."""
    opinions: tuple[JudgeOpinion, ...] = ()
    """The decisions of two judges. Empty if one judge was asked."""

    def __str__(self) -> str:
        # A criterion is a sentence. A colon does not follow its period.
        said = f"{self.name.rstrip(' .')}: {self.reason}" if self.reason else self.name
        at = "" if self.message is None else f" (message {self.message})"
        return f"[{self.finding.in_words}] {said}{at}"
