"""The trials of a run of pytest: their reports, their summary, and their files.

Each finished trial is a file in the folder of its run, so that a later run can skip it. It contains
the report of the trial, and digests of the scenarios and the agent's version, by which the later
run notices that they have changed.
"""

import json
import re
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from inspect import getsource
from pathlib import Path
from shutil import rmtree
from typing import Any, Final, Literal

import pytest
from _pytest.outcomes import OutcomeException
from pydantic import BaseModel

from ..batch.report.rows import Trials, pass_hat
from ..common.errors import DuologueError, InconclusiveResult
from ..common.files import write_file
from ..common.sanitize import clean
from ..common.secrets_filter import SecretsFilter
from .recording import RecordingError, RecordOptions, record
from .result import SimulationResult, describe_outcome
from .scenario import Scenario
from .simulate import asimulate
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


def _summarize(result: SimulationResult, folder: Path | None, name: str) -> dict[str, Any]:
    """Return the facts of a simulation as plain values, without keys.

    Args:
        result: The result.
        folder: The folder to which the conversation's page is written. No page if None.
        name: The name of the page.
    """
    secrets = SecretsFilter()
    page = None if folder is None else folder / f"{name}.html"
    if page is not None:
        try:
            write_file(page, secrets.text(result.session.export(format="html")))
        except DuologueError:
            # The test's own failure is more important than its page.
            page = None
    outcome = result.conversation.outcome
    verdicts = ", ".join(f"[{one.finding.in_words}] {one.name}" for one in result.verdicts)
    return {
        "scenario": secrets.text(" ".join(result.scenario.goal.split())),
        "outcome": secrets.text(describe_outcome(result.outcome, result.reasons)),
        "ended": secrets.text(str(result.ended)),
        "verdicts": secrets.text(verdicts),
        "at_fault": result.at_fault,
        "user_errors": secrets.text("; ".join(map(str, result.user_errors))) or None,
        "agreement": None if result.agreement is None else str(result.agreement),
        "session": result.session.id,
        "cost": None if outcome is None else outcome.total.cost,
        "page": None if page is None else page.as_uri(),
    }


def _hide_keys(report: pytest.TestReport) -> None:
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
        passes = describe_passes(pass_hat([Trials(passed + failed, passed)]))
        yield f"  {describe_trials(*counts).removesuffix('.')}{passes}"
    for one in report.simulations:
        cost = "" if one["cost"] is None else f"; cost {one['cost']:.4g}"
        lines = [one["outcome"], f"ended: {one['ended']}{cost}"]
        lines += [one[name] for name in ("verdicts", "user_errors", "agreement", "page")]
        yield f"  {_show(one['scenario'])}"
        yield from (f"    {_show(text)}" for text in lines if text)


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


RUNS: Final = "duologue-runs"
"""The folder of the runs in pytest's cache."""


def find_cache_folder(config: pytest.Config, name: str) -> Path | None:
    """Return a folder of pytest's cache. None without the cache."""
    cache: pytest.Cache | None = getattr(config, "cache", None)
    return None if cache is None else cache.mkdir(name)


class _FinishedBeforeError(OutcomeException):
    """The trial was finished by the run that is resumed."""


