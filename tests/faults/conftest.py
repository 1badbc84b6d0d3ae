"""How many faults are drawn, and from which seed: for all tests in this folder."""

from random import Random

import pytest


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


@pytest.fixture
def faults(request: pytest.FixtureRequest) -> Faults:
    """How many faults this test draws; see `--faults` and `--faults-seed`."""
    config = request.config
    return Faults(config.getoption("--faults"), config.getoption("--faults-seed"))
