"""The verdicts of judges about the criteria of a scenario, which are stored with the session."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ...nodes.models.adapters.composed import Chat
from ...nodes.models.adapters.families import adapter_of
from ..common.errors import SpecError, name_type
from ..conversation.judges import Finding, Verdict
from ..session.judging import judge_with
from ..session.listing import known_store
from ..session.options import Options
from ..session.session import Result, result_of
from .scenario import JudgeOpinion, Scenario, ScenarioVerdict

_UNREAD: Final = "the judge's answer could not be read"


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
    if not scenario.criteria:
        return found, ()
    verdicts: dict[str, Verdict] = {}
    for name in judges.names:
        async with known_store(found.session.store) as store:
            judged = await judge_with(store, found.session.id, None, name, judges.options)
            found = result_of(judged.session, store.address)
        verdicts[name or ""] = judged.verdict
    return found, read_verdicts(scenario, verdicts)


def read_verdicts(scenario: Scenario, verdicts: dict[str, Verdict]) -> tuple[ScenarioVerdict, ...]:
    """Return stored verdicts as verdicts about the criteria of a scenario.

    Args:
        scenario: The scenario.
        verdicts: The verdict of each judge, by the name of its model: one or two.
    """
    return tuple(_combine(text, _read_opinions(text, verdicts)) for text in scenario.criteria)


def _read_opinions(criterion: str, verdicts: dict[str, Verdict]) -> tuple[JudgeOpinion, ...]:
    return tuple(_read_opinion(criterion, name, one) for name, one in verdicts.items())


def _read_opinion(criterion: str, judge: str, verdict: Verdict) -> JudgeOpinion:
    if not verdict.readable:
        return JudgeOpinion(judge, Finding.INCONCLUSIVE, _UNREAD)
    reason = verdict.reasons.get(criterion)
    text, message = ("", None) if reason is None else (reason.text, reason.message)
    return JudgeOpinion(judge, verdict.findings[criterion], text, message)


def _combine(criterion: str, opinions: tuple[JudgeOpinion, ...]) -> ScenarioVerdict:
    """Return the verdict of one judge, or of two judges, which is inconclusive if they differ."""
    first, *others = opinions
    kept = opinions if others else ()
    if all(one.finding is first.finding for one in others):
        return ScenarioVerdict(criterion, first.finding, first.reason, first.message, kept)
    described = "; ".join(
        f"{one.judge}: {one.finding.in_words}, {one.reason.rstrip(' .')}" for one in opinions
    )
    message = next((one.message for one in opinions if one.message is not None), None)
    reason = f"the judges differ ({described})"
    return ScenarioVerdict(criterion, Finding.INCONCLUSIVE, reason, message, kept)
