"""The command `duologue simulate`: it runs a suite as a batch, and reports the simulations."""

import gc
from pathlib import Path
from typing import Final

from ..batch.driver import BatchSettings
from ..batch.worker import COLLECTED
from ..scenarios.compare import compare_suites
from ..scenarios.run_suite import open_suite
from ..scenarios.simulate import SimulateOptions
from ..scenarios.suite_report import SuiteReport, TrialOutcome, read_suite, write_suite_page
from ..session.listing import known_store
from .exit import ExitCode, run_to_exit
from .run_batch import BatchCommand
from .terminal.console import json_line, one_line, plain, stderr, stdout

_CODES: Final[dict[TrialOutcome, ExitCode]] = {
    "passed": ExitCode.DONE,
    "failed": ExitCode.FAILED,
    "error": ExitCode.UNFINISHED,
    "unfinished": ExitCode.UNFINISHED,
    "inconclusive": ExitCode.INCONCLUSIVE,
}

_SHOWN: Final = 3
"""Number of simulations that have not passed and are shown."""


def simulate_here(
    file: Path,
    agent: str,
    settings: BatchSettings,
    options: SimulateOptions,
    *,
    trials: int | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Run a suite in this process until it ends, pauses or is stopped."""

    async def play() -> ExitCode:
        async with open_suite(file, agent, settings, options, trials=trials) as driver:
            command = BatchCommand(driver, as_json=False, is_suite=True)
            code = await command.play()
            if command.signals:
                return code
            name = driver.row.batch
        # After the block, because the report of a leased batch says that it is running.
        async with known_store(options.get("store")) as store:
            report = await read_suite(store, name)
            page = output or Path(f"{name}.html")
            await write_suite_page(store, report, page)
        _print(report, page, as_json=as_json)
        return _CODES[report.verdict]

    gc.set_threshold(*COLLECTED)
    run_to_exit(play())


def compare_here(before: str, after: str, store: str | None, *, as_json: bool) -> None:
    """Print the comparison of two runs of a suite."""

    async def play() -> ExitCode:
        async with known_store(store) as opened:
            reports = [await read_suite(opened, name) for name in (before, after)]
        found = compare_suites(*reports)
        if as_json:
            json_line(found.model_dump_json())
        else:
            for line in str(found).splitlines():
                plain(stdout(), one_line(line))
        return ExitCode.FAILED if found.is_worse else ExitCode.DONE

    run_to_exit(play())


def _print(report: SuiteReport, page: Path, *, as_json: bool) -> None:
    if as_json:
        for one in report.simulations:
            json_line(one.model_dump_json())
        return
    out = stdout()
    out.print(report)
    for one in [one for one in report.simulations if one.outcome != "passed"][:_SHOWN]:
        persona = "" if one.persona is None else f", {one.persona}"
        plain(out, one_line(f"{one.outcome}: {one.scenario}{persona} ({one.session})"))
        for line in (one.ended, *one.verdicts, one.error or ""):
            if line:
                plain(out, f"  {one_line(line)}")
    plain(stderr(), f"The report is in {page}.")
