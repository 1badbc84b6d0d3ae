"""Number of cases per test: a sample in the quick run, all cases in the exhaustive run."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, Signature
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

from support.stores import STORE_KINDS

_WHOLE = pytest.mark.exhaustive

thorough = pytest.mark.parametrize(
    "thorough", [False, pytest.param(True, marks=_WHOLE)], ids=["in-part", "whole"]
)
"""Parametrizes a test with ``thorough``: True in the exhaustive run, to test the whole grid."""


def part_of(cases: Mapping[str, Any], *names: str) -> list[Any]:
    """Return the cases as parameters; only the exhaustive run includes the unnamed ones."""
    return [
        pytest.param(case, id=name, marks=() if name in names else _WHOLE)
        for name, case in cases.items()
    ]


def leave_combinations_to_exhaustive(items: Iterable[pytest.Item], elsewhere: set[str]) -> None:
    """Mark parametrized cases as exhaustive, except a few that cover each parameter's values.

    A test of stores keeps SQLite alone, unless it is marked `every_store`. A test with one
    parameter keeps all cases, unless it is marked `part`: then it keeps as many as that mark
    requests, spread evenly.

    Args:
        items: The collected tests.
        elsewhere: Marks of tests that the quick command already excludes.
    """
    grids = defaultdict[object, list[pytest.Function]](list)
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if not isinstance(item, pytest.Function) or not elsewhere.isdisjoint(marks):
            continue
        if "postgres_server" in item.fixturenames and "every_store" not in marks:
            item.add_marker(_WHOLE)
        if hasattr(item, "callspec"):
            grids[item.parent, item.originalname].append(item)
    for cases in grids.values():
        part = cases[0].get_closest_marker("part")
        kept = _each_value_once(_with_sqlite(cases), most=part.args[0] if part else None)
        for case in cases:
            if case not in kept:
                case.add_marker(_WHOLE)


def _with_sqlite(cases: list[pytest.Function]) -> list[pytest.Function]:
    """Return the cases without other stores than SQLite, if there are cases with SQLite."""
    if cases[0].get_closest_marker("every_store"):
        return cases
    others = STORE_KINDS - {"sqlite"}
    return [case for case in cases if others.isdisjoint(case.callspec._idlist)] or cases


def _each_value_once(cases: list[pytest.Function], most: int | None) -> list[pytest.Function]:
    """Return cases that use each value of each parameter once, in the order of a greedy cover.

    If there is only one parameter, return `most` of the cases, or all.
    """
    values = {case: set(enumerate(case.callspec._idlist)) for case in cases}
    first = values[cases[0]]
    varying = {place for found in values.values() for place, _ in found - first}
    if len(varying) < 2:
        count = min(most or len(cases), len(cases))
        return [cases[place * len(cases) // count] for place in range(count)]
    kept: list[pytest.Function] = []
    used: set[tuple[int, str]] = set()
    while most is None or len(kept) < most:
        best = max(cases, key=lambda case: len(values[case] - used))
        if values[best] <= used:
            break
        kept.append(best)
        used |= values[best]
    return kept


_Test = Callable[..., None]


def drawn_cases(
    few: int, many: int, *values: SearchStrategy[Any], **strategies: Any
) -> Callable[[_Test], _Test]:
    """Run a test with arguments drawn by Hypothesis: few cases, or many in the exhaustive run.

    Args:
        few: Number of cases in the quick run.
        many: Number of cases in the exhaustive run.
        *values: Strategies by position, as for `hypothesis.given`.
        **strategies: Strategies by argument.
    """

    def drawing(test: _Test) -> _Test:
        @wraps(test)
        def drawn(examples: int) -> None:
            settings(max_examples=examples, deadline=None)(given(*values, **strategies)(test))()

        # Without this signature, pytest would treat the test's parameters as fixtures.
        kept = Parameter("examples", Parameter.POSITIONAL_OR_KEYWORD)
        vars(drawn)["__signature__"] = Signature([kept])
        pytest.mark.hypothesis(drawn)
        pytest.mark.parametrize("examples", [few, pytest.param(many, marks=_WHOLE)])(drawn)
        return drawn

    return drawing
