"""What is added up over the rows of a batch, one by one, in memory that does not grow with them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

_BINS: Final = 1024


@dataclass
class Moments:
    """The mean and the variance of numbers."""

    many: int = 0
    """How many numbers there are."""
    mean: float = 0.0
    """Their mean."""
    squares: float = 0.0
    """The sum of the squares of what they are off their mean."""

    def add(self, number: float) -> None:
        """Add a number (Welford)."""
        self.many += 1
        off = number - self.mean
        self.mean += off / self.many
        self.squares += off * (number - self.mean)

    @property
    def variance(self) -> float:
        """Their variance; 0 of a single one."""
        return self.squares / (self.many - 1) if self.many > 1 else 0.0


@dataclass
class Spread(Moments):
    """How numbers from 0 on are spread: how many fall into each of many bins."""

    width: float = 1.0
    """How wide a bin is; it doubles where a number lies beyond the last."""
    least: float = inf
    """The smallest."""
    most: float = 0.0
    """The largest."""
    bins: list[int] = field(default_factory=lambda: [0] * _BINS)
    """How many numbers there are in each bin."""

    def add(self, number: float) -> None:
        """Add a number."""
        super().add(number)
        self.least, self.most = min(self.least, number), max(self.most, number)
        while number >= self.width * _BINS:
            pairs = zip(self.bins[::2], self.bins[1::2], strict=True)
            self.bins = [*map(sum, pairs), *[0] * (_BINS // 2)]
            self.width *= 2
        self.bins[int(number / self.width)] += 1

    def below(self, share: float) -> float:
        """Give about the number that this share of them does not exceed."""
        left = share * self.many
        for place, here in enumerate(self.bins):
            left -= here
            if left <= 0:
                return min(self.most, max(self.least, self.width * place))
        return self.most

    def bars(self, most: int) -> list[int]:
        """Give how many fall into each bar, of at most so many, from the least to the most."""
        first, last = int(self.least / self.width), int(self.most / self.width)
        each = -(-(last - first + 1) // most)
        return [sum(self.bins[at : at + each]) for at in range(first, last + 1, each)]


@dataclass
class Group:
    """What cells that have something in common have come to."""

    cells: int = 0
    """How many they are."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Why they ended, or the status of those that have not."""
    ended: int = 0
    """How many have ended."""
    messages: int = 0
    """The messages of those."""
    tokens: int = 0
    """Their tokens."""
    cost: float = 0.0
    """Their cost."""

    def add(self, other: "Group") -> None:
        """Add what others have come to."""
        self.cells += other.cells
        self.kinds.update(other.kinds)
        self.ended += other.ended
        self.messages += other.messages
        self.tokens += other.tokens
        self.cost += other.cost


def top(numbers: Sequence[int], most: int) -> Iterator[int]:
    """Give the places of the largest numbers, in their order; of all, if they are not too many."""
    if len(numbers) <= most:
        yield from range(len(numbers))
        return
    ranked = sorted(range(len(numbers)), key=lambda place: -numbers[place])
    yield from sorted(ranked[: most - 1])


def joined(groups: Iterable[Group]) -> Group:
    """Put groups together."""
    found = Group()
    for one in groups:
        found.add(one)
    return found
