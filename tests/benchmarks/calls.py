"""CPU time of a model call by the number of messages, for hand-written loops and for duologue."""

import gc
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import peers, talks
from benchmarks.in_turns import measure_in_turns
from benchmarks.peers import Mark
from benchmarks.server import WORDS

LENGTHS = (10, 100, 400)

WINDOW = 10
"""Number of messages measured at each length."""


class Row(NamedTuple):
    """A row of measurements."""

    name: str
    run: Callable[[int, Mark, Path], Coroutine[Any, Any, None]]
    """Sends so many messages, calls the mark after each, and stores them in the file if at all."""
    lengths: tuple[int, ...] = LENGTHS


LONG = (60, 600, 3000)
"""Lengths of messages in a role-play, in words."""

PLAIN = "duologue, SQLite"
MEMORY = "duologue, memory"
POSTGRES = "duologue, PostgreSQL"
STREAMED = "duologue, SQLite, streamed by tokens"
ROLE_PLAY = "duologue, SQLite, role-play"
ROLE_PLAY_IN_MEMORY = "duologue, memory, role-play"
BY_HAND = "LangGraph and SQLite by hand"
TOOLS = "a tool call in each turn (two model calls)"
JUDGED = "a structured judge (two model calls)"


def playing(words: int, *, formed: bool) -> str:
    """Return the name of a role-play's row."""
    return f"role-play, {words:,} words, {'with' if formed else 'without'} its format"


ROWS = (
    Row("raw HTTP", peers.raw_http),
    Row("openai client, `extra_body`", peers.openai_extra_body),
    Row("openai client as documented", peers.openai_client),
    Row(BY_HAND, peers.langgraph_by_hand),
    Row(PLAIN, talks.plain),
    Row(MEMORY, lambda count, mark, _: talks.plain(count, mark, "memory:")),
    Row(STREAMED, talks.streamed),
    Row(TOOLS, talks.with_tools, (10, 100)),
    Row(JUDGED, talks.judged("structured"), (10, 100)),
    Row("a judge in lines (two model calls)", talks.judged("lines"), (10, 100)),
    Row("speakers that judge themselves (two model calls)", talks.judging_themselves, (10, 100)),
    Row("4 speakers", talks.of(4), (10, 100)),
    Row("8 speakers", talks.of(8), (10, 100)),
    *(
        Row(playing(words, formed=formed), talks.playing(words, formed=formed), (10,))
        for words in LONG
        for formed in (False, True)
    ),
)
"""All rows except the one on PostgreSQL, whose address is known only at run time."""


def on_postgres(url: str) -> Row:
    """Return the row whose sessions are stored in this database."""
    return Row(POSTGRES, lambda count, mark, _: talks.plain(count, mark, url))


Found = Mapping[str, Mapping[int, float]]
"""CPU time per message in ms, by the row's name and the number of messages."""


async def measured(
    rows: Sequence[Row], rounds: int, folder: Path, tell: Callable[[str], None]
) -> Found:
    """Measure all rows, and return the median of some rounds.

    The rows take turns, so that other load on the machine affects all alike.
    """
    found: dict[str, dict[int, list[float]]] = {
        row.name: {length: [] for length in row.lengths} for row in rows
    }
    for row in rows:  # loads modules and fills caches
        await row.run(4, lambda: None, _new_file(folder))
    for number in range(rounds):
        for row in rows:
            tell(f"round {number + 1} of {rounds}: {row.name}")
            stamps = await _stamps(row, _new_file(folder))
            for length, spent in found[row.name].items():
                window = stamps[length + WINDOW - 1] - stamps[length - 1]
                spent.append(window / WINDOW * 1000)
    return {
        name: {length: median(spent) for length, spent in by_length.items()}
        for name, by_length in found.items()
    }


def _new_file(folder: Path) -> Path:
    return folder / f"{len(list(folder.iterdir()))}.db"


SESSIONS = (2, 10, 100, 400)
"""Numbers of messages of whole sessions."""

SESSION_ROWS = (
    *(row for row in ROWS if row.name in (BY_HAND, PLAIN, MEMORY)),
    Row(ROLE_PLAY, talks.playing(WORDS, formed=True, in_memory=False)),
    Row(ROLE_PLAY_IN_MEMORY, talks.playing(WORDS, formed=True)),
)


async def sessions(rounds: int, folder: Path, tell: Callable[[str], None]) -> Found:
    """Measure whole sessions, set-up included, and return the median of some rounds.

    All sessions of a row in a SQLite file use one file, as in a program that runs many.
    """
    stores = {row.name: _new_file(folder) for row in SESSION_ROWS}

    def repeat(row: Row) -> Callable[[int], Coroutine[Any, Any, None]]:
        return lambda length: row.run(length, lambda: None, stores[row.name])

    runs = {row.name: repeat(row) for row in SESSION_ROWS}
    return await measure_in_turns(runs, SESSIONS, rounds, tell, "sessions of {} messages")


async def _stamps(row: Row, store: Path) -> list[float]:
    """Run a conversation; return the CPU seconds of this process after each message."""
    gc.collect()
    return await _said(row, max(row.lengths) + WINDOW, store)


async def _said(row: Row, count: int, store: Path) -> list[float]:
    stamps: list[float] = []
    await row.run(count, lambda: stamps.append(time.process_time()), store)
    return stamps
