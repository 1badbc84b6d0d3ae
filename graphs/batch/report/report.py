"""The report of a batch: read from its rows, and written as a page with its transcripts beside."""

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from ...common.background import in_background
from ...common.errors import DuologueError, SpecError
from ...common.new_file import NewFile
from ...sessions.exports.page import read_page
from ...sessions.listing import known_store
from ...store.address import Store
from ...store.batches import BatchRow, CellRow, CellsWanted
from ...store.errors import unknown_batch
from .contents import BatchReport
from .gather import MOST_LINES, report_of
from .rows import Rows

_AT_ONCE: Final = 2000
"""How many rows are read at once."""


async def areport_batch(
    name: str,
    *,
    store: str | Path | None = None,
    output: str | Path | None = None,
    transcripts: int = MOST_LINES,
) -> BatchReport:
    """Write what a batch has come to as one HTML page, with the transcripts of its cells beside it.

    The page needs nothing but itself. It tells how the cells ended, how long they are, what they
    cost, and their scores, each by the values of every field that varies. Of a batch that runs it
    tells how it stands now.

    Args:
        name: The batch's name.
        store: Where it is kept. None: the setting, else the user's data folder.
        output: The page's file; ``NAME.html`` in the working folder unless told. What stands there
            is replaced. Transcripts go to the folder ``NAME-sessions`` beside it.
        transcripts: Of how many cells transcripts are written, at most: of the first ones, and of
            those that the page names beside what went wrong.

    Returns:
        The figures on the page, and where it is.

    Raises:
        BatchError: There is no such batch.
        SpecError: The page can't be written.
        StoreError: The store can't be read.
    """
    page = Path(output if output is not None else f"{name}.html")
    folder = page.with_name(f"{page.stem}-sessions")
    async with known_store(store) as opened:
        batch = await opened.batches.get(name)
        if batch is None:
            raise unknown_batch(name, opened.url)
        rows = await read_rows(opened, batch, max(transcripts, MOST_LINES))
        is_running = await opened.is_batch_locked(name)
        wanted = _wanted(rows, max(0, transcripts))
        written = {
            row.session for row in wanted if await _write_session(row.session, folder, store)
        }
    put = partial(report_of, is_running=is_running, folder=folder.name, written=written)
    report = await asyncio.to_thread(put, batch, rows)
    await asyncio.to_thread(_write_page, page, report)
    return report.model_copy(update={"page": str(page)})


report_batch = in_background(areport_batch)


async def read_rows(store: Store, batch: BatchRow, listed: int = MOST_LINES) -> Rows:
    """Read all rows of a batch, and keep the first of them."""
    rows = Rows(listed)
    async for row in store.batches.each(CellsWanted(batch=batch.batch, limit=_AT_ONCE)):
        rows.add(row)
    return rows


def _wanted(rows: Rows, most: int) -> Iterable[CellRow]:
    """Choose the cells whose transcripts are written."""
    faults = (*rows.failed.values(), *rows.unscored.values())
    named = {row.session: row for fault in faults for row in fault.first}
    named |= {row.session: row for row in rows.first}
    # What is named beside a fault first: it may stand far behind the others.
    return [*named.values()][:most]


async def _write_session(session: str, folder: Path, store: str | Path | None) -> bool:
    """Write a transcript; one that can't be read has none."""
    try:
        text = await read_page(session, None, store)
    except DuologueError:
        return False
    await asyncio.to_thread(_write, folder / f"{session}.html", text)
    return True


def _write_page(page: Path, report: BatchReport) -> None:
    # Of all that reports on batches only this needs Jinja.
    from .render import render

    _write(page, render(report))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"{path}: can't be written: {error.strerror or error}") from error
    file = NewFile.begun(path)
    try:
        # Without halves of signs, which a model may have written.
        file.write(text.encode(errors="replace").decode())
        file.put()
    finally:
        file.drop()
