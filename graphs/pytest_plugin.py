"""A pytest plugin: fixtures that simulate users, trials, and a summary of the simulations.

Each pytest run loads this module, so it imports the rest of the package only when a fixture is
used.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from .scenarios.result import SimulationResult

_MARK: Final = "simulation"
_INCONCLUSIVE: Final = "inconclusive"


@dataclass(frozen=True)
class Trials:
    """How often a test runs, and how many of its trials must pass."""

    count: int
    at_least: int


Outcome = Literal["passed", "failed", "inconclusive"]


def decide(passed: int, failed: int, inconclusive: int, at_least: int) -> Outcome:
    """Return the outcome of a test from the outcomes of its trials.

    An inconclusive trial counts neither as passed nor as failed. The test is inconclusive if the
    inconclusive trials could change its outcome.

    Args:
        passed: Number of trials that passed.
        failed: Number of trials that failed.
        inconclusive: Number of inconclusive trials.
        at_least: Number of trials that must pass.
    """
    if passed >= at_least:
        return "passed"
    return "failed" if passed + inconclusive < at_least else "inconclusive"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command-line options of the plugin."""
    parser.getgroup("duologue", "simulated users (duologue)").addoption(
        "--simulate-trials",
        type=_read_count,
        metavar="N",
        help="run each test that simulates a user N times, unless its mark sets the trials",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Describe the mark."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(trials, at_least): run a test with simulated users several times. By default, "
        "all trials must pass",
    )


@dataclass
class _Simulations:
    """The simulations of one run of a test."""

    pages: Path | None
    """The folder of the pages of tests that have not passed. None without pytest's cache."""
    name: str
    """The test's name, as part of a file's name."""
    results: list[SimulationResult] = field(default_factory=list)

    def add(self, result: SimulationResult) -> SimulationResult:
        self.results.append(result)
        return result

    def page(self, number: int) -> Path | None:
        """Return the path of the page of a simulation, from 1."""
        return None if self.pages is None else self.pages / f"{self.name}-{number}.html"


_SIMULATIONS: Final = pytest.StashKey[_Simulations]()
_TRIAL: Final = pytest.StashKey[int]()


@pytest.fixture
def _simulations(request: pytest.FixtureRequest) -> _Simulations:
    trial = request.node.stash.get(_TRIAL, 1)
    name = re.sub(r"[^\w.-]+", "-", f"{request.node.nodeid}-{trial}").strip("-")[-100:]
    cache: pytest.Cache | None = getattr(request.config, "cache", None)
    found = _Simulations(None if cache is None else cache.mkdir("duologue"), name)
    request.node.stash[_SIMULATIONS] = found
    return found


@pytest.fixture
def simulate(_simulations: _Simulations) -> Callable[..., SimulationResult]:
    """Return the function `duologue.simulate`. The summary of the run contains its results."""
    from .scenarios.simulate import simulate as run

    return lambda *args, **options: _simulations.add(run(*args, **options))


