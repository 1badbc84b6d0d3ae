"""The cells of a batch, and the order in which it runs them. All functions are pure.

The shuffled order is a permutation of the cells that is computed place by place, from the number of
values of each field and a seed. It covers the grid evenly, however early the batch stops:

- In the first k cells, two values of the same field occur equally often, or differ by one. The same
  holds for two combinations of values of the first fields: of the first two, the first three, and
  so on up to all of them. So no combination is tried again before all others have been tried.
- Pairs of values of other fields occur about as evenly as in a random order. A test measures 0.6
  times the unevenness of a random order, as a mean over grids.
- With a random seed, each cell is equally likely at each place of its trial. So the first k cells
  are a fair sample of a batch with one trial.

The order adds one field after the other. Suppose that the fields so far have P combinations, which
repeat every P places, and that the next field has n values. With g = gcd(P, n) and L = lcm(P, n) =
P * n / g, the value at place k is k + (u + k // L) mod g, modulo n. Here u depends only on which
block of n places k is in, counted within L places. Within such a block the sum in brackets is
constant, so each value occurs once. Within L places the pairs (k mod P, k mod n) are all different,
by the Chinese remainder theorem, and a pair is congruent modulo g. The shift selects the congruence
class, and k // L takes each shift once, so each of the P * n pairs occurs once. The function u is a
random permutation of the shifts for each g blocks; without it, equal factors of P and n would tie
the values of two fields together for L places. Finally, the values of each field are permuted.
"""

import json
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from math import gcd, prod
from typing import Final, NamedTuple

from pydantic import NonNegativeInt, PositiveInt

from ..common.data import Data
from ..store.batches import BatchRow


class _Step(NamedTuple):
    """The next field of the order, and the fields before it."""

    period: int
    """Number of combinations of the fields before it."""
    size: int
    """Number of values of the next field."""
    shared: int
    """The greatest common divisor of both."""
    span: int
    """The least common multiple of both."""
    values: Sequence[int]
    """The permutation of these values."""
    places: Sequence[int]
    """The inverse permutation."""
    seed: str
    """The seed of the shifts."""

    def shift(self, place: int) -> int:
        """Return the shift of the values at a place."""
        turn, within = divmod(place % (self.period * self.size), self.span)
        return (self._random_shift(within) + turn) % self.shared

    def _random_shift(self, within: int) -> int:
        group, item = divmod(within // self.size, self.shared)
        return _permute(self.shared, f"{self.seed}:{group}")[item]

    def value(self, place: int) -> int:
        """Return the value at a place."""
        return self.values[(place + self.shift(place)) % self.size]

    def place(self, before: int, value: int) -> int:
        """Return the place at which a value occurs together with the combination at `before`."""
        wanted = self.places[value]
        shift = (wanted - before) % self.shared
        # The place that leaves `before` and `wanted - shift` (Chinese remainder theorem).
        steps = (wanted - shift - before) // self.shared
        size = self.size // self.shared
        inverse = pow(self.period // self.shared, -1, size)
        within = before + self.period * (steps * inverse % size)
        turn = (shift - self._random_shift(within)) % self.shared
        return turn * self.span + within


@lru_cache(16)
def _steps(sizes: tuple[int, ...], seed: int) -> list[_Step]:
    found, period = list[_Step](), 1
    for field, size in enumerate(sizes):
        values, shared = _permute(size, f"{seed}:{field}"), gcd(period, size)
        places = array("L", bytes(size * array("L").itemsize))
        for place, value in enumerate(values):
            places[value] = place
        span = period * size // shared
        found.append(_Step(period, size, shared, span, values, places, f"{seed}:{field}:shift"))
        period *= size
    return found


@lru_cache(4096)
def _permute(size: int, seed: str) -> Sequence[int]:
    """Return a random permutation of the numbers from 0 that is the same in all versions."""
    # Python's `random.shuffle` may change from version to version.
    return array(
        "L", sorted(range(size), key=lambda one: sha256(f"{seed}:{one}".encode()).digest())
    )


class RunOrder(Data):
    """The order in which a batch runs its cells.

    All combinations of values run in their first trial, then all in their second one, and so on.
    """

    sizes: tuple[PositiveInt, ...] = ()
    """Number of rows of each axis."""
    trials: PositiveInt = 1
    """Number of trials of each combination."""
    seed: NonNegativeInt | None = None
    """The seed of the shuffled order. None for the order of the cells' numbers."""

    @property
    def combinations(self) -> int:
        """Number of combinations of values."""
        return prod(self.sizes)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.combinations * self.trials

    def numbers(self, most: int) -> Iterator[int]:
        """Yield the numbers of the first cells, at most `most` of them."""
        return map(self.number, range(min(most, self.cells)))

    def number(self, place: int) -> int:
        """Return the number of the cell at a place. Places count from 0, cells from 1."""
        if self.seed is None:
            return place + 1
        trial, place = divmod(place, self.combinations)
        combination = 0
        for step in _steps(self.sizes, self.seed):
            combination = combination * step.size + step.value(place)
        return combination * self.trials + trial + 1

    def place(self, number: int) -> int:
        """Return the place of the cell with a number. A number that does not exist comes last."""
        if self.seed is None or number > self.cells:
            return number - 1
        combination, trial = divmod(number - 1, self.trials)
        rows = list[int]()
        for size in reversed(self.sizes):
            combination, row = divmod(combination, size)
            rows.append(row)
        place = 0
        for step, row in zip(_steps(self.sizes, self.seed), reversed(rows), strict=True):
            place = step.place(place, row)
        return trial * self.combinations + place


class Selection(Data):
    """The cells of a batch and their order. It is stored with the batch, and stays the same."""

    order: RunOrder
    """The order of all cells of the grid."""
    sample: PositiveInt | None = None
    """Size of the sample, which is the beginning of the shuffled order. All cells if None."""
    values: str | None = None
    """A digest of the values from which the sample was drawn. None without a sample."""

    @property
    def cells(self) -> int:
        """Number of cells of the batch."""
        return min(self.sample or self.order.cells, self.order.cells)

    @property
    def sample_of(self) -> int | None:
        """Number of cells from which the sample was drawn. None if the batch has all of them."""
        return self.order.cells if self.cells < self.order.cells else None


STORED: Final = "selection"
"""The key of the selection in the stored settings of a batch."""


def read_selection(row: BatchRow) -> Selection:
    """Read the selection of a stored batch. Without one, the cells run in order of their numbers.

    The caller is inside `reading_store`.
    """
    stored = json.loads(row.settings).get(STORED, {"order": {}})
    return Selection.model_validate(stored)


def describe_sample(cells: int, sample_of: int | None, seed: int | None) -> str | None:
    """Describe a sample in a sentence. Return None for a batch that has all cells."""
    if sample_of is None:
        return None
    return f"A random sample of {cells:,} of {sample_of:,} sessions (seed {seed})."
