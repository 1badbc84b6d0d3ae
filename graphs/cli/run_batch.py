"""Runs and exports of batches and suites: the status is shown, and a signal pauses the run."""

import asyncio
import gc
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...tools.registry.functions import import_object
from ..batch.driver import BatchSettings, Driver
from ..batch.export import ExportManifest
from ..batch.report.report import check_page
from ..batch.run import BatchRun, open_driver, plan_batch
from ..batch.status import BatchStatus, read_status
from ..batch.worker import COLLECTED
from ..common.errors import SpecError
from ..common.files import check_writable, is_device, make_folders, read_file, write_file
from ..scenarios.ci_files import describe_junit, describe_markdown
from ..scenarios.compare import SuiteComparison, compare_suites
from ..scenarios.generate import agenerate_scenarios
from ..scenarios.simulate import SimulateOptions
from ..scenarios.suite import Suite
from ..scenarios.suite_report import (
    SuiteReport,
    TrialOutcome,
    count_outcomes,
    read_suite,
    write_suite_page,
)
from ..scenarios.suite_run import open_suite
from ..session.listing import known_store
from ..session.options import Options
from ..store.batches import CellRow
from .options import ExitCode, handle_signals, run_to_exit
from .sessions import print_status
from .terminal.console import cell, json_line, one_line, plain, show_count, stderr, stdout, whole
from .terminal.progress import BatchView, Progress

_LOOK = 0.5
"""Minimum number of seconds between two reads of the status."""


def run_here(file: Path, settings: BatchSettings, options: Options, *, as_json: bool) -> None:
    """Run a batch in this process until it ends, pauses or is stopped."""

    async def play() -> ExitCode:
        async with open_driver(file, settings, options) as driver:
            return await BatchCommand(driver, as_json).play()

    gc.set_threshold(*COLLECTED)
    run_to_exit(play())


def show_plan(file: Path, settings: BatchSettings, options: Options, *, as_json: bool) -> None:
    """Check a batch, and print its size and two sessions, without running it."""
    found = asyncio.run(plan_batch(file, settings, options))
    if as_json:
        json_line(found.model_dump_json())
        return
    whole(stdout(), found.text())


@dataclass
class BatchCommand:
    """A run of a batch on the command line."""

    driver: Driver
    as_json: bool
    is_suite: bool = False
    """Whether the batch is a suite of scenarios, whose report replaces the final status."""
    unscored: int = 0
    """Number of finished cells whose scores are missing."""
    signals: list[int] = field(default_factory=list)
    pausing: set[asyncio.Task[None]] = field(default_factory=set)
    view: BatchView = field(default_factory=lambda: BatchView(stderr()))

    async def play(self) -> ExitCode:
        """Run the batch, and show its status."""
        running = asyncio.create_task(self.driver.run())
        self._listen(running)
        self.driver.told = self._tell
        try:
            with self.view:
                while not running.done():
                    began = time.monotonic()
                    if not self.as_json:
                        status = await read_status(self.driver.store, self.driver.row.batch)
                        # The view shows only the cells of this run.
                        cells = max(len(self.driver.cells), status.done)
                        status = status.model_copy(update={"cells": cells})
                        self.view.show(status, await self.driver.crew.pace())
                    # Counting the cells of a batch with a million of them takes half a second.
                    took = time.monotonic() - began
                    await asyncio.wait([running], timeout=max(_LOOK, 4 * took))
            await running
        except asyncio.CancelledError:
            if not self.signals:
                raise
            plain(stderr(), "Interrupted. Run the same command again to resume the batch.")
            return ExitCode(128 + self.signals[0])
        status = await read_status(self.driver.store, self.driver.row.batch)
        status = status.model_copy(update={"is_running": False})
        if not self.is_suite:
            print_status(status, as_json=self.as_json)
        if not self.as_json:
            self._say_what_is_next(status)
        return self._code(status)

    def _tell(self, row: CellRow) -> None:
        if row.status == "finished" and row.error is not None:
            self.unscored += 1
        if self.as_json:
            json_line(row.model_dump_json())

    def _has_reached_limit(self, status: BatchStatus) -> bool:
        return status.stopped is not None and status.stopped == self.driver.cells.reached_limit

    def _code(self, status: BatchStatus) -> ExitCode:
        if self.signals:
            return ExitCode(128 + self.signals[0])
        # If the run reached its limit, other cells of the batch have not begun.
        reached = self._has_reached_limit(status)
        cells = sum(one.cells for one in status.counts) if reached else status.cells
        return ExitCode.DONE if status.finished == cells else ExitCode.UNFINISHED

    def _say_what_is_next(self, status: BatchStatus) -> None:
        waiting = status.of("waiting")
        if waiting:
            lists = (
                "`duologue sessions` lists the waiting sessions; answer them by `duologue answer`."
            )
            plain(stderr(), f"{lists} Then run the same command again.")
        if status.left > waiting:
            # A limit counts over all runs of the batch.
            is_used_up = (status.stopped or "").startswith("limits.")
            larger = "Raise the limit, then run" if is_used_up else "Run"
            if self._has_reached_limit(status):
                larger = "With a larger --limit, or without it, run"
            plain(stderr(), f"{larger} the same command again for the remaining sessions.")
        if status.failed:
            plain(stderr(), "Add --retry-failed to run the failed sessions again.")
        if self.unscored and not self.is_suite:
            report = f"`duologue batch report {status.batch}` shows why"
            plain(stderr(), f"Sessions that lack a score: {self.unscored:,}; {report}.")

    def _listen(self, running: "asyncio.Task[object]") -> None:
        def stop(number: int) -> None:
            self.signals.append(number)
            match len(self.signals):
                case 1:
                    self.view.say("Pausing when the current model calls are answered …")
                    task = asyncio.create_task(self.driver.crew.pause("It was interrupted."))
                    self.pausing.add(task)
                case 2:
                    running.cancel()
                case _:
                    # Answered calls are stored already, so nothing is lost by exiting at once.
                    os._exit(128 + number)

        handle_signals(stop)


