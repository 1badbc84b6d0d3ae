"""The report of a batch: read from its rows and written as a page."""

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from ...common.errors import DuologueError, SpecError
from ...common.files import NewFile
from ...session.page import read_page
from ...store.batches import BatchRow, CellRow, CellsWanted
from ...store.errors import unknown_batch
from ...store.open import Store
from .page import MOST_LINES, gather_report
from .page_data import BatchReport
from .rows import Rows

_AT_ONCE: Final = 2000
"""Number of rows that are read at a time."""


async def write_report(store: Store, name: str, page: Path, transcripts: int) -> BatchReport:
    """Write the report of a batch as a page, with transcripts in a folder next to it."""
    folder = page.with_name(f"{page.stem}-sessions")
    batch = await store.batches.get(name)
    if batch is None:
        raise unknown_batch(name, store.url)
    rows = await read_rows(store, batch, max(transcripts, MOST_LINES))
    is_running = await store.is_batch_locked(name)
    wanted = _choose_transcripts(rows, max(0, transcripts))
    written = {row.session for row in wanted if await _write_session(row.session, folder, store)}
    put = partial(gather_report, is_running=is_running, folder=folder.name, written=written)
    report = await asyncio.to_thread(put, batch, rows)
    await asyncio.to_thread(_write_page, page, report)
    return report.model_copy(update={"page": str(page)})


async def read_rows(store: Store, batch: BatchRow, listed: int = MOST_LINES) -> Rows:
    """Add up all rows of a batch, and keep the first rows."""
    rows = Rows(listed)
    async for row in store.batches.each(CellsWanted(batch=batch.batch, limit=_AT_ONCE)):
        rows.add(row)
    return rows


def _choose_transcripts(rows: Rows, most: int) -> Iterable[CellRow]:
    """Return the cells whose transcripts are written."""
    faults = (*rows.failed.values(), *rows.unscored.values())
    named = {row.session: row for fault in faults for row in fault.first}
    named |= {row.session: row for row in rows.first}
    # Cells with an error come first: they may be far behind the first cells of the batch.
    return [*named.values()][:most]


async def _write_session(session: str, folder: Path, store: Store) -> bool:
    """Write a transcript. Return False if the session cannot be read."""
    try:
        text = await read_page(store, session, None)
    except DuologueError:
        return False
    await asyncio.to_thread(_write, folder / f"{session}.html", text)
    return True


def _write_page(page: Path, report: BatchReport) -> None:
    # Only the page needs Jinja.
    from .render import render

    _write(page, render(report))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"{path}: can't be written: {error.strerror or error}") from error
    file = NewFile.begun(path)
    try:
        # A model may have written lone surrogates, which have no encoding.
        file.write(text.encode(errors="replace").decode())
        file.put()
    finally:
        file.drop()
