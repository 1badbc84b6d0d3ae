"""A batch whose cells a model's server can distinguish by their prompts. No tests here."""

import json
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from duologue.graphs import BatchRun
from duologue.graphs.batch.cells import Cells
from duologue.graphs.batch.order import read_selection
from duologue.graphs.batch.report.page import BatchReport, gather_report
from duologue.graphs.batch.report.rows import Rows
from duologue.graphs.batch.spec import load_batch
from duologue.graphs.batch.status import BatchStatus
from duologue.graphs.common.threads import run_coroutine
from duologue.graphs.store.batches import CellCount, add_counts
from duologue.nodes.testing import Prompt, Reply
from support.stores import BatchRow, CellRow, open_store

CELLS, CALLS = 30, 4
"""Number of cells in a batch, and number of calls per cell."""


def batch(cells: int = CELLS, /, **fields: Any) -> dict[str, Any]:
    """Return a batch whose cells differ in their task."""
    conversation: dict[str, object] = {
        "task": "Plan.",
        "speakers": [{"name": "Ann"}, {"name": "Bob"}],
        "end_chat": {"max_iterations": CALLS // 2},
        "model": "scripted",
    }
    tasks = [f"Plan garden {number}." for number in range(1, cells + 1)]
    return {"conversation": conversation | fields, "vary": {"task": tasks}}


PLAY: dict[str, Any] = {
    "kind": "role_play",
    "task": "Plan a garden",
    "user_role": "Buyer",
    "assistant_role": "Seller",
}
"""A role-play, in which a batch varies some fields."""


def cells_of(vary: object, conversation: object = PLAY, **fields: Any) -> Cells:
    """Return the cells of a batch."""
    return Cells.of(load_batch({"conversation": conversation, "vary": vary, **fields}), "grid")


class Player:
    """A model that answers the calls of all sessions and records each of them."""

    def __init__(self, delay: float = 0.01) -> None:
        self.delay = delay
        self.asked = list[tuple[str, int]]()
        """Task of the cell and number of its earlier messages, for each call."""
        self.refused = set[str]()
        """Tasks of the cells whose calls fail."""
        self._changed = threading.Condition()

    def __call__(self, prompt: Prompt) -> Reply:
        text = prompt[0]["content"]
        task = text[text.index("Plan garden") :].partition(".")[0]
        own = sum(message["role"] == "assistant" for message in prompt)
        call = task, 2 * own + ("You are Bob" in text)
        with self._changed:
            self.asked.append(call)
            self._changed.notify_all()
        if task in self.refused:
            raise ValueError("no such garden")
        return Reply(text=f"{call[1]} of {task}", delay=self.delay)

    def wait_for(self, calls: int, seconds: float = 20) -> bool:
        """Wait until the total number of calls is reached; return False after a timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.asked) >= calls, seconds)

    def repeated(self, since: int = 0) -> int:
        """Return the number of calls that repeat an earlier call."""
        return sum(Counter(self.asked[since:]).values()) - len(set(self.asked[since:]))


def written(folder: Path, batch: dict[str, Any]) -> Path:
    """Write a batch to a file and return its path."""
    path = folder / "batch.json"
    path.write_text(json.dumps(batch))
    return path


NOW = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
"""The time of the rows that `batch_row` and `cell_row` return."""


def batch_row(name: str = "b", **fields: Any) -> BatchRow:
    """Return the row of a batch."""
    fixed = {"title": "T", "spec": "{}", "settings": "{}", "cells": 9}
    times = {"created_at": NOW, "updated_at": NOW}
    return BatchRow.model_validate({"batch": name, **fixed, **times, **fields})


def cell_row(number: int, batch: str = "b", **fields: Any) -> CellRow:
    """Return the row of a cell of a batch."""
    session = f"{batch}-{number}"
    fixed = {"batch": batch, "number": number, "session": session, "updated_at": NOW}
    return CellRow.model_validate(fixed | fields)


def store_batch(store: str, batch: BatchRow, rows: Iterable[CellRow]) -> BatchRun:
    """Write a batch with its rows to a store, and return its handle."""

    async def put() -> None:
        async with open_store(store) as opened, opened.lock_batch(batch.batch) as lease:
            await lease.put(batch)
            for row in rows:
                await lease.put_cell(row)

    run_coroutine(put())
    return BatchRun(batch.batch, store=store)


def report_of(
    batch: BatchRow,
    rows: Sequence[CellRow],
    written: Iterable[CellRow],
    folder: str = "grid-sessions",
    **status: Any,
) -> BatchReport:
    """Return the report of a batch, with links to the transcripts of some of its sessions."""
    totals, counts = Rows(1000), dict[tuple[str, str | None], list[CellRow]]()
    for row in rows:
        totals.add(row)
        counts.setdefault((row.status, row.reason), []).append(row)
    found = [
        CellCount.model_validate(
            {"status": kind, "reason": reason, "cells": len(alike)}
            | add_counts(row.model_dump() for row in alike)
        )
        for (kind, reason), alike in counts.items()
    ]
    selection = read_selection(batch)
    known = BatchStatus.model_validate(
        batch.model_dump(exclude={"spec", "settings"})
        | {"counts": found, "sample_of": selection.sample_of, "seed": selection.order.seed}
        | status
    )
    sessions = {row.session for row in written}
    return gather_report(known, batch, totals, folder=folder, written=sessions)
