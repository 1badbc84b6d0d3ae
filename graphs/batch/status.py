"""The status of a batch: the counts of sessions, the reasons of the ends, and the usage."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, NonNegativeFloat, NonNegativeInt

from ..common.data import Data, sum_known
from ..common.display import Panel, Shown
from ..common.errors import hide_frames
from ..common.sanitize import escape_invisible
from ..common.threads import in_background
from ..session.listing import known_store
from ..store.batches import BatchRow, CellCount, CellRow, CellStatus, CellsWanted
from ..store.errors import unknown_batch
from ..store.open import Store
from ..store.rows import reading_store
from .order import describe_sample, read_selection


class BatchStatus(Shown, Data):
    """The status of a batch. `print` and a notebook show it as a table."""

    batch: str
    """The batch's name."""
    title: str
    """The title that all its conversations have, or an empty text."""
    cells: NonNegativeInt
    """Number of sessions, including sessions that have not begun."""
    sample_of: NonNegativeInt | None = None
    """Number of sessions from which the batch's were drawn at random. None if it has all."""
    seed: NonNegativeInt | None = None
    """The seed of the shuffled order. None if the sessions run in numerical order."""
    counts: tuple[CellCount, ...] = ()
    """Number of sessions for each status and reason, with their usage."""
    is_running: bool = False
    """Whether a run of the batch is active."""
    seconds: NonNegativeFloat = 0
    """Running time in seconds, over all runs."""
    stopped: str | None = None
    """The reason, in a sentence, why the latest run stopped before all sessions had ended, or
    None."""
    created_at: AwareDatetime
    """The start time of the batch, in UTC."""
    updated_at: AwareDatetime
    """The time of the row's last change, in UTC."""

    def of(self, status: CellStatus) -> int:
        """Return the number of sessions with a status."""
        return sum(one.cells for one in self.counts if one.status == status)

    @property
    def finished(self) -> int:
        """Number of sessions whose conversations ended under their rules."""
        return self.of("finished")

    @property
    def failed(self) -> int:
        """Number of sessions that failed."""
        return self.of("failed")

    @property
    def done(self) -> int:
        """Number of sessions that ended or failed."""
        return self.finished + self.failed

    @property
    def left(self) -> int:
        """Number of sessions that have neither ended nor failed."""
        return max(0, self.cells - self.done)

    @property
    def reasons(self) -> dict[str, int]:
        """Number of sessions for each reason of the end, the most frequent first."""
        found = {one.reason: one.cells for one in self.counts if one.reason is not None}
        return dict(Counter(found).most_common())

    @property
    def messages(self) -> int:
        """Number of messages."""
        return sum(one.messages for one in self.counts)

    @property
    def calls(self) -> int:
        """Number of answered model calls."""
        return sum(one.calls for one in self.counts)

    @property
    def tokens(self) -> int:
        """Number of tokens used, in prompts and answers."""
        return sum(one.tokens for one in self.counts)

    @property
    def cost(self) -> float | None:
        """Cost of the calls whose prices are known, in the currency of the price table.

        None if no price is known.
        """
        return sum_known(one.cost for one in self.counts)

    @property
    def sample(self) -> str | None:
        """The description of the sample, as a sentence. None if the batch has all sessions."""
        return describe_sample(self.cells, self.sample_of, self.seed)

    def __str__(self) -> str:
        return self._panel().text()

    def _panel(self) -> Panel:
        cost = f", cost {self.cost:.4g}" if self.cost is not None else ""
        used = f"{self.calls:,} model calls, {self.tokens:,} tokens{cost}."
        return Panel(
            title=f"Batch {escape_invisible(self.batch)}: {self.standing()}",
            notes=tuple(filter(None, (self.title, self.sample, used, self.stopped))),
            head=("Sessions", "Number"),
            rows=tuple((escape_invisible(name), f"{number:,}") for name, number in self.rows()),
        )

    def standing(self) -> str:
        """Return the progress in a few words."""
        state = ", running" if self.is_running else ""
        return f"{self.done:,} of {self.cells:,} done{state}"

    def rows(self) -> list[tuple[str, int]]:
        """Return the number of sessions for each status and reason, without zeros."""
        begun = "running" if self.is_running else "interrupted"
        names: list[tuple[str, CellStatus]] = [
            ("failed", "failed"),
            (begun, "running"),
            ("paused", "paused"),
            ("waiting for a person", "waiting"),
        ]
        not_begun = self.cells - sum(one.cells for one in self.counts)
        rows = [(f"ended: {reason}", number) for reason, number in self.reasons.items()]
        rows += [(name, self.of(status)) for name, status in names]
        rows.append(("not begun", max(0, not_begun)))
        return [(name, number) for name, number in rows if number]


