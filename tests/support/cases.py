"""How much a test tries: a part with all the others, the whole where tests are exhaustive."""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, Signature
from typing import Any

import pytest
from hypothesis import given, settings

_WHOLE = pytest.mark.exhaustive

thorough = pytest.mark.parametrize(
    "thorough", [False, pytest.param(True, marks=_WHOLE)], ids=["in-part", "whole"]
)
"""Gives a test ``thorough``: whether it tries all of its grid, and not only what stands for it."""


def part_of(cases: Mapping[str, Any], *names: str) -> list[Any]:
    """The cases by their names as parameters: those named in part, all where it is exhaustive."""
    return [
        pytest.param(case, id=name, marks=() if name in names else _WHOLE)
        for name, case in cases.items()
    ]


_Test = Callable[..., None]


def drawn_cases(few: int, many: int, **strategies: Any) -> Callable[[_Test], _Test]:
    """Draw few cases, and many where it is exhaustive; what a test is given is drawn by Hypothesis.

    Args:
        few: How many are drawn with all the other tests.
        many: How many are drawn with the exhaustive ones.
        **strategies: What they are drawn from, as `hypothesis.given` takes it.
    """

    def drawing(test: _Test) -> _Test:
        @wraps(test)
        def drawn(examples: int) -> None:
            settings(max_examples=examples, deadline=None)(given(**strategies)(test))()

        # Not that of the test, whose parameters pytest would take for fixtures.
        kept = Parameter("examples", Parameter.POSITIONAL_OR_KEYWORD)
        vars(drawn)["__signature__"] = Signature([kept])
        pytest.mark.hypothesis(drawn)
        pytest.mark.parametrize("examples", [few, pytest.param(many, marks=_WHOLE)])(drawn)
        return drawn

    return drawing
