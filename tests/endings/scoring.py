"""Comparison of a dialogue's stop with its label."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from endings.adapter import Adapter
from endings.dialogue import Dialogue
from endings.intervals import Table


class Outcome(StrEnum):
    """A stop compared with the label."""

    RIGHT = "right"
    """It stopped at the labelled end."""
    TIE = "tie"
    """It stopped between the earliest end and the labelled one."""
    LATE = "late"
    """It stopped after the labelled end."""
    OPEN = "open"
    """It did not stop, and should not within the record. That is right, too."""
    PREMATURE = "premature"
    """It stopped before the earliest end."""
    MISSED = "missed"
    """It did not stop, although the record shows the end or runs on after it."""
    UNDECIDABLE = "undecidable"
    """It did not stop, and the record ends at the labelled end without a sign of it."""


@dataclass(frozen=True)
class Scored:
    """The result of one dialogue."""

    dialogue: Dialogue
    stop: int | None
    """Number of turns after which it was stopped. None if it was not stopped."""
    reason: str | None
    calls: int = 0
    """Model calls that were made to decide."""
    tokens: int = 0
    """Tokens of these calls."""

    @property
    def outcome(self) -> Outcome:
        """Compare the stop with the label."""
        label, length = self.dialogue.label, len(self.dialogue.turns)
        if self.stop is not None:
            if self.stop < label.first:
                return Outcome.PREMATURE
            if self.stop < label.end:
                return Outcome.TIE
            return Outcome.RIGHT if self.stop == label.end else Outcome.LATE
        if label.end > length:
            return Outcome.OPEN
        runs_on = length > label.end
        return Outcome.MISSED if label.signalled or runs_on else Outcome.UNDECIDABLE

    @property
    def has_end(self) -> bool:
        """Whether the labelled end is in the record, and it is decidable whether it was found."""
        label, length = self.dialogue.label, len(self.dialogue.turns)
        found = self.outcome in (Outcome.RIGHT, Outcome.TIE, Outcome.LATE)
        return label.end <= length and (label.signalled or label.end < length or found)

    @property
    def delay(self) -> int | None:
        """Turns between the labelled end and the stop. None if it is neither right nor late."""
        if self.stop is None or self.outcome not in (Outcome.RIGHT, Outcome.LATE):
            return None
        return self.stop - self.dialogue.label.end

    @property
    def fed(self) -> int:
        """Turns that were decided on."""
        return len(self.dialogue.turns) if self.stop is None else self.stop

    @property
    def going(self) -> int:
        """Turns that were decided on while the dialogue should go on, and a false stop."""
        return min(self.fed, max(self.dialogue.label.first - 1, 0))

    @property
    def prefixes(self) -> Table:
        """Compare the rules with the label at each prefix that can be decided.

        Prefixes between the earliest end and the labelled one are left out, and so is the last
        one of an undecidable record.
        """
        label, tables = self.dialogue.label, list[Table]()
        for place in range(1, self.fed + 1):
            if label.first <= place < label.end:
                continue
            over, stopped = place >= label.end, place == self.stop
            if not (over and not stopped and self.outcome is Outcome.UNDECIDABLE):
                tables.append(Table.of(rule=stopped, label=over))
        return Table.total(tables)

    @property
    def left_out(self) -> int:
        """Prefixes that `prefixes` leaves out."""
        return self.fed - sum(self.prefixes)


def is_over(dialogue: Dialogue, turns: int) -> bool | None:
    """Return whether the dialogue should be over after this number of turns, by its label.

    None if the label does not decide it: between the earliest end and the labelled one, and at the
    end of a record without a sign of its end.
    """
    label = dialogue.label
    if turns < label.first:
        return False
    if turns < label.end:
        return None
    return True if label.signalled or len(dialogue.turns) > label.end else None


def score(dialogue: Dialogue, begin: Callable[[Dialogue], Adapter]) -> Scored:
    """Feed a dialogue to its adapter, turn by turn, until it stops."""
    return feed(dialogue, begin(dialogue))


def feed(dialogue: Dialogue, adapter: Adapter) -> Scored:
    """Feed a dialogue to an adapter, turn by turn, until it stops."""
    stop = reason = None
    for place in range(1, len(dialogue.turns) + 1):
        reason = adapter.stops(dialogue.turns[:place])
        if reason is not None:
            stop = place
            break
    return Scored(dialogue, stop, reason, adapter.calls, adapter.tokens)
