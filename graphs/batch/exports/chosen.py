"""Which sessions of a batch are exported, as data. Pure functions."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, FiniteFloat, PositiveInt

from ...common.data import Spec
from ...common.validation import near_or_all
from ...ends.all_ends import Reason
from ...store.batches import CellRow, CellStatus

_SIGNS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}

_BOUND = re.compile(rf"\s*(.+?)\s*({'|'.join(_SIGNS)})\s*([^\s=<>!]+)\s*")


class ScoreBound(Spec):
    """What a score must be."""

    name: str
    """The score's name."""
    sign: Literal[">=", "<=", "==", "!=", ">", "<", "="]
    """How it is compared."""
    value: FiniteFloat
    """With what."""

    def holds(self, scores: Mapping[str, float]) -> bool:
        """Whether a session has this score, and it is so."""
        return self.name in scores and _SIGNS[self.sign](scores[self.name], self.value)


def _read_bound(given: object) -> object:
    if not isinstance(given, str):
        return given
    found = _BOUND.fullmatch(given)
    if found is None:
        raise ValueError(f"must be a score and what it is, as in won>=0.5, not {given!r}")
    name, sign, value = found.groups()
    return {"name": name, "sign": sign, "value": value}


def _read_reason(given: object) -> object:
    known = [one.value for one in Reason]
    if isinstance(given, str) and given not in known:
        raise ValueError(f"{given!r} is unknown{near_or_all(given, known)}")
    return given


class Chosen(Spec):
    """Which sessions of a batch are meant.

    Raises:
        SpecError: There is no such status or reason, or a comparison can't be read.
    """

    status: CellStatus | None = "finished"
    """How they stand. None: in any way."""
    reason: tuple[Annotated[Reason, BeforeValidator(_read_reason)], ...] = ()
    """Why they ended: one of these reasons. Empty: any."""
    score: tuple[Annotated[ScoreBound, BeforeValidator(_read_bound)], ...] = ()
    """What their scores must be, all of it."""
    trial: PositiveInt | None = None
    """Which trial of their values they are. None: any."""

    def leaves_out(self, row: CellRow) -> str | None:
        """Give by which field a session is left out; None: it is one of those that are meant."""
        if self.status not in (None, row.status):
            return "status"
        if self.reason and row.reason not in self.reason:
            return "reason"
        if self.trial not in (None, row.trial):
            return "trial"
        return None if all(bound.holds(row.scores) for bound in self.score) else "score"

    def unknown_score(self, known: Iterable[str]) -> str | None:
        """Give a score that is asked for and that no session has."""
        return next((bound.name for bound in self.score if bound.name not in {*known}), None)
