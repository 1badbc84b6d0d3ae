"""Compare duologue with hand-written code; docs/how-it-works.md explains the figures."""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from benchmarks import calls, peers, server, starting, talks
from benchmarks.calls import BY_HAND, JUDGED, LENGTHS, MEMORY, PLAIN, STREAMED, TOOLS
from benchmarks.sizes import bytes_per_round
from support import postgres

PARTS = ("calls", "set-ups", "sizes", "crowds", "batches", "starting")

CROWDS = ((100, 0, 3), (500, 0, 1), (500, 50_000, 1), (1000, 0, 1), (1000, 50_000, 1))
"""Number of conversations at once, threshold of the garbage collector (0: Python's own), and number
of measurements.
"""

BATCHES = ((1000, 20, "asyncio"), (1000, 100, "asyncio"), (1000, 100, "ray"))
"""Number of sessions in a batch, number of them at once, and the executor."""

LATENCY = 0.2
"""Delay of each answer in seconds, for many conversations at once and for batches."""

Found = Mapping[str, Any]


def main() -> None:
    """Run the requested measurements; print tables and write a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of which the median is taken")
    parser.add_argument("--only", nargs="+", default=PARTS, choices=PARTS, help="what to measure")
    parser.add_argument("--rows", default="", help="only rows of model calls whose name holds this")
    parser.add_argument("--output", type=Path, default=Path("benchmark.json"), help="the JSON file")
    given = parser.parse_args()
    _apart_from_the_user()
    found: dict[str, Any] = {}
    with TemporaryDirectory() as name, server.running() as address:
        folder = Path(name)
        os.environ.update(OPENAI_API_KEY="any", DUOLOGUE_MODEL="speaker")
        os.environ["OPENAI_BASE_URL"] = f"{address}/0/v1"
        # In one loop, because LangChain keeps connections that are bound to a loop.
        found |= asyncio.run(_in_this_process(given, folder))
        os.environ["OPENAI_BASE_URL"] = f"{address}/{LATENCY * 1000:.0f}/v1"
        if "crowds" in given.only:
            found["crowds"] = [_crowd(*crowd, folder) for crowd in CROWDS]
        if "batches" in given.only:
            has_ray = find_spec("ray") is not None
            batches = [one for one in BATCHES if has_ray or one[2] != "ray"]
            found["batches"] = [_batch(*batch, folder) for batch in batches]
        if "starting" in given.only:
            _tell("starting")
            found["cpu_seconds_to_start"] = starting.measured(given.rounds, folder / "kept.db")
    found["ratios"] = dict(_ratios(found))
    given.output.write_text(json.dumps(found, indent=2) + "\n")
    sys.stdout.write("\n" + "\n".join(_tables(found)))


def _apart_from_the_user() -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "DUOLOGUE_", "LANGSMITH_", "LANGCHAIN_")):
            del os.environ[name]
    # Compiling all imports at each start would cost more than the start.
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(".pytest_cache", "bytecode").absolute())


def _tell(progress: str) -> None:
    sys.stderr.write(f"{progress}\n")


async def _in_this_process(given: argparse.Namespace, folder: Path) -> Found:
    found: dict[str, Any] = {}
    if "calls" in given.only:
        with ExitStack() as stack:
            rows = list(calls.ROWS)
            try:
                rows.append(calls.on_postgres(stack.enter_context(postgres.server())))
            except pytest.skip.Exception as missing:
                _tell(f"without PostgreSQL: {missing}")
            rows = [row for row in rows if given.rows in row.name]
            found["cpu_ms_per_message"] = await calls.measured(rows, given.rounds, folder, _tell)
    if "set-ups" in given.only:
        found["set_up_in_messages"] = await calls.set_ups(given.rounds, folder, _tell)
    if "sizes" in given.only:
        _tell("bytes per round")
        found["bytes_per_round_at_400"] = {
            BY_HAND: await bytes_per_round(peers.langgraph_by_hand, 400, folder / "hand.db"),
            PLAIN: await bytes_per_round(talks.plain, 400, folder / "ours.db"),
        }
    return found


def _crowd(count: int, threshold: int, times: int, folder: Path) -> dict[str, float]:
    """Run conversations in a separate process, so that the memory is theirs alone."""
    _tell(f"{count} conversations at once")
    runs = []
    for number in range(times):
        store = folder / f"crowd-{count}-{threshold}-{number}.db"
        given = (str(count), str(store), str(LATENCY), str(threshold))
        command = [sys.executable, "-m", "benchmarks.crowd", *given]
        runs.append(json.loads(subprocess.check_output(command, cwd=Path(__file__).parent)))
    found = {name: median(run[name] for run in runs) for name in runs[0]}
    return found | {"gc_threshold": threshold}


def _batch(count: int, at_once: int, by: str, folder: Path) -> dict[str, Any]:
    """Run a batch in a separate process."""
    _tell(f"a batch of {count} sessions, {at_once} at once, by {by}")
    store = folder / f"batch-{at_once}-{by}.db"
    command = [sys.executable, "-m", "benchmarks.batches"]
    command += [str(count), str(store), str(LATENCY), str(at_once), by]
    run: dict[str, Any] = json.loads(subprocess.check_output(command, cwd=Path(__file__).parent))
    return run


def _ratios(found: Found) -> Iterator[tuple[str, float]]:
    """Yield the ratios that have a target, if they were measured."""
    spent = found.get("cpu_ms_per_message", {})
    for name, (above, below) in {
        "SQLite at 10 messages, of LangGraph by hand": ((PLAIN, 10), (BY_HAND, 10)),
        "SQLite at 400 messages, of LangGraph by hand": ((PLAIN, 400), (BY_HAND, 400)),
        "SQLite at 400 messages, of SQLite at 10": ((PLAIN, 400), (PLAIN, 10)),
        "memory, of SQLite": ((MEMORY, 10), (PLAIN, 10)),
        "streamed by tokens, of whole answers": ((STREAMED, 10), (PLAIN, 10)),
        "a turn with a tool call, of one without": ((TOOLS, 10), (PLAIN, 10)),
        "a turn that is judged, of one that is not": ((JUDGED, 10), (PLAIN, 10)),
    }.items():
        if above[0] in spent and below[0] in spent:
            yield name, spent[above[0]][above[1]] / spent[below[0]][below[1]]
    for words in calls.LONG:
        plain, formed = (calls.playing(words, formed=formed) for formed in (False, True))
        if plain in spent and formed in spent:
            name = f"a role-play message of {words:,} words, of one without its format"
            yield name, spent[formed][10] / spent[plain][10]
    for name, messages in found.get("set_up_in_messages", {}).items():
        yield f"set-up of a session, of a message ({name})", messages
    for crowd in found.get("crowds", ()):
        seldom = ", garbage collected seldom" if crowd["gc_threshold"] else ""
        name = f"{crowd['conversations']:,} conversations at once{seldom}, of latency"
        yield name, crowd["of_latency"]
    for batch in found.get("batches", ()):
        how = f"{batch['at_once']} at once by {batch['by']}"
        name = f"a batch of {batch['sessions']:,} sessions, {how}, of latency"
        yield name, batch["of_latency"]
    started = found.get("cpu_seconds_to_start", {})
    for name, seconds in started.items():
        if name != starting.LANGGRAPH:
            yield f"`{name}`, of `{starting.LANGGRAPH}`", seconds / started[starting.LANGGRAPH]


def _tables(found: Found) -> Iterator[str]:
    """Yield the lines of the tables in Markdown."""
    if spent := found.get("cpu_ms_per_message"):
        yield from _table(
            ["CPU ms a message, at", *(f"{length} messages" for length in LENGTHS)],
            ([name, *map(_number, map(by.get, LENGTHS))] for name, by in spent.items()),
        )
    if bytes_ := found.get("bytes_per_round_at_400"):
        rows = ([name, f"{size / 1024:.1f}"] for name, size in bytes_.items())
        yield from _table(["KiB a round of two messages, at 400 messages", ""], rows)
    for runs in filter(None, (found.get("crowds"), found.get("batches"))):
        names = [name.replace("_", " ") for name in runs[0]]
        yield from _table(names, (map(_number, run.values()) for run in runs))
    if started := found.get("cpu_seconds_to_start"):
        rows = ([f"`{name}`", _number(seconds)] for name, seconds in started.items())
        yield from _table(["CPU seconds to start", ""], rows)
    if ratios := found["ratios"]:
        rows = ([name, _number(ratio)] for name, ratio in ratios.items())
        yield from _table(["ratio", ""], rows)


def _table(titles: list[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield from (f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows))
    yield "\n"


def _number(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


if __name__ == "__main__":
    main()
