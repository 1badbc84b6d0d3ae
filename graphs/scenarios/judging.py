"""The verdicts of judges and of checks about a simulation, which are stored with its session."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

from ...nodes.models.adapters.composed import Chat
from ...nodes.models.adapters.families import adapter_of
from ...tools.registry.functions import call
from ..common.errors import DuologueError, SpecError, name_type
from ..common.sanitize import excerpt
from ..conversation.judges import Finding, FindingReason
from ..session.judging import judge_with
from ..session.listing import known_store
from ..session.options import Options
from ..session.session import Result, result_of
from ..session.stored_session import LaterVerdict, verdicts_on
from .result import SimulationResult, classify_end, find_blank_reply
from .scenario import USER_KEPT, JudgeOpinion, Scenario, ScenarioVerdict
from .world import name_of


async def run_check(check: Callable[..., Any], result: SimulationResult) -> ScenarioVerdict:
    """Call a check.

    Raises:
        SpecError: The check raised another error than an AssertionError, or returned a value that
            is no decision.
    """
    name = name_of(check)
    try:
        found = await call("check", name, check, result)
    except SpecError as error:
        if not isinstance(error.__cause__, AssertionError):
            raise
        reason = " ".join(str(error.__cause__).split()) or "an assertion failed"
        return ScenarioVerdict(name, Finding.NOT_MET, reason)
    if found is None or found is True:
        return ScenarioVerdict(name, Finding.MET, "")
    if found is False:
        return ScenarioVerdict(name, Finding.NOT_MET, "it returned False")
    raise SpecError(
        f"the check {name!r} failed: it must return True, False or None, not {name_type(found)}"
    )


async def try_check(check: Callable[..., Any], result: SimulationResult) -> ScenarioVerdict:
    """Call a check. Its verdict is inconclusive if it fails, so that the other checks count."""
    try:
        return await run_check(check, result)
    except DuologueError as error:
        name, cause = name_of(check), error.__cause__
        said = str(error).removeprefix(f"the check {name!r} failed: ")
        is_own = cause is None or isinstance(cause, DuologueError)
        reason = str(cause or said) if is_own else f"it raised {said}"
        return ScenarioVerdict(name, Finding.INCONCLUSIVE, reason)


class Judges(NamedTuple):
    """The judges of a simulation."""

    names: tuple[str | None, ...]
    """The names of their models. None for the model of the conversation."""
    options: Options
    """The options of a run, with the models."""


def name_judges(given: Chat | str | Sequence[Chat | str] | None, options: Options) -> Judges:
    """Return one or two judges. A model that is an object gets a name.

    Raises:
        TypeError: There are no models, or more than two.
        SpecError: Both judges are the same model.
    """
    if given is None or isinstance(given, str) or not isinstance(given, Sequence):
        asked: Sequence[Chat | str | None] = [given]
    else:
        asked = given
    if len(asked) not in (1, 2):
        raise TypeError(f"judge_model: must be a model or a list of two models, not {len(asked)}")
    models = {**(options.get("models") or {})}
    names: list[str | None] = []
    for one in asked:
        name = one if one is None or isinstance(one, str) else _name_object(one, names, models)
        names.append(name)
    if len(set(names)) < len(names):
        raise SpecError(
            f"judge_model: both judges are the model {names[0]!r}; pass two different models"
        )
    return Judges(tuple(names), options | {"models": models})


def _name_object(model: Chat, names: Sequence[str | None], models: dict[str, Chat]) -> str:
    if isinstance(model, type) or not hasattr(model, "invoke"):
        raise TypeError(f"judge_model: must be a model or its name, not {name_type(model)}")
    # The verdict is stored with the model's name, and an object has none.
    label = adapter_of(None, model).label
    name = f"{label} (2)" if label in names else label
    models[name] = model
    return name


async def judge_scenario(
    scenario: Scenario, found: Result, *, judges: Judges
) -> tuple[Result, tuple[ScenarioVerdict, ...]]:
    """Ask each judge once about all criteria.

    Returns:
        The result with the stored verdicts, and the verdicts about the criteria.
    """
    for name in judges.names if scenario.judged else ():
        async with known_store(found.session.store) as store:
            judged = await judge_with(store, found.session.id, None, name, judges.options)
            found = result_of(judged.session, store.address)
    return found, read_criteria(found, scenario, judges.names)


def _read(stored: LaterVerdict, criterion: str) -> tuple[Finding, str, int | None]:
    """Return the decision on a criterion or check, its reason, and the message that shows it."""
    verdict = stored.verdict
    if not verdict.readable:
        said = excerpt(stored.answer) or "(no text)"
        return Finding.INCONCLUSIVE, f"the judge's answer could not be read: {said}", None
    reason = verdict.reasons.get(criterion) or FindingReason(text="")
    return verdict.findings[criterion], reason.text, reason.message


def _combine(criterion: str, opinions: Sequence[JudgeOpinion]) -> ScenarioVerdict:
    """Return the verdict of one judge, or of two judges, which is inconclusive if they differ."""
    first, *others = opinions
    kept = tuple(opinions) if others else ()
    if all(one.finding is first.finding for one in others):
        return ScenarioVerdict(criterion, first.finding, first.reason, first.message, kept)
    described = "; ".join(
        f"{one.judge}: {one.finding.in_words}, {one.reason.rstrip(' .')}" for one in opinions
    )
    message = next((one.message for one in opinions if one.message is not None), None)
    reason = f"the judges differ ({described})"
    return ScenarioVerdict(criterion, Finding.INCONCLUSIVE, reason, message, kept)


def name_checks(scenario: Scenario) -> list[str]:
    """Return a unique name for each check of a scenario."""
    names: list[str] = []
    for check in scenario.checks:
        name = name_of(check)
        same = sum(one.partition(" (")[0] == name for one in names)
        names.append(f"{name} ({same + 1})" if same else name)
    return names


def read_simulation(
    result: Result, scenario: Scenario, checks: Sequence[str], judges: Sequence[str | None] = ()
) -> SimulationResult:
    """Return the result of a simulation with the verdicts that are stored beside its session.

    Args:
        result: The session.
        scenario: The scenario. Its checks are not called.
        checks: The names of its checks.
        judges: The names of the models of two judges. Not used if there is one judge.
    """
    stored = find_stored_checks(result, checks)
    checked = (
        ScenarioVerdict(name, Finding.INCONCLUSIVE, "the check was not called")
        if stored is None
        else ScenarioVerdict(name, *_read(stored, name))
        for name in checks
    )
    verdicts = (*read_criteria(result, scenario, judges), *checked)
    return SimulationResult(scenario, result, classify_end(result), None, verdicts)


def find_stored_checks(result: Result, names: Sequence[str]) -> LaterVerdict | None:
    """Return the stored verdict of the checks with these names, or None."""
    found = verdicts_on(result.messages, result.later_verdicts)
    own = (one for one in found if one.judge.criteria == tuple(names) and not one.answer)
    return next(own, None)


def read_criteria(
    result: Result, scenario: Scenario, judges: Sequence[str | None]
) -> tuple[ScenarioVerdict, ...]:
    """Return the stored verdict on each criterion: of two judges, or of the newest one judge."""
    stored = [
        one
        for one in verdicts_on(result.messages, result.later_verdicts)
        if one.judge.criteria == scenario.judged and (one.answer or not one.verdict.readable)
    ]
    own = {"": stored}
    if len(judges) > 1:
        own = {name or "": [one for one in stored if one.judge.model == name] for name in judges}
    # The newest verdict that could be read, or the newest one.
    verdicts = {
        name: max(reversed(given), key=lambda one: one.verdict.readable)
        for name, given in own.items()
        if given
    }
    is_readable = all(one.verdict.readable for one in verdicts.values())
    found: list[ScenarioVerdict] = []
    for name, text in zip_longest(scenario.criteria, scenario.judged, fillvalue=USER_KEPT):
        opinions = [JudgeOpinion(judge, *_read(one, text)) for judge, one in verdicts.items()]
        if len(opinions) == len(own):
            found.append(replace(_combine(name, opinions), is_readable=is_readable))
        else:
            missing = "the judge returned no verdict"
            found.append(ScenarioVerdict(name, Finding.INCONCLUSIVE, missing))
    blank = None if scenario.blank_replies else find_blank_reply(result)
    return tuple(found) if blank is None else (*found, blank)