_CODES: Final[dict[TrialOutcome, ExitCode]] = {
    "passed": ExitCode.DONE,
    "failed": ExitCode.FAILED,
    "error": ExitCode.UNFINISHED,
    "unfinished": ExitCode.UNFINISHED,
    "inconclusive": ExitCode.INCONCLUSIVE,
}

_LISTED: Final = 20
"""Maximum number of failures that are listed with the decisive reason. The rest is counted."""

_SESSIONS: Final = 5
"""Maximum number of sessions that are named for a failure."""

_DETAILED: Final = 3
"""Number of these that are listed with all reasons and verdicts."""


class SuiteFiles(NamedTuple):
    """The files of a run, and the earlier run to compare it with."""

    output: Path | None
    """The page. It is named after the run if None."""
    junit: Path | None
    """The file for JUnit's XML, or None."""
    markdown: Path | None
    """The file for a comment in Markdown, or None."""
    compare_to: str | None
    """The name of the earlier run, or None."""

    def check(self, page: Path, source: object) -> None:
        """Check that the files can be written, and that none replaces another or the suite.

        Raises:
            SpecError: A file can't be written, or has two uses.
        """
        used = {source.resolve(): "the suite"} if isinstance(source, Path) else {}
        options = {"--output": page, "--junit": self.junit, "--markdown": self.markdown}
        for option, path in options.items():
            if path is None:
                continue
            check_page(path) if path is page else check_writable(path)
            other = used.setdefault(path.resolve(), option)
            if other != option and not is_device(path):
                raise SpecError(f"{option}: {path} is also the file of {other}; name another file")


