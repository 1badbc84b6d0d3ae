"""A pytest plugin: fixtures that simulate users, trials, and a summary of the simulations.

Each pytest run loads this module, so it imports the rest of the package only when a fixture is
used.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from secrets import token_hex
from time import localtime, strftime
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

if TYPE_CHECKING:
    from .scenarios.pytest_report import SimulatedTrial
    from .scenarios.result import SimulationResult

_MARK: Final = "simulation"
_INCONCLUSIVE: Final = "inconclusive"
_RUN: Final = pytest.StashKey[str]()
_RUN_OF_WORKER: Final = "duologue_run"


@dataclass(frozen=True)
class Trials:
    """The number of trials of a test, and the number that must pass."""

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
    """Add the command-line options and the settings of the plugin."""
    group = parser.getgroup("duologue", "simulated users (duologue)")
    group.addoption(
        "--simulate-trials",
        type=_read_count,
        metavar="N",
        help="run each test that simulates a user N times, unless its mark sets the trials",
    )
    group.addoption(
        "--simulate-record",
        choices=("new", "all", "none"),
        help="record the answers of models and servers beside the tests, and replay them: 'new' "
        "records simulations without a recording and replays the others, 'all' records all, "
        "'none' replays all and refuses any call",
    )
    group.addoption(
        "--simulate-resume",
        metavar="RUN",
        help="skip the trials that an interrupted run has finished; 'last' is the newest run",
    )
    parser.addini(
        "simulate_filter",
        "regular expressions of texts that no recording may contain",
        type="linelist",
        default=[],
    )
    parser.addini(
        "simulate_allow",
        "hosts and programs that recordings do not contain, and that 'none' does not refuse",
        type="linelist",
        default=[],
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Describe the mark, register the hook around all others, and name the run."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(trials, at_least): run a test with simulated users several times. By default, "
        "all trials must pass",
    )
    config.pluginmanager.register(_LastWrapper())
    # A worker of pytest-xdist belongs to the run of its controller.
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    if _RUN_OF_WORKER in worker:
        config.stash[_RUN] = worker[_RUN_OF_WORKER]
    elif (resumed := config.getoption("--simulate-resume")) is not None:
        config.stash[_RUN] = _find_run(config, resumed)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # noqa: ANN401  # of pytest-xdist
    """Pass the run's name to a worker of pytest-xdist."""
    node.workerinput[_RUN_OF_WORKER] = _run_of(node.config)


def pytest_report_collectionfinish(
    config: pytest.Config, items: Sequence[pytest.Item]
) -> list[str]:
    """Name the run before the first test, since an interrupted run prints no summary."""
    simulates = any("_simulations" in getattr(item, "fixturenames", ()) for item in items)
    return [f"simulated users: run {_run_of(config)}"] if simulates else []


def _run_of(config: pytest.Config) -> str:
    """Return the name of the run, which is made at its first use."""
    if _RUN not in config.stash:
        config.stash[_RUN] = f"{strftime('%Y%m%d-%H%M%S', localtime())}-{token_hex(2)}"
    return config.stash[_RUN]


def _find_run(config: pytest.Config, name: str) -> str:
    """Return the name of the run to resume, or raise UsageError if there is no such run."""
    from .scenarios.pytest_report import RUNS, find_cache_folder, list_runs

    folder = find_cache_folder(config, RUNS)
    known = [] if folder is None else list_runs(folder)
    found = known[0] if name == "last" and known else name
    if found not in known:
        listed = f"choose one of {', '.join(known)}" if known else "no run has finished a trial"
        raise pytest.UsageError(f"--simulate-resume: there is no run {name!r}; {listed}")
    return found


_SIMULATIONS: Final = pytest.StashKey["SimulatedTrial"]()
_TRIAL: Final = pytest.StashKey[int]()


def _begin_trial(item: pytest.Item, number: int) -> SimulatedTrial:
    from .scenarios.pytest_report import SimulatedTrial

    item.stash[_SIMULATIONS] = found = SimulatedTrial(item, number, _run_of(item.config))
    return found


