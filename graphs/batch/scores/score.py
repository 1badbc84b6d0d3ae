"""Scoring a session that has ended."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import isfinite
from typing import Any, NamedTuple, SupportsFloat, TypeAlias

from pydantic import JsonValue

from ....tools.registry.functions import call, takes_values
from ...api.session import Result
from ...common.errors import DuologueError, SpecError
from ...common.validation import kind_of

Given: TypeAlias = SupportsFloat | Mapping[str, SupportsFloat]
"""What a score gives: a yes or no, a number, or several of them by name."""

ScoreFunction: TypeAlias = Callable[..., Given | Awaitable[Given]]
"""Takes the `Result` of a session that has ended, or that and the cell's values by path."""


class Scored(NamedTuple):
    """What scoring a session has given."""

    scores: dict[str, float]
    """Its scores, by name; yes is 1 and no is 0."""
    problem: str | None
    """Why some are missing, in a sentence. None: none is."""


async def score(
    result: Result, values: Mapping[str, JsonValue], scores: Mapping[str, ScoreFunction]
) -> Scored:
    """Score a session that has ended: a score that fails is missing, and the others are there.

    Args:
        result: The session.
        values: What varies in its batch, by path; labels, too.
        scores: The functions, by name. One that gives several numbers by name has a score
            ``NAME.KEY`` for each.

    Returns:
        The scores, and why some are missing.
    """
    found = await asyncio.gather(
        *(_one(name, function, result, values) for name, function in scores.items())
    )
    problems = [one for one in found if isinstance(one, DuologueError)]
    given = [one for one in found if not isinstance(one, DuologueError)]
    told = "; ".join(map(str, problems)) or None
    return Scored({name: value for one in given for name, value in one.items()}, told)


async def _one(
    name: str, function: ScoreFunction, result: Result, values: Mapping[str, JsonValue]
) -> dict[str, float] | DuologueError:
    # A copy, since it is what the row of the cell holds.
    more: tuple[Any, ...] = (dict(values),) if takes_values(function) else ()
    try:
        given = await call("score", name, function, result, *more)
        if not isinstance(given, Mapping):
            return {name: _number(name, given)}
        if not given:
            raise SpecError(f"the score {name!r} gave an empty dict")
        return {f"{name}.{key}": _number(f"{name}.{key}", one) for key, one in given.items()}
    except DuologueError as error:
        return error


def _number(name: str, given: object) -> float:
    # numpy's numbers, decimals and yes and no of any kind are such, and texts are not.
    if not isinstance(given, SupportsFloat):
        raise SpecError(
            f"the score {name!r} gave {kind_of(given)}: it must give a number, True or False"
        )
    try:
        number = float(given)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise SpecError(f"the score {name!r} gave no number: {error}") from error
    if not isfinite(number):
        raise SpecError(f"the score {name!r} gave {number}, which is no number to add up")
    return number


def has_score(scores: Mapping[str, float], name: str) -> bool:
    """Whether a session has a score of this name, or those by name that it has given."""
    return name in scores or any(one.startswith(f"{name}.") for one in scores)