async def read_status(store: Store, batch: str, row: BatchRow | None = None) -> BatchStatus:
    """Read the status of a batch."""
    # Before the counts are read: otherwise a batch that ends meanwhile would seem interrupted.
    is_running = await store.is_batch_locked(batch)
    row = row or await known_batch(store, batch)
    with reading_store(store.url):
        known = read_selection(row)
    counts = await store.batches.count(batch)
    if not is_running and any(one.status == "running" for one in counts):
        # Imported here, since it imports LangGraph to read the sessions.
        from .batch_row import add_interrupted

        counts = await add_interrupted(store, batch, counts)
    return BatchStatus(
        **row.model_dump(exclude={"spec", "settings"}),
        sample_of=known.sample_of,
        seed=known.order.seed,
        counts=tuple(counts),
        is_running=is_running,
    )


def format_duration(seconds: float) -> str:
    """Format a duration in its two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.3g} s"


async def read_statuses(store: Store) -> list[BatchStatus]:
    """Read the status of all batches of a store, newest first."""
    rows = await store.batches.list()
    return [await read_status(store, row.batch, row) for row in rows]


@hide_frames
async def alist_batches(*, store: str | Path | None = None) -> list[BatchStatus]:
    """Return the status of all batches of a store, newest first.

    Args:
        store: The store: a path, ``sqlite:///…``, ``postgresql://…`` or ``memory:``. If None, the
            store in the settings, or else an SQLite file in the user's data folder.

    Returns:
        The status of each batch.

    Raises:
        StoreError: The store cannot be opened or read.
    """
    async with known_store(store) as opened:
        return await read_statuses(opened)


list_batches = in_background(alist_batches)


async def read_rows(store: Store, batch: str) -> list[dict[str, Any]]:
    """Return the rows of a batch as plain dicts. All have a column for each score."""
    known = await known_batch(store, batch)
    with reading_store(store.url):
        asked: Sequence[str] = json.loads(known.settings).get("score", ())
    rows = [row async for row in store.batches.each(CellsWanted(batch=batch))]
    given = dict.fromkeys(name for row in rows for name in row.scores)
    names = [*given, *(name for name in asked if not any(row.has_score(name) for row in rows))]
    missing = {f"score.{name}": None for name in names}
    return [
        cell_columns(row, missing) | {"updated_at": row.updated_at.astimezone(UTC)} for row in rows
    ]


async def known_batch(store: Store, batch: str) -> BatchRow:
    """Read the row of a batch, and raise if the batch does not exist."""
    row = await store.batches.get(batch)
    if row is None:
        raise unknown_batch(batch, store.url)
    return row


def cell_columns(row: CellRow, missing: Mapping[str, None] | None = None) -> dict[str, Any]:
    """Return a session's row as columns of a table, without values that depend on the time.

    No field of a conversation has the same name as a field of a row.

    Args:
        row: The row.
        missing: A column for each score that the session may lack.
    """
    apart = {"varied", "scores", "updated_at"}
    fields = row.model_dump(mode="json", exclude=apart)
    front = {name: fields.pop(name) for name in ("batch", "number", "session", "trial")}
    scores = {f"score.{name}": score for name, score in row.scores.items()}
    return {**front, **row.varied, **fields, **(missing or {}), **scores}
