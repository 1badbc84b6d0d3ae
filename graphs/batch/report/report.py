"""The report of a batch: read from its rows and written as a page."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from ...common.errors import DuologueError, SpecError, suggest_near_or_all
from ...common.files import make_folders, write_file
from ...session.page import read_page
from ...store.batches import BatchRow, CellRow, CellsWanted
from ...store.errors import unknown_batch
from ...store.open import Store
from ...store.rows import reading_store
from ..order import Selection, read_selection
from .page import MOST_LINES, gather_report
from .page_data import BatchReport
from .rows import Rank, Rows

_AT_ONCE: Final = 2000
"""Number of rows that are read at a time."""


class PageVariant(NamedTuple):
    """A variant of the page, for a batch whose cells have further facts."""

    template: str
    """The name of the template."""
    values: Mapping[str, object]
    """The values that only this template has."""
    rank: Callable[[CellRow], Rank]
    """The rank of a row in the table of cells."""
    shows: Callable[[str], bool]
    """Returns whether the page shows the field with a path."""


async def write_report(
    store: Store,
    name: str,
    page: Path,
    transcripts: int,
    sort: str | None,
    variant: PageVariant | None = None,
) -> BatchReport:
    """Write the report of a batch as a page, with transcripts in a folder next to it."""
    folder = page.with_name(f"{page.stem}-sessions")
    batch = await store.batches.get(name)
    if batch is None:
        raise unknown_batch(name, store.url)
    with reading_store(store.url):
        selection = read_selection(batch)
    rank = _rank(selection, sort) if variant is None else variant.rank
    rows = await read_rows(store, batch, max(transcripts, MOST_LINES), rank)
    _check_sort(rows, sort)
    is_running = await store.is_batch_locked(name)
    wanted = _choose_transcripts(rows, max(0, transcripts))
    written = {row.session for row in wanted if await _write_session(row.session, folder, store)}
    put = partial(gather_report, is_running=is_running, folder=folder.name, written=written)
    report = await asyncio.to_thread(put, batch, selection, rows)
    if variant is not None:
        report = _without_fields(report, variant.shows)
    await asyncio.to_thread(_write_page, page, report, variant)
    return report.model_copy(update={"page": str(page)})


def _rank(selection: Selection, sort: str | None) -> Callable[[CellRow], Rank]:
    """Return the rank of a row: by a score if there is one, and by its place in the run."""
    score, sign = (sort or "").removeprefix("-"), -1 if sort and sort.startswith("-") else 1

    def rank(row: CellRow) -> Rank:
        place = selection.order.place(row.number)
        if sort is None:
            return (place,)
        value = row.scores.get(score)
        # Rows without the score come last.
        return (value is None, sign * (value or 0), place)

    return rank


def _check_sort(rows: Rows, sort: str | None) -> None:
    """Raise if no cell has the score by which rows are sorted."""
    if sort is None or (score := sort.removeprefix("-")) in rows.columns:
        return
    remedy = suggest_near_or_all(score, [*rows.columns]) if rows.columns else "; leave out sort"
    raise SpecError(f"sort: no cell has a score {score!r}{remedy}")


async def read_rows(
    store: Store,
    batch: BatchRow,
    listed: int = MOST_LINES,
    rank: Callable[[CellRow], Rank] = lambda row: (row.number,),
) -> Rows:
    """Add up all rows of a batch, and keep the rows with the lowest ranks."""
    rows = Rows(listed, rank)
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


def _without_fields(report: BatchReport, shows: Callable[[str], bool]) -> BatchReport:
    """Return a report without the fields that its page does not show."""
    shown = [place for place, path in enumerate(report.paths) if shows(path)]
    lines = tuple(
        line.model_copy(update={"values": tuple(line.values[place] for place in shown)})
        for line in report.lines
    )
    return report.model_copy(
        update={
            "paths": tuple(report.paths[place] for place in shown),
            "varied": tuple(one for one in report.varied if shows(one.path)),
            "lines": lines,
        }
    )


def _write_page(page: Path, report: BatchReport, variant: PageVariant | None) -> None:
    # Only the page needs Jinja.
    from .render import render

    if variant is None:
        _write(page, render(report))
    else:
        _write(page, render(report, variant.template, variant.values))


def _write(page: Path, text: str) -> None:
    make_folders(page)
    write_file(page, text)