@pytest.fixture
def asimulate(_simulations: _Simulations) -> Callable[..., Awaitable[SimulationResult]]:
    """Return the function `duologue.asimulate`, for async tests."""
    from .scenarios.simulate import asimulate as run

    async def simulate(*args: Any, **options: Any) -> SimulationResult:
        return _simulations.add(await run(*args, **options))

    return simulate


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test with simulated users as often as its trials. Each trial has new fixtures."""
    trials = _trials_of(item)
    if trials is None or trials.count == 1:
        return None
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _run_trials(item, nextitem, trials):
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Mark the report of an inconclusive test, and add its simulations."""
    report = yield
    found = item.stash.get(_SIMULATIONS, None)
    if call.when == "call" and found is not None and found.results:
        _add_simulations(report, found, call)
        item.user_properties += _properties(report.simulations)
        report.user_properties = list(item.user_properties)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, str] | None:
    """Return the words for an inconclusive test, which is reported neither as passed nor failed."""
    if getattr(report, "is_inconclusive", False):
        return _INCONCLUSIVE, "I", "INCONCLUSIVE"
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each simulation: how it ended, its verdicts, its cost, and its page."""
    reports = [
        report
        for category in terminalreporter.stats.values()
        for report in category
        if getattr(report, "simulations", None)
    ]
    for report in terminalreporter.getreports(_INCONCLUSIVE):
        terminalreporter.section(f"{report.nodeid} (inconclusive)", "_")
        terminalreporter.line(report.longreprtext)
    if not reports:
        return
    terminalreporter.section("simulated users")
    for report in reports:
        for line in _summary(report):
            terminalreporter.line(line)


def _trials_of(item: pytest.Item) -> Trials | None:
    """Return the trials of a test, or None if it simulates no user."""
    mark = item.get_closest_marker(_MARK)
    fixtures = getattr(item, "fixturenames", ())
    if mark is None and "_simulations" not in fixtures:
        return None
    asked = item.config.getoption("--simulate-trials")
    fields = {} if mark is None else _fields_of(item, mark)
    count = fields.get("trials", asked or 1)
    at_least = fields.get("at_least", count)
    if at_least > count:
        raise pytest.UsageError(
            f"{item.nodeid}: at_least: {at_least} of {count} trials can't pass; reduce it, or "
            "raise trials"
        )
    return Trials(count, at_least)


def _fields_of(item: pytest.Item, mark: pytest.Mark) -> dict[str, int]:
    names = ("trials", "at_least")
    fields = {**dict(zip(names, mark.args, strict=False)), **mark.kwargs}
    for name, value in fields.items():
        if name not in names or len(mark.args) > len(names):
            raise pytest.UsageError(
                f"{item.nodeid}: the mark {_MARK} has no field {name!r}; use trials and at_least"
            )
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise pytest.UsageError(f"{item.nodeid}: {name}: {value!r} is not a number above 0")
    return fields


def _read_count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError
    return int(text)


def _run_trials(
    item: pytest.Item, nextitem: pytest.Item | None, trials: Trials
) -> Sequence[pytest.TestReport]:
    """Run the trials of a test. Return its reports: those of its trials are joined."""
    from _pytest.runner import runtestprotocol

    calls, others = list[pytest.TestReport](), list[pytest.TestReport]()
    for number in range(1, trials.count + 1):
        is_last = number == trials.count
        # The fixtures of the module are kept until the last trial.
        following: Any = nextitem if is_last else item.parent
        item._initrequest()  # type: ignore[attr-defined]  # new fixtures
        item.stash[_SIMULATIONS] = _Simulations(None, "")
        item.stash[_TRIAL] = number
        item.user_properties.clear()
        reports = runtestprotocol(item, log=False, nextitem=following)
        calls += [one for one in reports if one.when == "call"]
        others += [one for one in reports if one.when != "call" and (is_last or not one.passed)]
        if not any(one.when == "call" for one in reports) or calls[-1].skipped:
            # It was skipped, or a fixture has failed.
            break
    first = [one for one in others if one.when == "setup"]
    last = [one for one in others if one.when == "teardown"]
    return [*first, *([_join(calls, trials)] if calls else []), *last]


def _join(calls: Sequence[pytest.TestReport], trials: Trials) -> pytest.TestReport:
    """Return one report of all trials."""
    whole = calls[0]
    if whole.skipped:
        return whole
    unclear = [one for one in calls if getattr(one, "is_inconclusive", False)]
    failed = [one for one in calls if one.failed and one not in unclear]
    passed = [one for one in calls if one.passed]
    counts = len(passed), len(failed), len(unclear)
    outcome = decide(*counts, trials.at_least)
    whole = {"passed": passed, "failed": failed or unclear, "inconclusive": unclear}[outcome][0]
    whole.simulations = [  # type: ignore[attr-defined]
        simulation for one in calls for simulation in getattr(one, "simulations", ())
    ]
    whole.trials = [*counts, trials.at_least]  # type: ignore[attr-defined]
    whole.is_inconclusive = outcome == _INCONCLUSIVE  # type: ignore[attr-defined]
    whole.duration = sum(one.duration for one in calls)
    whole.user_properties += [
        (f"simulation.trials.{name}", number)
        for name, number in zip(("passed", "failed", _INCONCLUSIVE), counts, strict=True)
    ]
    if outcome != "passed":
        whole.sections.append(("Trials", _describe_trials(*counts, trials.at_least)))
    return whole


def _add_simulations(
    report: pytest.TestReport, found: _Simulations, call: pytest.CallInfo[None]
) -> None:
    from .common.errors import InconclusiveResult

    error = None if call.excinfo is None else call.excinfo.value
    report.is_inconclusive = isinstance(error, InconclusiveResult)  # type: ignore[attr-defined]
    report.simulations = [  # type: ignore[attr-defined]
        _summarise(one, None if report.passed else found.page(number))
        for number, one in enumerate(found.results, 1)
    ]


def _summarise(result: SimulationResult, page: Path | None) -> dict[str, Any]:
    """Return the facts of a simulation as plain values, and write its page if a path is passed."""
    from .common.errors import DuologueError

    if page is not None:
        try:
            page.write_text(result.session.export(format="html"), encoding="utf-8")
        except (DuologueError, OSError):
            # The test's own failure is more important than its page.
            page = None
    outcome = result.conversation.outcome
    return {
        "scenario": " ".join(result.scenario.goal.split()),
        "ended": str(result.ended),
        "verdicts": ", ".join(f"[{one.finding.in_words}] {one.name}" for one in result.verdicts),
        "session": result.session.id,
        "cost": None if outcome is None else outcome.total.cost,
        "page": None if page is None else page.as_uri(),
    }


def _properties(simulations: Sequence[dict[str, Any]]) -> Iterator[tuple[str, object]]:
    """Yield the properties of a test for JUnit's XML."""
    for simulation in simulations:
        for name, value in simulation.items():
            if value is not None:
                yield f"simulation.{name}", value


