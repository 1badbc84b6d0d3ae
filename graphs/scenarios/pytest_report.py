"""The trials of a run of pytest: their reports, their summary, and their files.

Each finished trial is a file in the folder of its run, so that a later run can skip it. It contains
the report of the trial, and digests of the scenarios and the agent's version, by which the later
run notices that they have changed.
"""

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from inspect import getsource
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

import pytest
from pydantic import BaseModel

from ..batch.report.rows import Trials, pass_hat
from ..common.errors import DuologueError
from ..common.files import write_file
from ..common.sanitize import clean
from ..common.secrets_filter import SecretsFilter
from .result import SimulationResult
from .scenario import Scenario
from .suite_report import describe_passes

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
            write_file(page, text)
        except DuologueError:
            # The test's own failure is more important than its page.
            page = None
    outcome = result.conversation.outcome
    verdicts = ", ".join(f"[{one.finding.in_words}] {one.name}" for one in result.verdicts)
    return {
        "scenario": secrets.text(" ".join(result.scenario.goal.split())),
        "ended": secrets.text(str(result.ended)),
        "verdicts": secrets.text(verdicts),
        "at_fault": result.at_fault,
        "user_errors": secrets.text("; ".join(map(str, result.user_errors))) or None,
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
        passed, failed, *_ = counts
        passes = describe_passes(pass_hat([Trials(passed + failed, passed)])).removeprefix(";")
        yield f"  {describe_trials(*counts)}{passes}"
    for simulation in report.simulations:
        cost = "" if simulation["cost"] is None else f"; cost {simulation['cost']:.4g}"
        yield f"  {_show(simulation['scenario'])}"
        yield f"    ended: {_show(simulation['ended'])}{cost}"
        if simulation["verdicts"]:
            yield f"    {_show(simulation['verdicts'])}"
        if simulation["user_errors"]:
            yield f"    {_show(simulation['user_errors'])}"
        if simulation["agreement"] is not None:
            yield f"    {simulation['agreement']}"
        if simulation["page"] is not None:
            yield f"    {simulation['page']}"


def _show(text: str) -> str:
    """Return a text as a line for the terminal."""
    return clean(" ".join(text.split()))


_KEPT: Final = 20
"""Number of runs that are kept."""

Digests = dict[str, str | None]
"""The digests of a scenario's fields, and the agent's version, by name."""


class FinishedTrial(BaseModel):
    """A trial that passed, failed or was inconclusive."""

    test: str
    """The id of the test."""
    source: str
    """The digest of the test's file."""
    scenarios: list[Digests]
    """The simulations, in the order of their beginnings."""
    report: dict[str, Any]
    """The report, as pytest serializes it."""

    def find_change(self, now: Digests, source: str) -> str | None:
        """Return the part of the test that has changed since the trial, or None.

        Args:
            now: The first simulation of the test as it is now.
            source: The digest of the test's file as it is now.
        """
        known = self.scenarios[0]
        for name in known | now:
            if known.get(name) != now.get(name):
                return name
        # The scenarios after the first are only known when the test runs.
        return "the test's file" if len(self.scenarios) > 1 and self.source != source else None


def digest_scenario(scenario: Scenario, agent_version: str | None) -> Digests:
    """Return the digests of a scenario's fields, and the agent's version."""
    fields: Digests = {f"scenario.{name}": _digest(_describe(value)) for name, value in scenario}
    return fields | {"agent_version": agent_version}


def digest_file(path: Path) -> str:
    """Return a digest of a file. Empty if it can't be read."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def list_runs(folder: Path) -> list[str]:
    """Return the names of the runs in a folder, newest first."""
    return sorted((one.name for one in folder.iterdir() if one.is_dir()), reverse=True)


def read_trial(folder: Path, test: str, trial: int) -> FinishedTrial | None:
    """Return a finished trial of a run. None if it is not finished, or its file is damaged."""
    try:
        text = _trial_file(folder, test, trial).read_text(encoding="utf-8")
        return FinishedTrial.model_validate_json(text)
    except (OSError, ValueError):
        return None


def write_trial(folder: Path, trial: int, finished: FinishedTrial) -> None:
    """Store a finished trial in the folder of its run. The oldest of many runs are deleted."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        for name in list_runs(folder.parent)[_KEPT:]:
            rmtree(folder.parent / name, ignore_errors=True)
    text = json.dumps(finished.model_dump(), default=str)
    write_file(_trial_file(folder, finished.test, trial), text)


def _trial_file(folder: Path, test: str, trial: int) -> Path:
    return folder / f"{_digest(test)}-{trial}.json"


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:24]


def _describe(value: Any) -> str:  # noqa: ANN401  # any field of a scenario
    """Return a text that is the same in each process, with the source code of functions."""
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_describe, value))}]"
    described = [re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))]
    # The object itself, or the fields of an object such as a step of a script.
    for function in filter(callable, (value, *getattr(value, "__dict__", {}).values())):
        try:
            described.append(getsource(function))
        except (OSError, TypeError):
            described.append(getattr(function, "__qualname__", type(function).__qualname__))
    return " ".join(described)