@dataclass
class SimulatedTrial:
    """A trial of a test, with its simulations."""

    item: pytest.Item
    """The test."""
    number: int
    """The number of the trial, from 1."""
    run: str
    """The name of the run."""
    results: list[SimulationResult] = field(default_factory=list)
    scenarios: list[Digests] = field(default_factory=list)
    """The scenarios and the agent's versions, in the order of their beginnings."""
    finished: FinishedTrial | None = None
    """The same trial in the run that is resumed. None if it is not finished."""
    is_refused: bool = False
    """Whether the test differs from the resumed run or a recording, which fails all trials."""
    is_inconclusive: bool = False
    """Whether the test has ended as inconclusive."""
    is_decided: bool = True
    """Whether the test has ended without an error, by an assertion, or as inconclusive."""

    def note_error(self, error: BaseException) -> None:
        """Note the error with which the test has ended."""
        self.is_inconclusive = isinstance(error, InconclusiveResult)
        self.is_decided = isinstance(error, AssertionError | InconclusiveResult)

    @property
    def folder(self) -> Path | None:
        """The folder of the finished trials of the run. None without pytest's cache."""
        folder = find_cache_folder(self.item.config, RUNS)
        return None if folder is None else folder / self.run

    async def asimulate(self, scenario: Any, agent: Any = None, **options: Any) -> SimulationResult:  # noqa: ANN401
        """Run a simulation, or end the test if its trial is finished."""
        work = partial(asimulate, scenario, agent, **options)
        if not isinstance(scenario, Scenario):
            return await work()  # It raises the error.
        self._begin(digest_scenario(scenario, options.get("agent_version")))
        result = await self._record(scenario, work)
        self.results.append(result)
        return result

    def _begin(self, now: Digests) -> None:
        """Note a simulation before it begins, and end the test if its trial is finished."""
        is_resumed = self.item.config.getoption("--simulate-resume") is not None
        if is_resumed and not self.scenarios and self.folder is not None:
            self.finished = read_trial(self.folder, self.item.nodeid, self.number)
        self.scenarios.append(now)
        if self.finished is None:
            return
        change = self.finished.find_change(now, digest_file(self.item.path))
        if change is None:
            raise _FinishedBeforeError("finished before")
        self.finished, self.is_refused = None, True
        pytest.fail(
            f"{change}: differs from the run {self.run}, so its trials can't be continued; start "
            "a new run without --simulate-resume",
            pytrace=False,
        )

    async def _record(
        self, scenario: Scenario, work: Callable[[], Coroutine[Any, Any, SimulationResult]]
    ) -> SimulationResult:
        """Run a simulation, and record or replay it if the option ``--simulate-record`` is set."""
        config = self.item.config
        mode = config.getoption("--simulate-record")
        if mode is None:
            return await work()
        test = self.item.nodeid.partition("::")[2] or self.item.name
        more = f"-trial{self.number}" if self.number > 1 else ""
        more += f"-{len(self.scenarios)}" if len(self.scenarios) > 1 else ""
        folder = self.item.path.parent / "recordings" / self.item.path.stem
        patterns, allowed = (config.getini(f"simulate_{name}") for name in ("filter", "allow"))
        options = RecordOptions(mode, tuple(patterns), tuple(allowed))
        try:
            return await record(folder / f"{name_file(test)}{more}.json", options, scenario, work)
        except RecordingError:
            self.is_refused = True
            raise

    def complete_report(
        self, report: pytest.TestReport, when: Literal["collect", "setup", "call", "teardown"]
    ) -> pytest.TestReport:
        """Mark the report of an inconclusive test, add its simulations, and hide keys."""
        item = self.item
        if when == "call" and self.finished is not None:
            restore = item.config.hook.pytest_report_from_serializable
            earlier: pytest.TestReport = restore(config=item.config, data=self.finished.report)
            item.user_properties = [*earlier.user_properties]
            return earlier
        add_section = getattr(report.longrepr, "addsection", None)
        if when == "call" and self.is_inconclusive and add_section is not None:
            for one in self.results:
                add_section("simulation", one.report())
        _hide_keys(report)
        report.is_refused = self.is_refused  # type: ignore[attr-defined]
        if when == "call" and self.results:
            report.is_inconclusive = self.is_inconclusive  # type: ignore[attr-defined]
            folder = None if report.passed else find_cache_folder(item.config, "duologue")
            simulations = [
                _summarize(one, folder, name_file(f"{item.nodeid}-{self.number}-{number}"))
                for number, one in enumerate(self.results, 1)
            ]
            report.simulations = simulations  # type: ignore[attr-defined]
            # The properties of an earlier attempt are replaced.
            kept = [one for one in item.user_properties if not one[0].startswith("simulation.")]
            item.user_properties[:] = kept + [
                (f"simulation.{name}", value)
                for one in simulations
                for name, value in one.items()
                if value is not None
            ]
            report.user_properties = [*item.user_properties]
            # A trial that another error has ended, such as that of a server that is down, runs
            # again.
            if self.is_decided:
                self._store(report)
        return report

    def _store(self, report: pytest.TestReport) -> None:
        """Store the trial, which passed, failed by an assertion, or was inconclusive.

        The oldest of many runs are deleted.
        """
        folder, item = self.folder, self.item
        if folder is None or not self.scenarios:
            return
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            for name in list_runs(folder.parent)[_KEPT:]:
                rmtree(folder.parent / name, ignore_errors=True)
        data = item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
        finished = FinishedTrial(
            test=item.nodeid, source=digest_file(item.path), scenarios=self.scenarios, report=data
        )
        text = json.dumps(finished.model_dump(), default=str)
        write_file(_trial_file(folder, item.nodeid, self.number), text)