def simulate_here(
    source: Path | Suite,
    agent: str | None,
    settings: BatchSettings,
    options: SimulateOptions,
    *,
    trials: int | None,
    files: SuiteFiles,
    as_json: bool,
) -> None:
    """Run a suite in this process until it ends, pauses or is stopped."""

    async def play() -> ExitCode:
        before: SuiteReport | None = None
        if files.compare_to is not None:
            async with known_store(options.get("store")) as store:
                before = await read_suite(store, files.compare_to)
        async with open_suite(source, agent, settings, options, trials=trials) as driver:
            name = driver.row.batch
            page = files.output or Path(f"{name}.html")
            files.check(page, source)
            command = BatchCommand(driver, as_json=False, is_suite=True)
            code = await command.play()
            if command.signals:
                return code
        # After the block, because the report of a leased batch says that it is running.
        async with known_store(options.get("store")) as store:
            report = await read_suite(store, name)
            await write_suite_page(store, report, page)
        comparison = None if before is None else compare_suites(before, report)
        texts = (describe_junit(report), describe_markdown(report, comparison))
        for path, text in zip((files.junit, files.markdown), texts, strict=True):
            if path is not None:
                make_folders(path)
                write_file(path, text)
        _print(report, page, as_json=as_json, has_all_passes=isinstance(source, Suite))
        if comparison is not None and not as_json:
            _print_lines(comparison)
        return _CODES[report.verdict]

    gc.set_threshold(*COLLECTED)
    run_to_exit(play())


def generate_here(agent: str, policy: Path, count: int, model: str | None) -> None:
    """Print scenarios for an agent as TOML."""
    text = read_file(policy, str)
    found = import_object(agent, "agent")

    async def write() -> str:
        with Progress(stderr(), f"Writing {count} scenarios"):
            return await agenerate_scenarios(found, text, count, model=model)

    made = asyncio.run(write()).rstrip()
    plain(stdout(), made)
    if made.startswith("#"):
        plain(stderr(), one_line(made.partition("\n")[0].strip("# ")))
    plain(stderr(), "Read and correct each scenario before you use the file.")


def compare_here(before: str, after: str, store: str | None, *, as_json: bool) -> None:
    """Print the comparison of two runs of a suite."""

    async def play() -> ExitCode:
        async with known_store(store) as opened:
            reports = [await read_suite(opened, name) for name in (before, after)]
        found = compare_suites(*reports)
        if as_json:
            json_line(found.model_dump_json())
        else:
            _print_lines(found)
        return ExitCode.FAILED if found.is_worse else ExitCode.DONE

    run_to_exit(play())


def _print_lines(found: SuiteComparison) -> None:
    for line in str(found).splitlines():
        plain(stdout(), one_line(line))


def _print(report: SuiteReport, page: Path, *, as_json: bool, has_all_passes: bool) -> None:
    if as_json:
        for one in report.simulations:
            json_line(one.model_dump_json())
        return
    out = stdout()
    out.print(report)
    if has_all_passes:
        for k, passed in enumerate(report.passes, start=1):
            plain(out, f"Pass^{k} {passed.value:.3f}")
    failures = report.failures
    for place, group in enumerate(failures[:_LISTED]):
        times = f" ({len(group)} times)" if len(group) > 1 else ""
        plain(out, one_line(f"{group[0]}{times}"))
        details = group[0].list_details() if place < _DETAILED else ()
        sessions = ", ".join(one.session for one in group[:_SESSIONS])
        others = f" and {len(group) - _SESSIONS} more" if len(group) > _SESSIONS else ""
        for line in (*details, f"Sessions: {sessions}{others}"):
            plain(out, f"  {one_line(line)}")
    if more := [one for group in failures[_LISTED:] for one in group]:
        plain(out, f"And {len(more):,} more that have not passed: {count_outcomes(more)}.")
    plain(stderr(), f"The report is in {page}.")


def export_to(batch: str, store: str | None, output: Path | None, **options: Any) -> None:
    """Write a batch to a file, and print the number of rows, sessions and left-out sessions."""
    if output is None:
        raise SpecError("--output is missing; name the file for the batch and its manifest")
    if options.get("status") == "any":
        options["status"] = None

    async def export() -> ExportManifest:
        with Progress(stderr(), f"Exporting {batch}"):
            return await BatchRun(batch, store=store).aexport(output, **options)

    manifest = asyncio.run(export())
    rows = show_count(manifest.rows, "row")
    plain(stdout(), f"{output}: {rows} of {show_count(manifest.sessions, 'session')}")
    if manifest.left_out:
        left = ", ".join(f"{cell(why)} {count:,}" for why, count in manifest.left_out.items())
        plain(stdout(), f"Left out: {left}")
