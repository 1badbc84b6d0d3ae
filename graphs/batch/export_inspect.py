"""A batch as logs of Inspect, the evaluation framework.

This module imports ``inspect_ai``, so only the export to this format imports it.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from inspect_ai.log import EvalSample
from pydantic import JsonValue

from ..session.export_inspect import make_log, make_sample, write_log
from ..session.inspect_events import SampleFacts
from ..session.stored_session import StoredSession
from ..store.batches import BatchRow, CellRow
from .order import read_selection
from .status import cell_columns

MOST_SAMPLES: Final = 1000
"""Number of samples after which a new file begins. Inspect keeps all samples of a file in memory
while it writes the file.
"""

_LABELS: Final = "labels."

_TARGET: Final = f"{_LABELS}target"


async def write_logs(
    batch: BatchRow, found: AsyncIterator[Sequence[tuple[CellRow, StoredSession]]]
) -> AsyncIterator[tuple[int, bytes]]:
    """Convert the sessions of a batch to the files of logs.

    Args:
        batch: The row of the batch.
        found: The sessions with their rows, in the order of the cells.

    Yields:
        Each file with its number, from 1. All trials of a combination are in the same file. A batch
        without sessions is one file.
    """
    trials = read_selection(batch).order.trials
    samples: list[EvalSample] = []
    number = 1
    async for chunk in found:
        for sample in await asyncio.to_thread(_convert, chunk, trials):
            if len(samples) >= MOST_SAMPLES and sample.id != samples[-1].id:
                yield number, await asyncio.to_thread(_write, batch, samples, number)
                number, samples = number + 1, []
            samples.append(sample)
    yield number, await asyncio.to_thread(_write, batch, samples, number)


def _convert(chunk: Sequence[tuple[CellRow, StoredSession]], trials: int) -> list[EvalSample]:
    return [make_sample(result, _facts(row, trials)) for row, result in chunk]


def _write(batch: BatchRow, samples: Sequence[EvalSample], number: int) -> bytes:
    return write_log(make_log(batch.batch, batch.created_at, samples, part=number), "eval")


def _facts(row: CellRow, trials: int) -> SampleFacts:
    """Return the facts in the row of a cell. The sample's id is the number of its combination."""
    is_failed = row.status == "failed"
    return SampleFacts(
        id=(row.number - 1) // trials + 1,
        epoch=row.trial,
        ended_at=row.updated_at,
        target=_target(row.varied),
        metadata=cell_columns(row),
        scores=row.scores,
        seconds=row.seconds,
        error=row.error if is_failed else None,
    )


def _target(varied: Mapping[str, JsonValue]) -> str:
    """Return the value of the label ``target``, or of the only label. Empty if there is none."""
    labels = [name for name in varied if name.startswith(_LABELS)]
    name = _TARGET if _TARGET in labels or len(labels) != 1 else labels[0]
    return str(varied.get(name, ""))
