"""Scores: functions that rate a session that has ended, found by name and called."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.metadata import entry_points
from math import isfinite
from typing import Any, Final, NamedTuple, SupportsFloat, TypeAlias

from pydantic import JsonValue

from ...tools.registry.functions import call, takes_values
from ...tools.registry.loading import by_name, check_name, load_entry_points
from ...tools.registry.registrable import check_kind
from ..common.data import NamedObject
from ..common.errors import DuologueError, SpecError
from ..common.validation import name_type, suggest_near_or_all
from ..conversation.conversation import Conversation
from ..conversation.judges import Finding, SeparateJudge
from ..ends.end_chat import EndChatMode
from ..session.session import Result

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
            f"the score {name!r} gave {name_type(given)}: it must give a number, True or False"
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


_KIND: Final = "scores"


def find_scores(
    names: Iterable[str], given: Mapping[str, ScoreFunction] | None = None
) -> dict[str, ScoreFunction]:
    """Find the scores that a batch names. May import packages and read files.

    Args:
        names: Their names; one that was made of a function brings it along.
        given: Functions by name. They come before those that packages offer as entry points of
            the group ``duologue.scores``.

    Returns:
        The functions by name, in the order of the names.

    Raises:
        SpecError: There is no such score, or what has its name is no function of a result.
    """
    own = by_name(_KIND, given)
    for name, function in own.items():
        check_name(name, _KIND)
        check_kind(_KIND, function, f"{_KIND}: {name!r}")
    return {str(name): _found(name, own) for name in names}


def _found(name: str, own: Mapping[str, ScoreFunction]) -> ScoreFunction:
    if isinstance(name, NamedObject):
        brought: ScoreFunction = name.brought  # type: ignore[assignment]  # checked here
        check_kind(_KIND, brought, f"score: {str(name)!r}")
        if own.get(name, brought) is not brought:
            raise SpecError(
                f"score: two different scores are called {str(name)!r}: give each a name of its own"
            )
        return brought
    if name in own:
        return own[name]
    offered = entry_points(group=f"duologue.{_KIND}")
    entries = [*offered.select(name=name)]
    if not entries:
        hint = suggest_near_or_all(name, sorted({*own, *offered.names}))
        raise SpecError(f"score: there is no score {name!r}{hint}")
    found: ScoreFunction = load_entry_points(_KIND, entries, "score")
    return found


def complete(result: Result) -> bool:
    """Whether the task was judged complete; what ended before it was judged is not.

    Raises:
        ValueError: Nobody judges this conversation.
    """
    judged = None if result.outcome is None else result.outcome.complete
    if judged is None and not _is_judged(result.conversation):
        raise ValueError("nobody judges this conversation: give it an end_chat.mode or a judge")
    return bool(judged)


def criteria(result: Result) -> float:
    """Return the share of the separate judge's criteria that its last verdict found met.

    Raises:
        ValueError: The conversation has no separate judge.
    """
    found = findings(result)
    return sum(found.values()) / len(found)


def findings(result: Result) -> dict[str, bool]:
    """Say of each of the separate judge's criteria whether its last verdict found it met.

    Raises:
        ValueError: The conversation has no separate judge.
    """
    judge = result.conversation.judge
    if not isinstance(judge, SeparateJudge):
        raise ValueError('the conversation has no separate judge: set judge.kind = "separate"')
    verdicts = () if result.outcome is None else result.outcome.verdicts
    # What could not be read, or was never judged, was not found met.
    last = verdicts[-1].findings if verdicts else {}
    return {text: last.get(text) is Finding.MET for text in judge.criteria}


def _is_judged(conversation: Conversation) -> bool:
    only_rounds = conversation.end_chat.mode is EndChatMode.MAX_ITERATIONS_ONLY
    return isinstance(conversation.judge, SeparateJudge) or not only_rounds
