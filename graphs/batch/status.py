"""The status of a batch: its cells and their rows, its endings and its usage."""

from collections import Counter
from datetime import UTC
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, NonNegativeFloat, NonNegativeInt

from ..common.data import Data
from ..common.display import Panel, Shown
from ..common.sanitize import escape_invisible
from ..common.threads import in_background
from ..session.listing import known_store
from ..store.batches import BatchRow, CellCount, CellRow, CellStatus, CellsWanted
from ..store.errors import unknown_batch
from ..store.open import Store


class BatchStatus(Shown, Data):
    """How a batch stands. `print` and a notebook show it as a table."""

    batch: str
    """Its name."""
    title: str
    """What its conversations are about."""
    cells: NonNegativeInt
    """How many cells it has, those that have not begun included."""
    counts: tuple[CellCount, ...] = ()
    """How many of them stand alike, by status and reason."""
    is_running: bool = False
    """Whether somebody is running it now."""
    seconds: NonNegativeFloat = 0
    """How long it has run, of all its runs together."""
    stopped: str | None = None
    """Why its latest run stopped before all cells had ended, in a sentence."""
    created_at: AwareDatetime
    """When it began, UTC."""
    updated_at: AwareDatetime
    """When its row last changed, UTC."""

    def of(self, status: CellStatus) -> int:
        """Say how many cells have a status."""
        return sum(one.cells for one in self.counts if one.status == status)

    @property
    def finished(self) -> int:
        """How many cells have ended by their rules."""
        return self.of("finished")

    @property
    def failed(self) -> int:
        """How many cells have failed."""
        return self.of("failed")

    @property
    def done(self) -> int:
        """How many cells have ended or failed."""
        return self.finished + self.failed

    @property
    def left(self) -> int:
        """How many cells are still to be run: all but those that have ended or failed."""
        return max(0, self.cells - self.done)

    @property
    def reasons(self) -> dict[str, int]:
        """How many cells ended for each reason, the most frequent first."""
        found = {one.reason: one.cells for one in self.counts if one.reason is not None}
        return dict(Counter(found).most_common())

    @property
    def messages(self) -> int:
        """How many messages were said."""
        return sum(one.messages for one in self.counts)

    @property
    def calls(self) -> int:
        """How many model calls were answered."""
        return sum(one.calls for one in self.counts)

    @property
    def tokens(self) -> int:
        """How many tokens were used, in prompts and answers."""
        return sum(one.input_tokens + one.output_tokens for one in self.counts)

    @property
    def cost(self) -> float:
        """What the calls have cost, where the prices are known."""
        return sum(one.cost for one in self.counts)

    def __str__(self) -> str:
        return self._panel().text()

    def _panel(self) -> Panel:
        cost = f", cost {self.cost:.4g}" if self.cost else ""
        used = f"{self.calls:,} model calls, {self.tokens:,} tokens{cost}."
        return Panel(
            title=f"Batch {escape_invisible(self.batch)}: {self.standing()}",
            notes=tuple(filter(None, (self.title, used, self.stopped))),
            head=("Cells", "Number"),
            rows=tuple((escape_invisible(name), f"{number:,}") for name, number in self.rows()),
        )

    def standing(self) -> str:
        """Say in a few words how far it is."""
        state = ", running" if self.is_running else ""
        return f"{self.done:,} of {self.cells:,} done{state}"

    def rows(self) -> list[tuple[str, int]]:
        """Return each status and reason with its number of cells, those without any left out."""
        begun = "running" if self.is_running else "broken off"
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
    """Read how a batch stands."""
    # Before the counts: a batch that ends meanwhile would seem to be broken off.
    is_running = await store.is_batch_locked(batch)
    row = row or await store.batches.get(batch)
    if row is None:
        raise unknown_batch(batch, store.url)
    return BatchStatus(
        batch=batch,
        title=row.title,
        cells=row.cells,
        counts=tuple(await store.batches.count(batch)),
        is_running=is_running,
        seconds=row.seconds,
        stopped=row.stopped,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def format_duration(seconds: float) -> str:
    """Write a time down, in the two largest units that it takes."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.3g} s"


async def alist_batches(*, store: str | Path | None = None) -> list[BatchStatus]:
    """Read how all batches of a store stand, the newest first.

    Args:
        store: Where sessions are kept. None: the setting, else the user's data folder.

    Returns:
        How each stands.

    Raises:
        StoreError: The store can't be opened or read.
    """
    async with known_store(store) as opened:
        rows = await opened.batches.list()
        return [await read_status(opened, row.batch, row) for row in rows]


list_batches = in_background(alist_batches)


async def read_rows(store: Store, batch: str) -> list[dict[str, Any]]:
    """Return the rows of a batch as plain dicts."""
    await known_batch(store, batch)
    rows = store.batches.each(CellsWanted(batch=batch))
    return [
        cell_columns(row) | {"updated_at": row.updated_at.astimezone(UTC)} async for row in rows
    ]


async def known_batch(store: Store, batch: str) -> BatchRow:
    """Read the row of a batch that must be there."""
    row = await store.batches.get(batch)
    if row is None:
        raise unknown_batch(batch, store.url)
    return row


def cell_columns(row: CellRow) -> dict[str, Any]:
    """Give what is known of a cell as columns of a table; nothing that differs by when it is read.

    No field of a conversation is called like one of a row's.
    """
    apart = {"varied", "scores", "updated_at"}
    fields = row.model_dump(mode="json", exclude=apart)
    front = {name: fields.pop(name) for name in ("batch", "number", "session", "trial")}
    scores = {f"score.{name}": score for name, score in row.scores.items()}
    return {**front, **row.varied, **fields, **scores}
