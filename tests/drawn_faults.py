"""How many faults a test draws, and from which seed. No tests here."""

from random import Random


class Faults:
    """What is drawn in a test of faults.

    Args:
        factor: How many times as much as by default.
        seed: Where drawing begins.
    """

    def __init__(self, factor: float, seed: int) -> None:
        self._factor = factor
        self.seed = seed

    def times(self, count: int) -> int:
        """How often something is done that is done `count` times by default; at least once."""
        return max(1, round(count * self._factor))

    def random(self, name: object = "") -> Random:
        """A source of random numbers of its own for each name."""
        return Random(f"{self.seed} {name}")  # noqa: S311  # faults, no secrets
