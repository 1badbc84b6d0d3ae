"""The rows of a batch as plain dicts, for tables."""

from datetime import UTC
from pathlib import Path
from typing import Any

from ...common.background import in_background
from ...sessions.listing import known_store
from ...store.address import Store
from ...store.batches import BatchRow, CellRow, CellsWanted
from ...store.errors import unknown_batch


async def abatch_rows(batch: str, *, store: str | Path | None = None) -> list[dict[str, Any]]:
    """Give the rows of a batch, one for each cell that has begun, without reading sessions.

    Args:
        batch: The batch's name.
        store: Where sessions are kept. None: the setting, else the user's data folder.

    Returns:
        Plain dicts in the order of the cells, as ``pandas.DataFrame`` takes them: the fields of a
        `CellRow`, with each field that varies as a column by its path, such as ``user_role`` or
        ``labels.level``, and each score as ``score.NAME``.

    Raises:
        BatchError: There is no such batch.
        StoreError: The store can't be opened or read.
    """
    async with known_store(store) as opened:
        await known_batch(opened, batch)
        rows = opened.batches.each(CellsWanted(batch=batch))
        return [columns(row) | {"updated_at": row.updated_at.astimezone(UTC)} async for row in rows]


batch_rows = in_background(abatch_rows)


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
