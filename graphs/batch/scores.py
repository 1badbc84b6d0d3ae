"""Scores: functions that rate a session that has ended. This module finds and calls them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from math import isfinite
from typing import Any, Final, NamedTuple, SupportsFloat, TypeAlias

from pydantic import JsonValue

from ...tools.registry.functions import (
    call,
    check_kind,
    check_registered_name,
    import_object,
    load_entry_points,
    read_mapping,
    takes_values,
)
from ..common.data import NamedObject
from ..common.errors import DuologueError, SpecError, did_you_mean, list_names, name_type
from ..conversation.conversation import Conversation
from ..conversation.judges import Finding, SeparateJudge, Verdict
from ..ends.end_chat import EndChatMode, Reason
from ..session.session import Result
from ..session.stored_session import verdicts_on

Given: TypeAlias = SupportsFloat | Mapping[str, SupportsFloat]
"""The result of a score: a bool, a number, or a dict of them by name."""

ScoreFunction: TypeAlias = Callable[..., Given | Awaitable[Given]]
"""A score function. Its arguments are the `Result` of a session that has ended and, if it takes
two, the cell's values by path.
"""


class MissingScoreError(DuologueError):
    """The reason why a score cannot be computed for a session, although its function is correct."""


class Scored(NamedTuple):
    """The result of scoring a session."""

    scores: dict[str, float]
    """The scores by name. True is 1 and False is 0."""
    problem: str | None
    """The reason why scores are missing, as a sentence. None if no score is missing."""


async def score(
    result: Result, values: Mapping[str, JsonValue], scores: Mapping[str, ScoreFunction]
) -> Scored:
    """Score a session that has ended. A score that fails is missing; the others are returned.

    Args:
        result: The session.
        values: The cell's values by path, including labels.
        scores: The functions, by name. A function that returns a dict has a score ``NAME.KEY`` for
            each key.

    Returns:
        The scores, and the reason why some are missing.
    """
    found = await asyncio.gather(
        *(_score_one(name, function, result, values) for name, function in scores.items())
    )
    given = [one for one in found if not isinstance(one, DuologueError)]
    problem = "; ".join(_describe_missing(dict(zip(scores, found, strict=True)))) or None
    return Scored({name: value for one in given for name, value in one.items()}, problem)


def _describe_missing(found: Mapping[str, object]) -> Iterator[str]:
    """Yield the reasons why scores are missing. Scores with the same reason share a sentence."""
    alike: dict[str, list[str]] = {}
    for name, one in found.items():
        if isinstance(one, MissingScoreError):
            alike.setdefault(str(one), []).append(name)
        elif isinstance(one, DuologueError):
            yield str(one)
    for why, names in alike.items():
        are = "the score {} is" if len(names) == 1 else "the scores {} are"
        yield f"{are.format(list_names(names))} missing: {why}"


async def _score_one(
    name: str, function: ScoreFunction, result: Result, values: Mapping[str, JsonValue]
) -> dict[str, float] | DuologueError:
    # A copy, because the cell's row contains the same dict.
    more: tuple[Any, ...] = (dict(values),) if takes_values(function) else ()
    try:
        given = await call("score", name, function, result, *more)
        if not isinstance(given, Mapping):
            return {name: _number(name, given)}
        if not given:
            raise SpecError(f"the score {name!r} returned an empty dict; return at least one score")
        return {f"{name}.{key}": _number(f"{name}.{key}", one) for key, one in given.items()}
    except DuologueError as error:
        why = error.__cause__
        return why if isinstance(why, MissingScoreError) else error


def _number(name: str, given: object) -> float:
    # `SupportsFloat` includes numpy's numbers, decimals and all booleans, but not texts.
    if not isinstance(given, SupportsFloat):
        raise SpecError(
            f"the score {name!r} returned {name_type(given)}; return a number, True or False"
        )
    try:
        number = float(given)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise SpecError(
            f"the score {name!r} returned a value that can't be converted to a number "
            f"({error}); return a number"
        ) from error
    if not isfinite(number):
        raise SpecError(f"the score {name!r} returned {number}; return a finite number")
    return number


_KIND: Final = "scores"


def find_scores(
    names: Iterable[str], given: Mapping[str, ScoreFunction] | None = None
) -> dict[str, ScoreFunction]:
    """Find the scores that a batch names. May import packages and read files.

    Args:
        names: The names of the scores. A name that was made from a function contains it, and
            ``module:name`` is imported.
        given: Functions by name. They replace functions of the same name that packages offer as
            entry points of the group ``duologue.scores``.

    Returns:
        The functions by name, in the order of the names.

    Raises:
        SpecError: The score does not exist, is not a function of a result, or two different scores
            have one name.
    """
    own = read_mapping(_KIND, given)
    for name, function in own.items():
        check_registered_name(name, _KIND)
        check_kind(_KIND, function, f"{_KIND}: {name!r}")
    found = dict[str, ScoreFunction]()
    for name in names:
        read = name
        if ":" in name and name not in own:
            reference = name.partition(":")[2].rpartition(".")[2]
            read = NamedObject(reference, import_object(name, "score"))
        function = _find_score(read, own)
        if found.setdefault(str(read), function) is not function:
            raise _two_scores(read)
    return found


def _two_scores(name: str) -> SpecError:
    return SpecError(
        f"score: two different scores are called {str(name)!r}; give each a unique name"
    )


def _find_score(name: str, own: Mapping[str, ScoreFunction]) -> ScoreFunction:
    if isinstance(name, NamedObject):
        brought: ScoreFunction = name.brought  # type: ignore[assignment]  # checked here
        check_kind(_KIND, brought, f"score: {str(name)!r}")
        if own.get(name, brought) is not brought:
            raise _two_scores(name)
        return brought
    if name in own:
        return own[name]
    offered = entry_points(group=f"duologue.{_KIND}")
    entries = [*offered.select(name=name)]
    if not entries:
        known = sorted({*own, *offered.names})
        others = f"; choose one of {list_names(known)}, or write your own as 'module:function'"
        raise SpecError(f"score: there is no score {name!r}{did_you_mean(name, known) or others}")
    found: ScoreFunction = load_entry_points(_KIND, entries, "score")
    return found


def complete(result: Result) -> bool:
    """Return whether the task was judged complete.

    Raises:
        MissingScoreError: The session was not judged, or its last verdict could not be read.
    """
    if why := _find_missing_judge(complete, result.conversation):
        raise MissingScoreError(why)
    later, outcome = _later_verdict(result), result.outcome
    if later is not None and later.readable:
        return later.complete
    if outcome is not None and Reason.COMPLETED in outcome.reasons:
        return True
    _last_verdict(result)
    return outcome is not None and bool(outcome.complete)


def criteria(result: Result) -> float:
    """Return the share of the separate judge's criteria that its last verdict found met.

    Raises:
        MissingScoreError: The conversation has no separate judge, the judge was not asked, or its
            last verdict could not be read.
    """
    found = findings(result)
    return sum(found.values()) / len(found)


def findings(result: Result) -> dict[str, bool]:
    """Return for each of the separate judge's criteria whether its last verdict found it met.

    Raises:
        MissingScoreError: The conversation has no separate judge, the judge was not asked, or its
            last verdict could not be read.
    """
    judge = result.conversation.judge
    if not isinstance(judge, SeparateJudge):
        raise MissingScoreError(_find_missing_judge(findings, result.conversation))
    found = _last_verdict(result).findings
    return {text: found.get(text) is Finding.MET for text in judge.criteria}


def _find_missing_judge(function: ScoreFunction, conversation: Conversation) -> str:
    """Return the reason why no session of a conversation can have a score, or an empty text."""
    if conversation.has_separate_judge:
        return ""
    if function in (criteria, findings):
        return 'the conversation has no separate judge; set judge.kind = "separate"'
    only_rounds = conversation.end_chat.mode is EndChatMode.MAX_ITERATIONS_ONLY
    no_judge = "the conversation has no judge; set its end_chat.mode or its judge"
    return no_judge if function is complete and only_rounds else ""


def check_judges(
    scores: Mapping[str, ScoreFunction],
    conversations: Iterable[Conversation],
    *,
    judge_at_end: bool,
) -> None:
    """Raise `SpecError` if a score or ``judge_at_end`` needs a judge that no conversation has."""
    missing = dict.fromkeys(scores, "")
    for conversation in conversations:
        judge_at_end = judge_at_end and not conversation.has_separate_judge
        reasons = {name: _find_missing_judge(scores[name], conversation) for name in missing}
        missing = {name: why for name, why in reasons.items() if why}
        if not (missing or judge_at_end):
            return
    if judge_at_end:
        raise SpecError(
            "judge_at_end: the conversation has no separate judge; set its field judge.criteria"
        )
    for name, why in missing.items():
        if why:
            raise SpecError(f"score: {name!r} would be missing: {why}")


def _last_verdict(result: Result) -> Verdict:
    """Return the session's last verdict, and raise if the session was not judged."""
    later = _later_verdict(result)
    verdicts = () if result.outcome is None else result.outcome.verdicts
    if later is None and not verdicts:
        raise MissingScoreError("the session ended before it was judged")
    last = later or verdicts[-1]
    if not last.readable:
        raise MissingScoreError("the last verdict could not be read")
    return last


def _later_verdict(result: Result) -> Verdict | None:
    """Return the newest verdict by the conversation's criteria after its end, or None.

    A verdict that could be read is preferred to newer verdicts that could not.
    """
    judge = result.conversation.judge
    if not isinstance(judge, SeparateJudge):
        return None
    found = verdicts_on(result.messages, result.later_verdicts)
    own = [one.verdict for one in found if one.judge.criteria == judge.criteria]
    return max(reversed(own), key=lambda verdict: verdict.readable, default=None)
