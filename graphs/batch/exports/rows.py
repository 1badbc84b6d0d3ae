"""The rows of a batch as plain dicts, for tables."""

from datetime import UTC
from typing import Any

from ...store.address import Store
from ...store.batches import BatchRow, CellRow, CellsWanted
from ...store.errors import unknown_batch


async def read_rows(store: Store, batch: str) -> list[dict[str, Any]]:
    """Return the rows of a batch as plain dicts."""
    await known_batch(store, batch)
    rows = store.batches.each(CellsWanted(batch=batch))
    return [columns(row) | {"updated_at": row.updated_at.astimezone(UTC)} async for row in rows]


async def known_batch(store: Store, batch: str) -> BatchRow:
    """Read the row of a batch that must be there."""
    row = await store.batches.get(batch)
    if row is None:
        raise unknown_batch(batch, store.url)
    return row


def columns(row: CellRow) -> dict[str, Any]:
    """Give what is known of a cell as columns of a table; nothing that differs by when it is read.

    No field of a conversation is called like one of a row's.
    """
    apart = {"varied", "scores", "updated_at"}
    fields = row.model_dump(mode="json", exclude=apart)
    front = {name: fields.pop(name) for name in ("batch", "number", "session", "trial")}
    scores = {f"score.{name}": score for name, score in row.scores.items()}
    return {**front, **row.varied, **fields, **scores}