def _describe_trials(passed: int, failed: int, inconclusive: int, at_least: int) -> str:
    """Return the counts of trials as a sentence."""
    count = passed + failed + inconclusive
    unclear = f", {inconclusive} inconclusive" if inconclusive else ""
    return f"{passed} of {count} trials passed{unclear}; at least {at_least} must pass."


def _summary(report: Any) -> Iterator[str]:  # noqa: ANN401  # with the fields of this plugin
    yield f"{report.nodeid}: {_INCONCLUSIVE if report.is_inconclusive else report.outcome}"
    if (counts := getattr(report, "trials", None)) is not None:
        yield f"  {_describe_trials(*counts)}{_estimates(counts)}"
    for simulation in report.simulations:
        cost = "" if simulation["cost"] is None else f"; cost {simulation['cost']:.4g}"
        yield f"  {simulation['scenario']}"
        yield f"    ended: {simulation['ended']}{cost}"
        if simulation["verdicts"]:
            yield f"    {simulation['verdicts']}"
        if simulation["page"] is not None:
            yield f"    {simulation['page']}"


def _estimates(counts: Sequence[int]) -> str:
    """Return pass^1 and pass^k of the trials, with their 95 % intervals."""
    from .batch.report.estimates import Trials as Scores, pass_hat

    passed, failed, *_ = counts
    if not (scored := passed + failed):
        return ""
    found = pass_hat([Scores(scored, passed)])
    shown = {k: found[k - 1] for k in sorted({1, len(found)})}
    texts = [
        f"pass^{k} {one.value:.2f} ({one.low:.2f} to {one.high:.2f})" for k, one in shown.items()
    ]
    return f" {', '.join(texts)}"