@pytest.fixture
def _simulations(request: pytest.FixtureRequest) -> SimulatedTrial:
    return _begin_trial(request.node, request.node.stash.get(_TRIAL, 1))


@pytest.fixture
def simulate(asimulate: Callable[..., Coroutine[Any, Any, SimulationResult]]) -> Callable[..., Any]:
    """Return the function `duologue.simulate`. The summary of the run contains its results."""
    from .common.threads import in_background

    return in_background(asimulate)


@pytest.fixture
def asimulate(
    _simulations: SimulatedTrial,
) -> Callable[..., Coroutine[Any, Any, SimulationResult]]:
    """Return the function `duologue.asimulate`, for async tests."""
    return _simulations.asimulate


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
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Note the error of each attempt: a plugin may repeat a test before it is reported."""
    try:
        yield
    except BaseException as error:
        if (trial := item.stash.get(_SIMULATIONS, None)) is not None:
            trial.note_error(error)
        raise


class _LastWrapper:
    """A hook around the same hooks of all other plugins, because it is registered last.

    pytest-retry repeats a test inside this hook, and reports its last attempt.
    """

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Mark the report of an inconclusive test, add its simulations, and hide keys."""
        report = yield
        found = item.stash.get(_SIMULATIONS, None)
        return report if found is None else found.complete_report(report, call.when)


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, str] | None:
    """Return the words for an inconclusive test, which is reported neither as passed nor failed."""
    # An attempt that another plugin repeats has another outcome, such as "rerun".
    if report.failed and getattr(report, "is_inconclusive", False):
        return _INCONCLUSIVE, "I", "INCONCLUSIVE"
    return None


_CATEGORIES: Final = (_INCONCLUSIVE, "failed", "passed", "skipped", "xfailed", "xpassed")
"""The categories of the tests that are listed. An attempt that a plugin has repeated is not."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each simulation: how it ended, its verdicts, its cost, and its page."""
    reports = [
        report
        for category in _CATEGORIES
        for report in terminalreporter.stats.get(category, ())
        if getattr(report, "simulations", None)
    ]
    for report in terminalreporter.getreports(_INCONCLUSIVE):
        terminalreporter.section(f"{report.nodeid} (inconclusive)", "_")
        terminalreporter.line(report.longreprtext)
    if not reports:
        return
    from .scenarios.pytest_report import list_summary_lines

    terminalreporter.section("simulated users")
    for report in reports:
        for line in list_summary_lines(report):
            terminalreporter.line(line)
    run = _run_of(terminalreporter.config)
    terminalreporter.line(f"run {run}; if it was interrupted: pytest --simulate-resume {run}")


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
        _begin_trial(item, number)
        item.stash[_TRIAL] = number
        item.user_properties.clear()
        reports = runtestprotocol(item, log=False, nextitem=following)
        calls += [one for one in reports if one.when == "call"]
        others += [one for one in reports if one.when != "call" and (is_last or not one.passed)]
        if not any(one.when == "call" for one in reports):
            # A fixture has failed.
            break
        if not _counts(calls[-1]):
            calls = calls[-1:]
            break
    first = [one for one in others if one.when == "setup"]
    last = [one for one in others if one.when == "teardown"]
    joined = [_join(calls, trials)] if calls else []
    for one in last if joined else ():
        # JUnit's file contains the properties of this report.
        one.user_properties = joined[0].user_properties
    return [*first, *joined, *last]


def _counts(report: pytest.TestReport) -> bool:
    """Return whether the report of a trial counts, and does not decide the whole test."""
    return not report.skipped and not getattr(report, "is_refused", False)


def _join(calls: Sequence[pytest.TestReport], trials: Trials) -> pytest.TestReport:
    """Return one report of all trials."""
    whole = calls[0]
    if not _counts(whole):
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
    whole.user_properties = [pair for one in calls for pair in one.user_properties] + [
        (f"simulation.trials.{name}", number)
        for name, number in zip(("passed", "failed", _INCONCLUSIVE), counts, strict=True)
    ]
    if outcome != "passed":
        from .scenarios.pytest_report import describe_trials

        whole.sections.append(("Trials", describe_trials(*counts, trials.at_least)))
    return whole
