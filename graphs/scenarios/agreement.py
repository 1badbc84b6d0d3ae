"""The agreement of two judges, as a pure function of their verdicts."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..conversation.judges import Finding
from .scenario import ScenarioVerdict


@dataclass(frozen=True)
class Agreement:
    """The agreement of two judges. ``str(agreement)`` is a short description."""

    count: int
    """Number of criteria that both have judged."""
    agreed: int
    """Number of criteria with the same decision."""
    kappa: float | None
    """Cohen's κ: 1 is full agreement, 0 is the agreement of chance. None if it is not defined,
    because both always decided the same."""

    def __str__(self) -> str:
        kappa = "not defined" if self.kappa is None else f"{self.kappa:.2f}"
        return f"the judges agree on {self.agreed} of {self.count} criteria (κ {kappa})"


def measure_agreement(verdicts: Iterable[ScenarioVerdict]) -> Agreement | None:
    """Return the agreement of two judges on the criteria of one or many simulations.

    Args:
        verdicts: The verdicts. Those of checks and of a single judge are left out.

    Returns:
        The agreement. None if no criterion has two judges.
    """
    pairs = [tuple(one.finding for one in verdict.opinions) for verdict in verdicts]
    pairs = [pair for pair in pairs if len(pair) == 2]  # two judges
    if not pairs:
        return None
    count, agreed = len(pairs), sum(one is other for one, other in pairs)
    firsts, seconds = (Counter(found) for found in zip(*pairs, strict=True))
    # Equals 1 if each judge always decided the same.
    by_chance = sum(firsts[one] * seconds[one] for one in Finding) / count**2
    kappa = None if by_chance == 1 else (agreed / count - by_chance) / (1 - by_chance)
    return Agreement(count, agreed, kappa)
