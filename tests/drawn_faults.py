"""Number of faults that a test draws, and the seed. No tests here."""

from random import Random


class Faults:
    """The random draws of a test of faults.

    Args:
        factor: Multiplier of the default number.
        seed: Seed of the draws.
    """

    def __init__(self, factor: float, seed: int) -> None:
        self._factor = factor
        self.seed = seed

    def times(self, count: int) -> int:
        """Return the number of repetitions from the default number; at least one."""
        return max(1, round(count * self._factor))

    def random(self, name: object = "") -> Random:
        """Return a separate source of random numbers for each name."""
        return Random(f"{self.seed} {name}")  # noqa: S311  # faults, no secrets
