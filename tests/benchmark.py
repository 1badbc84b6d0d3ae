"""Compare duologue with hand-written code; docs/measurements/speed.md explains the figures."""

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

from benchmarks import calls, peers, server, simulations, starting, talks
from benchmarks.calls import (
    BY_HAND,
    JUDGED,
    MEMORY,
    PLAIN,
    ROLE_PLAY,
    ROLE_PLAY_IN_MEMORY,
    STREAMED,
    TOOLS,
)
from benchmarks.sizes import bytes_per_round
from support import postgres

PARTS = ("calls", "sessions", "simulations", "sizes", "crowds", "suites", "batches", "starting")

AIMS = {
    "SQLite, 10 messages, of LangGraph by hand": 0.8,
    "memory, 10 messages, of LangGraph by hand": 0.65,
    "SQLite, 400 messages, of LangGraph by hand": 0.12,
    "a simulated round of 60, of one of 5": 1.0,
    "a simulated round in memory, of langwatch-scenario": 0.85,
    "100 simulations, 20 at once, of latency": 1.3,
    "a role-play message of 3,000 words, of one of 60": 2.0,
    "100 conversations at once, of latency": 1.25,
}
"""The aim of each ratio that has one: it is no larger than this."""

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
        if "suites" in given.only:
            found["suites"] = [_suite(folder)]
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
    if "sessions" in given.only:
        spent = await calls.sessions(given.rounds, folder, _tell)
        found["cpu_ms_per_message_of_sessions"] = spent
    if "simulations" in given.only:
        found["cpu_ms_per_round"] = await simulations.measured(given.rounds, folder, _tell)
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


def _suite(folder: Path) -> dict[str, Any]:
    """Run a suite of 100 simulations in a separate process."""
    _tell("a suite of 20 scenarios, five trials each, 20 at once")
    command = [sys.executable, "-m", "benchmarks.suites", "20", "5", "20", str(folder / "suite.db")]
    run: dict[str, Any] = json.loads(subprocess.check_output(command, cwd=Path(__file__).parent))
    return run


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
        "SQLite at 400 messages, of SQLite at 10": ((PLAIN, 400), (PLAIN, 10)),
        "memory, of SQLite": ((MEMORY, 10), (PLAIN, 10)),
        "streamed by tokens, of whole answers": ((STREAMED, 10), (PLAIN, 10)),
        "a turn with a tool call, of one without": ((TOOLS, 10), (PLAIN, 10)),
        "a turn that is judged, of one that is not": ((JUDGED, 10), (PLAIN, 10)),
    }.items():
        if above[0] in spent and below[0] in spent:
            yield name, spent[above[0]][above[1]] / spent[below[0]][below[1]]
    for part in (_ratios_of_words, _ratios_of_sessions, _ratios_at_once):
        yield from part(found)
    started = found.get("cpu_seconds_to_start", {})
    for name, seconds in started.items():
        if name != starting.LANGGRAPH:
            yield f"`{name}`, of `{starting.LANGGRAPH}`", seconds / started[starting.LANGGRAPH]


def _ratios_of_words(found: Found) -> Iterator[tuple[str, float]]:
    spent = found.get("cpu_ms_per_message", {})
    shortest, *_, longest = (calls.playing(words, formed=True) for words in calls.LONG)
    if shortest in spent and longest in spent:
        name = f"a role-play message of {calls.LONG[-1]:,} words, of one of {calls.LONG[0]}"
        yield name, spent[longest][10] / spent[shortest][10]
    for words in calls.LONG:
        plain, formed = (calls.playing(words, formed=formed) for formed in (False, True))
        if plain in spent and formed in spent:
            name = f"a role-play message of {words:,} words, of one without its format"
            yield name, spent[formed][10] / spent[plain][10]


def _ratios_of_sessions(found: Found) -> Iterator[tuple[str, float]]:
    whole = found.get("cpu_ms_per_message_of_sessions", {})
    for name in (PLAIN, ROLE_PLAY, MEMORY, ROLE_PLAY_IN_MEMORY) if whole else ():
        for length in calls.SESSIONS:
            shown = f"{name.removeprefix('duologue, ')}, {length} messages"
            yield f"{shown}, of LangGraph by hand", whole[name][length] / whole[BY_HAND][length]
    if simulated := found.get("cpu_ms_per_round"):
        few, many = simulations.ROUNDS
        ours = simulated[simulations.MEMORY]
        yield f"a simulated round of {many}, of one of {few}", ours[many] / ours[few]
        if peer := simulated.get(simulations.LANGWATCH):
            yield "a simulated round in memory, of langwatch-scenario", ours[few] / peer[few]


def _ratios_at_once(found: Found) -> Iterator[tuple[str, float]]:
    for suite in found.get("suites", ()):
        yield "100 simulations, 20 at once, of latency", suite["ratio"]
    for crowd in found.get("crowds", ()):
        seldom = ", garbage collected seldom" if crowd["gc_threshold"] else ""
        name = f"{crowd['conversations']:,} conversations at once{seldom}, of latency"
        yield name, crowd["of_latency"]
    for batch in found.get("batches", ()):
        how = f"{batch['at_once']} at once by {batch['by']}"
        name = f"a batch of {batch['sessions']:,} sessions, {how}, of latency"
        yield name, batch["of_latency"]


def _tables(found: Found) -> Iterator[str]:
    """Yield the lines of the tables in Markdown."""
    for part, title, lengths in (
        ("cpu_ms_per_message", "CPU ms a message, at that length", calls.LENGTHS),
        ("cpu_ms_per_message_of_sessions", "CPU ms a message, set-up included", calls.SESSIONS),
        ("cpu_ms_per_round", "CPU ms a simulated round, set-up included", simulations.ROUNDS),
    ):
        if spent := found.get(part):
            rows = ([name, *map(_number, map(by.get, lengths))] for name, by in spent.items())
            yield from _table([title, *map(str, lengths)], rows)
    if bytes_ := found.get("bytes_per_round_at_400"):
        rows = ([name, f"{size / 1024:.1f}"] for name, size in bytes_.items())
        yield from _table(["KiB a round of two messages, at 400 messages", ""], rows)
    for runs in filter(None, map(found.get, ("crowds", "suites", "batches"))):
        names = [name.replace("_", " ") for name in runs[0]]
        yield from _table(names, (map(_number, run.values()) for run in runs))
    if started := found.get("cpu_seconds_to_start"):
        rows = ([f"`{name}`", _number(seconds)] for name, seconds in started.items())
        yield from _table(["CPU seconds to start", ""], rows)
    if ratios := found["ratios"]:
        rows = ([name, _number(ratio), _number(AIMS.get(name))] for name, ratio in ratios.items())
        yield from _table(["ratio", "", "aim"], rows)


def _table(titles: list[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield from (f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows))
    yield "\n"


def _number(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


if __name__ == "__main__":
    main()
