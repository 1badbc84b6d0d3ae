"""Tests of each metric with an example that was computed by hand."""

from collections.abc import Sequence

import pytest

from endings.dialogue import Case, Dialogue, Label, Origin, Turn
from endings.intervals import Table, kappa, mean, quantile, share
from endings.metrics import measure
from endings.scoring import Outcome, Scored, score


def scored(
    length: int,
    end: int,
    stop: int | None,
    *,
    earliest: int = 0,
    signalled: bool = True,
    calls: int = 0,
    tokens: int = 0,
) -> Scored:
    turns = tuple(Turn("AB"[place % 2], str(place)) for place in range(length))
    label = Label(Case.WORD_SAID, end, Origin.FIELD, earliest, signalled)
    dialogue = Dialogue("any", "source", turns, label)
    return Scored(dialogue, stop, "done_token" if stop else None, calls, tokens)


RIGHT = scored(4, 4, 4, calls=3, tokens=70)
PREMATURE = scored(4, 4, 2)
LATE = scored(6, 4, 6)
MISSED = scored(6, 4, None)
TIE = scored(4, 4, 3, earliest=3)
UNDECIDABLE = scored(4, 4, None, signalled=False)
OPEN = scored(3, 4, None)
ALL = (RIGHT, PREMATURE, LATE, MISSED, TIE, UNDECIDABLE, OPEN)


@pytest.mark.parametrize(
    ("one", "outcome", "delay", "prefixes"),
    [
        (RIGHT, Outcome.RIGHT, 0, Table(1, 0, 0, 3)),
        (PREMATURE, Outcome.PREMATURE, None, Table(0, 1, 0, 1)),
        (LATE, Outcome.LATE, 2, Table(1, 0, 2, 3)),
        (MISSED, Outcome.MISSED, None, Table(0, 0, 3, 3)),
        (TIE, Outcome.TIE, None, Table(0, 0, 0, 2)),
        (UNDECIDABLE, Outcome.UNDECIDABLE, None, Table(0, 0, 0, 3)),
        (OPEN, Outcome.OPEN, None, Table(0, 0, 0, 3)),
        # A stop within a record that should go on, and an end without a sign that runs on.
        (scored(3, 4, 3), Outcome.PREMATURE, None, Table(0, 1, 0, 2)),
        (scored(5, 4, None, signalled=False), Outcome.MISSED, None, Table(0, 0, 2, 3)),
    ],
)
def test_a_stop_is_compared_with_the_label(
    one: Scored, outcome: Outcome, delay: int | None, prefixes: Table
) -> None:
    assert (one.outcome, one.delay, one.prefixes) == (outcome, delay, prefixes)


# Of 26 prefixes: 2 by both, 1 by the rules alone, 5 by the labels alone, 18 by neither.
BY_CHANCE = (3 * 7 + 23 * 19) / 26**2

VALUES = {
    "premature": 1 / 7,
    # By the dialogues whose end can be decided.
    "missed": 1 / 5,
    # Of the right and the late stop.
    "delay": 0,
    "delay_90": 2,
    # By the turns after which a dialogue should go on.
    "false_stops": 1000 / 19,
    "calls": 3 / 7,
    "tokens": 10,
    "kappa": (20 / 26 - BY_CHANCE) / (1 - BY_CHANCE),
}


def test_metrics_have_the_values_of_their_definitions() -> None:
    found = measure(ALL)
    assert {name: getattr(found, name).value for name in VALUES} == pytest.approx(VALUES)
    assert found.outcomes[Outcome.TIE] == found.outcomes[Outcome.UNDECIDABLE] == 1
    assert found.left_out == 2
    empty = measure([])
    assert (empty.premature, empty.missed, empty.delay, empty.kappa) == (None,) * 4


def test_records_whose_end_cannot_be_decided_are_no_found_ends() -> None:
    tie = scored(3, 4, 3, earliest=3)
    for one in (scored(3, 4, 3), tie, scored(4, 4, 2, signalled=False), UNDECIDABLE, OPEN):
        assert measure([MISSED, one]).missed == share(1, 1)


def test_shares_have_wilsons_interval() -> None:
    assert share(1, 10) == pytest.approx((0.1, 0.0179, 0.4042), abs=1e-4)
    assert share(0, 10) == pytest.approx((0, 0, 0.2775), abs=1e-4)


def test_means_have_the_normal_interval() -> None:
    # The standard deviation is 1.2910, its half width 1.96 * 1.2910 / 2.
    assert mean([1, 2, 3, 4]) == pytest.approx((2.5, 1.2349, 3.7651), abs=1e-4)


def test_quantiles_have_the_interval_of_order_statistics() -> None:
    assert quantile(range(1, 101), 0.5) == (50, 40, 60)
    assert quantile([7], 0.9) == (7, 7, 7)


def test_kappa_is_cohens() -> None:
    found = kappa([Table(20, 5, 10, 15)])
    assert found is not None
    assert found.value == pytest.approx(0.4)
    assert kappa([Table(0, 0, 0, 9)]) is None


def test_kappa_has_the_interval_of_a_jackknife_over_dialogues() -> None:
    # Without one of the first two κ is 0, without the third 1: the standard error is 2 / 3.
    same, other = Table(1, 0, 0, 1), Table(0, 1, 1, 0)
    assert kappa([same, same, other]) == pytest.approx((1 / 3, 1 / 3 - 1.959964 * 2 / 3, 1))


class Paid:
    """An adapter that stops at the third turn, and asks a judge after each turn."""

    calls = 0
    tokens = 0

    def __init__(self, dialogue: Dialogue) -> None:
        self._turns = dialogue.turns

    def stops(self, messages: Sequence[Turn]) -> str | None:
        assert tuple(messages) == self._turns[: self.calls + 1]
        self.calls += 1
        self.tokens += 10
        return "judged" if len(messages) == 3 else None


def test_an_adapter_is_fed_turn_by_turn_until_it_stops() -> None:
    found = score(RIGHT.dialogue, Paid)
    assert (found.stop, found.reason, found.calls, found.tokens) == (3, "judged", 3, 30)
