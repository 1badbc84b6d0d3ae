"""The simulations in the reports of pytest, as plain values, and their summary in the terminal."""

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest

from ..batch.report.estimates import Trials, pass_hat
from ..common.errors import DuologueError
from ..common.sanitize import clean
from ..common.secrets_filter import SecretsFilter
from .result import SimulationResult

INCONCLUSIVE: Final = "inconclusive"
"""The outcome of a test that is neither passed nor failed."""

_LONGEST_NAME: Final = 100  # characters


def name_file(test: str) -> str:
    """Return the id of a test as the name of a file. Different ids have different names."""
    plain = re.sub(r"::|\[", "-", test.removesuffix("]"))
    name = re.sub(r"[^\w.-]+", "-", plain)
    if name == plain and len(name) <= _LONGEST_NAME:
        return name
    return f"{name[-_LONGEST_NAME:].strip('-')}-{sha256(test.encode()).hexdigest()[:6]}"


def summarize(result: SimulationResult, page: Path | None) -> dict[str, Any]:
    """Return the facts of a simulation as plain values, without keys.

    Args:
        result: The result.
        page: The path to which the conversation's page is written. No page if None.
    """
    secrets = SecretsFilter()
    if page is not None:
        try:
            text = secrets.text(result.session.export(format="html"))
            page.write_text(text, encoding="utf-8")
        except (DuologueError, OSError):
            # The test's own failure is more important than its page.
            page = None
    outcome = result.conversation.outcome
    verdicts = ", ".join(f"[{one.finding.in_words}] {one.name}" for one in result.verdicts)
    return {
        "scenario": secrets.text(" ".join(result.scenario.goal.split())),
        "ended": secrets.text(str(result.ended)),
        "verdicts": secrets.text(verdicts),
        "agreement": None if result.agreement is None else str(result.agreement),
        "session": result.session.id,
        "cost": None if outcome is None else outcome.total.cost,
        "page": None if page is None else page.as_uri(),
    }


def list_properties(simulations: Sequence[dict[str, Any]]) -> Iterator[tuple[str, object]]:
    """Yield the properties of a test for JUnit's XML."""
    for simulation in simulations:
        for name, value in simulation.items():
            if value is not None:
                yield f"simulation.{name}", value


def hide_keys(report: pytest.TestReport) -> None:
    """Hide keys in the error and the captured output of a report."""
    secrets = SecretsFilter()
    text = report.longreprtext
    if text and (shown := secrets.text(text)) != text:
        # A text replaces the structure, whose parts pytest prints separately.
        report.longrepr = shown
    report.sections = [(name, secrets.text(content)) for name, content in report.sections]


def describe_trials(passed: int, failed: int, inconclusive: int, at_least: int) -> str:
    """Return the counts of trials as a sentence."""
    count = passed + failed + inconclusive
    unclear = f", {inconclusive} inconclusive" if inconclusive else ""
    return f"{passed} of {count} trials passed{unclear}; at least {at_least} must pass."


def list_summary_lines(report: Any) -> Iterator[str]:  # noqa: ANN401  # with the plugin's fields
    """Yield the lines about a test in the summary: its simulations, and the trials if several."""
    yield f"{report.nodeid}: {INCONCLUSIVE if report.is_inconclusive else report.outcome}"
    if (counts := getattr(report, "trials", None)) is not None:
        yield f"  {describe_trials(*counts)}{_estimate(counts)}"
    for simulation in report.simulations:
        cost = "" if simulation["cost"] is None else f"; cost {simulation['cost']:.4g}"
        yield f"  {_show(simulation['scenario'])}"
        yield f"    ended: {_show(simulation['ended'])}{cost}"
        if simulation["verdicts"]:
            yield f"    {_show(simulation['verdicts'])}"
        if simulation["agreement"] is not None:
            yield f"    {simulation['agreement']}"
        if simulation["page"] is not None:
            yield f"    {simulation['page']}"


def _estimate(counts: Sequence[int]) -> str:
    """Return pass^1 and pass^k of the trials, with their 95 % intervals."""
    passed, failed, *_ = counts
    if not (scored := passed + failed):
        return ""
    found = pass_hat([Trials(scored, passed)])
    shown = {k: found[k - 1] for k in sorted({1, len(found)})}
    texts = [
        f"pass^{k} {one.value:.2f} ({one.low:.2f} to {one.high:.2f})" for k, one in shown.items()
    ]
    return f" {', '.join(texts)}"


def _show(text: str) -> str:
    """Return a text as a line for the terminal."""
    return clean(" ".join(text.split()))
