"""Reading the results of earlier batches from a store, and storing them as a batch's values."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from langchain_core.utils.iter import batch_iterate
from pydantic import JsonValue, TypeAdapter

from ..common.errors import BatchError, SpecError
from ..store.batches import BatchLease, CellRow, CellsWanted
from ..store.open import Store
from ..store.rows import reading_store
from ..text.list_items import find_list_items
from .batch_row import read_result
from .earlier_results import EarlierBatches, EarlierResult
from .spec import Batch, earlier_batch

_log = logging.getLogger("duologue")

_RESULTS: Final = TypeAdapter(tuple[EarlierResult, ...])

_AT_ONCE: Final = 32  # number of sessions that are read at the same time


def earlier_names(batch: Batch) -> dict[str, str]:
    """Return the earlier batches whose results are values, each with the fields that it fills."""
    named = ((earlier_batch(values), key) for key, values in batch.vary.items())
    return {name: key for name, key in named if name is not None}


async def read_earlier_values(store: Store, batch: Batch, name: str) -> dict[str, str]:
    """Read the values that a batch takes from earlier batches.

    The values that were stored when the batch began are read again, so that it keeps its cells.

    Returns:
        The results of each earlier batch as JSON text, by the earlier batch's name.

    Raises:
        SpecError: An earlier batch does not exist, has not ended, has no results, or is the batch
            itself.
        StoreError: The store cannot be read.
    """
    wanted = earlier_names(batch)
    if name in wanted:
        raise SpecError(f"vary.{wanted[name]}: names this batch itself; name an earlier batch")
    stored = await store.batches.values(name)
    return {
        earlier: stored.get(earlier) or await _read_results(store, earlier, key)
        for earlier, key in wanted.items()
    }


def parse_earlier_values(values: Mapping[str, str], url: str) -> EarlierBatches:
    """Return the results of earlier batches from their JSON texts."""
    with reading_store(url):
        return {name: _RESULTS.validate_python(json.loads(text)) for name, text in values.items()}


async def store_earlier_values(store: Store, lease: BatchLease, values: Mapping[str, str]) -> None:
    """Store the values that a batch has read, unless they are stored.

    Raises:
        BatchError: Another process has stored other values since they were read.
    """
    stored = await store.batches.values(lease.batch)
    for earlier, text in values.items():
        if stored.get(earlier, text) != text:
            raise BatchError(
                f"Batch {lease.batch!r} was begun by another process just now. Run the same "
                "command again to resume it."
            )
        if earlier not in stored:
            await lease.put_values(earlier, text)


async def _read_results(store: Store, earlier: str, key: str) -> str:
    """Read the results of an earlier batch, as JSON text."""

    def error(text: str) -> SpecError:
        return SpecError(f"vary.{key}: {text}")

    if await store.is_batch_locked(earlier):
        raise error(f"batch {earlier!r} is running; wait until it has ended")
    batch = await store.batches.get(earlier)
    if batch is None:
        raise error(f"there is no batch {earlier!r} in {store.url}; run it first, in this store")
    rows = [row async for row in store.batches.each(CellsWanted(batch=earlier))]
    left = sum(row.status not in ("finished", "failed") for row in rows)
    left += max(0, batch.cells - len(rows))
    if left:
        raise error(
            f"{left:,} of {batch.cells:,} cells of batch {earlier!r} have not ended; run it to its "
            "end first"
        )
    results: list[EarlierResult] = []
    without = Counter[str]()
    for chunk in batch_iterate(_AT_ONCE, rows):
        found = await asyncio.gather(*(_read_row(store, row) for row in chunk))
        results += (one for one in found if isinstance(one, EarlierResult))
        without.update(one for one in found if isinstance(one, str))
    if without:
        why = ", ".join(f"{count:,} {reason}" for reason, count in without.items())
        if not results:
            raise error(f"no cell of batch {earlier!r} has a result ({why}); run it again")
        _log.warning("Batch %s: cells without a result are left out: %s.", earlier, why)
    return json.dumps([one.model_dump() for one in results])


async def _read_row(store: Store, row: CellRow) -> EarlierResult | str:
    """Return the result of a cell that has ended, or the reason why it has none."""
    if row.status == "failed":
        return "failed"
    found = await read_result(store, row.session, row.batch)
    if found is None:
        return "deleted"
    output: JsonValue = found[0].output
    if output is None:
        return "without an output"
    if isinstance(output, str):
        items: list[JsonValue] = [*find_list_items(output)]
        output = items or output.strip()
    return EarlierResult(session=row.session, varied=row.varied, output=output)
