"""The verdicts of a judge about the criteria of a scenario, which are stored with the session."""

from ...nodes.models.adapters.composed import Chat
from ..conversation.judges import Finding, Verdict
from ..session.judging import judge_with
from ..session.listing import known_store
from ..session.options import Options
from ..session.session import Result, result_of
from .scenario import Scenario, ScenarioVerdict


async def judge_scenario(
    scenario: Scenario, found: Result, model: Chat | str | None, options: Options
) -> tuple[Result, tuple[ScenarioVerdict, ...]]:
    """Ask the conversation's judge about all criteria.

    Returns:
        The result with the stored verdict, and the verdicts about the criteria.
    """
    if not scenario.criteria:
        return found, ()
    async with known_store(found.session.store) as store:
        judged = await judge_with(store, found.session.id, None, model, options)
        return result_of(judged.session, store.url), read_verdict(scenario, judged.verdict)


def read_verdict(scenario: Scenario, verdict: Verdict) -> tuple[ScenarioVerdict, ...]:
    """Return a stored verdict as verdicts about the criteria of a scenario."""
    if not verdict.readable:
        unread = "the judge's answer could not be read"
        return tuple(
            ScenarioVerdict(text, Finding.INCONCLUSIVE, unread) for text in scenario.criteria
        )
    return tuple(_read_finding(text, verdict) for text in scenario.criteria)


def _read_finding(criterion: str, verdict: Verdict) -> ScenarioVerdict:
    reason = verdict.reasons.get(criterion)
    text, message = ("", None) if reason is None else (reason.text, reason.message)
    return ScenarioVerdict(criterion, verdict.findings[criterion], text, message)
