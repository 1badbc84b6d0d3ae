"""The rows of a batch, read once and added up in memory that does not grow with them."""

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from pydantic import JsonValue

from ...store.batches import CellRow
from .estimates import Trials

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
        """Return how many fall into each bar, of at most so many, from the least to the most."""
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


def largest_places(numbers: Sequence[int], most: int) -> Iterator[int]:
    """Give the places of the largest numbers, in their order; of all, if they are not too many."""
    if len(numbers) <= most:
        yield from range(len(numbers))
        return
    ranked = sorted(range(len(numbers)), key=lambda place: -numbers[place])
    yield from sorted(ranked[: most - 1])


def join_groups(groups: Iterable[Group]) -> Group:
    """Put groups together."""
    found = Group()
    for one in groups:
        found.add(one)
    return found


_MOST_VALUES: Final = 500
"""How many values of a field are told apart, the first."""

_MOST_FAULTS: Final = 500
"""How many sentences are told apart."""

_MOST_SCORES: Final = 60
"""How many scores are added up, the first."""

_EXAMPLES: Final = 8


@dataclass
class Fault:
    """A sentence that cells have in common."""

    cells: int = 0
    """How many have it."""
    first: list[CellRow] = field(default_factory=list)
    """The first of them."""


@dataclass
class Column:
    """A score of all cells, summed up for each combination of values."""

    scored: "array[int]" = field(default_factory=lambda: array("I"))
    """How many trials of each have it."""
    sums: "array[float]" = field(default_factory=lambda: array("d"))
    """The sum of those."""
    all: Moments = field(default_factory=Moments)
    """All of them, one by one."""
    is_share: bool = True
    """Whether it was yes or no in all of them."""

    def add(self, combination: int, value: float) -> None:
        """Add one."""
        for column in (self.scored, self.sums):
            if len(column) <= combination:
                column.extend([0] * (combination + 1 - len(column)))
        self.scored[combination] += 1
        self.sums[combination] += value
        self.all.add(value)
        self.is_share = self.is_share and value in (0, 1)


@dataclass
class Field:
    """A field that varies."""

    places: dict[str, int] = field(default_factory=dict)
    """The place of each value, from 1; 0 stands for all further ones."""
    groups: list[Group] = field(default_factory=lambda: [Group()])
    """What its cells have come to, of each value."""
    of: "array[int]" = field(default_factory=lambda: array("H"))
    """Which value each combination has."""

    def place(self, value: JsonValue) -> int:
        """Return the place of a value."""
        text = label_value(value)
        place = self.places.get(text)
        if place is None and len(self.places) < _MOST_VALUES:
            self.groups.append(Group())
            place = self.places[text] = len(self.places) + 1
        return place or 0


def label_value(value: JsonValue) -> str:
    """Write a value down."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass
class Rows:
    """What all rows of a batch come to."""

    listed: int
    """How many of them are kept, the first."""
    first: list[CellRow] = field(default_factory=list)
    """Those."""
    all: Group = field(default_factory=Group)
    """All cells that have begun."""
    calls: int = 0
    """Their model calls, those of cells that have not ended included, as in what follows."""
    tokens: int = 0
    """Their tokens."""
    cost: float = 0.0
    """Their cost."""
    trials: int = 0
    """The most trials of a combination."""
    messages_spread: Spread = field(default_factory=Spread)
    """How long sessions that have ended are, in messages."""
    tokens_spread: Spread = field(default_factory=Spread)
    """How many tokens they have used."""
    cost_spread: Spread = field(default_factory=lambda: Spread(width=1e-9))
    """What they have cost."""
    fields: dict[str, Field] = field(default_factory=dict)
    """What varies, by path."""
    columns: dict[str, Column] = field(default_factory=dict)
    """The scores, by name."""
    more_scores: bool = False
    """Whether there are more, which are not added up."""
    failed: dict[str, Fault] = field(default_factory=dict)
    """Why cells have failed."""
    unscored: dict[str, Fault] = field(default_factory=dict)
    """Why cells that have ended have scores missing."""
    combinations: dict[int, int] = field(default_factory=dict)
    """The place of each combination of values, by what tells it from others."""

    def add(self, row: CellRow) -> None:
        """Add the next row."""
        if len(self.first) < self.listed:
            self.first.append(row)
        self._count(row)
        combination = self._combination(row)
        for name, value in row.scores.items():
            if name in self.columns or len(self.columns) < _MOST_SCORES:
                self.columns.setdefault(name, Column()).add(combination, value)
            else:
                self.more_scores = True
        if row.error is not None:
            faults = self.failed if row.status == "failed" else self.unscored
            _add_fault(faults, row, row.error)

    def _count(self, row: CellRow) -> None:
        tokens = row.input_tokens + row.output_tokens
        self.calls += row.calls
        self.tokens += tokens
        self.cost += row.cost
        self.trials = max(self.trials, row.trial)
        has_ended = row.status == "finished"
        kind = (row.reason if has_ended else None) or row.status
        for group in (self.all, *self._groups(row)):
            group.cells += 1
            group.kinds[kind] += 1
            if has_ended:
                group.ended += 1
                group.messages += row.messages
                group.tokens += tokens
                group.cost += row.cost
        if has_ended:
            self.messages_spread.add(row.messages)
            self.tokens_spread.add(tokens)
            self.cost_spread.add(row.cost)

    def _groups(self, row: CellRow) -> Iterator[Group]:
        for path, value in row.varied.items():
            known = self.fields.setdefault(path, Field())
            yield known.groups[known.place(value)]

    def _combination(self, row: CellRow) -> int:
        # A number instead of the values, which may be long texts.
        key = hash(json.dumps(row.varied, sort_keys=True))
        known = len(self.combinations)
        place = self.combinations.setdefault(key, known)
        if place == known:
            for path, value in row.varied.items():
                one = self.fields[path]
                one.of.extend([0] * (place - len(one.of)))
                one.of.append(one.place(value))
        return place

    def trials_of(self, name: str) -> list[Trials]:
        """Give what the trials of each combination have of a score."""
        column = self.columns[name]
        found = map(Trials, column.scored, column.sums)
        return [one for one in found if one.scored]

    def trials_by(self, name: str, path: str) -> Iterator[tuple[int, Trials]]:
        """Give these, each with the place of its value in a field."""
        column, of = self.columns[name], self.fields[path].of
        for place, one in zip(of, map(Trials, column.scored, column.sums), strict=False):
            if one.scored:
                yield place, one


def _add_fault(faults: dict[str, Fault], row: CellRow, sentence: str) -> None:
    # The same sentence about another session is the same.
    text = sentence.replace(row.session, "…")
    if text not in faults and len(faults) >= _MOST_FAULTS:
        text = "Other sentences"
    fault = faults.setdefault(text, Fault())
    fault.cells += 1
    if len(fault.first) < _EXAMPLES:
        fault.first.append(row)
