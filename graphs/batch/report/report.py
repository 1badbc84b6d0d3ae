"""The report of a batch: read from its rows and rendered as a page, with its charts."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ...common.errors import DuologueError, SpecError, suggest_near_or_all
from ...common.files import check_writable, is_device, make_folders, write_file
from ...session.page import read_page
from ...show.page import PageVerdict
from ...store.batches import CellRow, CellsWanted
from ...store.open import Store
from ...store.rows import reading_store
from ..order import Selection, read_selection
from ..status import format_duration, known_batch, read_status
from .page import (
    MOST_LINES,
    BatchReport,
    Histogram,
    Kind,
    explain_interval,
    format_estimate,
    format_number,
    format_percent,
    gather_report,
)
from .rows import Estimate, Rank, Rows

WIDTH = 600
"""The width of a chart, in SVG units."""

HEIGHT = 90
"""The height of a histogram, in SVG units."""


class Part(NamedTuple):
    """A part of a bar."""

    kind: Kind
    """The reason or status of the part's cells."""
    x: float
    """The left end of the part."""
    width: float
    """The width of the part."""


def draw_parts(kinds: Sequence[Kind]) -> list[Part]:
    """Return the parts of a bar of width 100, in proportion to the cells."""
    all_, before, found = sum(one.cells for one in kinds), 0, []
    for one in kinds:
        found.append(Part(one, round(100 * before / all_, 2), round(100 * one.cells / all_, 2)))
        before += one.cells
    return found


def draw_bars(found: Histogram) -> str:
    """Return the SVG path of a histogram's bars."""
    most = max(found.bars)
    room = min(WIDTH / len(found.bars), 40.0)
    drawn = []
    for place, many in enumerate(found.bars):
        if many:
            # Keep the smallest bar visible.
            tall = max(1.0, (HEIGHT - 2) * many / most)
            corner = f"M{place * room:.4g} {HEIGHT}"
            drawn.append(f"{corner}v-{tall:.3g}h{room * 0.86:.3g}v{tall:.3g}z")
    return "".join(drawn)


def bars_width(found: Histogram) -> float:
    """Return the total width of a histogram's bars."""
    return round(min(WIDTH / len(found.bars), 40.0) * len(found.bars), 1)


def draw_interval(found: Estimate) -> str:
    """Return the SVG path that draws a share's confidence interval on a line of width 100."""
    low, high = 100 * (found.low or 0.0), 100 * (found.high or 0.0)
    wide = max(1.0, high - low)
    return f"M{min(low, 99.0):.4g} 1h{wide:.3g}v4h-{wide:.3g}z"


class Curve(NamedTuple):
    """A chart of pass^k, 300 wide and 130 tall."""

    band: str
    """The path around the intervals."""
    line: str
    """The path through the figures."""
    dots: list[tuple[float, float]]
    """The points of the figures."""


def draw_curve(passes: Sequence[Estimate]) -> Curve:
    """Return the curve of pass^1, pass^2, … from left to right, with 0 at the bottom."""
    step = 280 / max(1, len(passes) - 1)
    at = [10 + step * place for place in range(len(passes))]

    def y(share: float | None) -> float:
        return round(120 - 110 * (share or 0.0), 1)

    dots = [(round(x, 1), y(one.value)) for x, one in zip(at, passes, strict=True)]
    upper = [(x, y(one.high)) for x, one in zip(at, passes, strict=True)]
    lower = [(x, y(one.low)) for x, one in zip(at, passes, strict=True)]
    return Curve(f"{_path([*upper, *reversed(lower)])}z", _path(dots), dots)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.4g} {y:.4g}" for x, y in points)


_CHARTS: Final = (draw_parts, draw_bars, bars_width, draw_interval, draw_curve)
"""The functions that the templates call."""

_TEMPLATES: Final = Path(__file__).parent / "templates"


_MOST: Final = 490_000
"""Maximum size of a page in bytes."""

_MOST_WITHOUT_CELLS: Final = 300_000

_SCORES: Final = 8
"""Maximum number of scores that are shown for values and cells."""


class PageVariant(NamedTuple):
    """The page of a batch, or a variant of it for a batch whose cells have further facts."""

    template: str = "report.html"
    """The name of the template."""
    values: Mapping[str, Any] = MappingProxyType({"outcomes": {}})
    """The values that only this template has."""
    shows: Callable[[str], bool] = lambda path: True
    """Returns whether the page shows the field with a path."""
    verdicts: Mapping[str, PageVerdict] = MappingProxyType({})
    """The outcomes of the sessions, which their transcripts show first."""


_PLAIN: Final = PageVariant()


def render(report: BatchReport, variant: PageVariant = _PLAIN) -> str:
    """Render the page of a batch, with as many fields and cells as its maximum size allows."""
    fields, cells = len(report.varied), len(report.lines)
    while len(bare := _render(report, fields, 0, variant)) > _MOST_WITHOUT_CELLS and fields:
        fields -= 1
    page = _render(report, fields, cells, variant)
    while len(page) > _MOST and cells:
        share = max(0, _MOST - len(bare)) / (len(page) - len(bare))
        cells = int(cells * share * 0.98)
        page = _render(report, fields, cells, variant)
    return page.decode()


def _render(report: BatchReport, fields: int, cells: int, variant: PageVariant) -> bytes:
    # Only the page needs Jinja.
    from ...show.render import draw_page

    drawn = draw_page(
        variant.template,
        "report.js",
        folder=_TEMPLATES,
        sheet="report.css",
        **variant.values,
        report=report,
        fields=fields,
        cells=cells,
        beside=_SCORES,
        charts={"HEIGHT": HEIGHT} | {one.__name__: one for one in _CHARTS},
        brief=format_number,
        percent=format_percent,
        in_words=format_estimate,
        explain=explain_interval,
        lasted=format_duration,
    ).html
    # A model may have written lone surrogates, which have no encoding.
    return drawn.encode("utf-8", errors="replace")


_AT_ONCE: Final = 2000
"""Number of rows that are read at a time."""


async def write_report(
    store: Store,
    name: str,
    page: Path,
    transcripts: int,
    sort: str | None = None,
    variant: PageVariant = _PLAIN,
    rank: Callable[[CellRow], Rank] | None = None,
) -> BatchReport:
    """Write the report of a batch as a page, with transcripts in a folder next to it.

    The rank of a row in the table of cells comes from `rank`, or else from the order.
    """
    check_page(page)
    folder = _folder_of(page)
    batch = await known_batch(store, name)
    status = await read_status(store, name, batch)
    with reading_store(store.url):
        selection = read_selection(batch)
    rows = Rows(max(transcripts, MOST_LINES), rank or _rank(selection, sort))
    async for row in store.batches.each(CellsWanted(batch=name, limit=_AT_ONCE)):
        rows.add(row)
    if sort is not None and (score := sort.removeprefix("-")) not in rows.columns:
        near = suggest_near_or_all(score, [*rows.columns]) if rows.columns else "; leave out sort"
        raise SpecError(f"sort: no session has a score {score!r}{near}")
    # Cells with an error come first: they may be far behind the first cells of the batch.
    faults = (*rows.failed.values(), *rows.unscored.values())
    wanted = dict.fromkeys(row.session for fault in faults for row in fault.first)
    wanted |= dict.fromkeys(row.session for row in rows.first)
    most = 0 if is_device(page) else max(0, transcripts)
    written = {
        session
        for session in [*wanted][:most]
        if await _write_session(session, folder, store, variant.verdicts.get(session))
    }

    def put() -> BatchReport:
        files: dict[str, Any] = {"folder": folder.name, "written": written}
        report = gather_report(status, batch, rows, **files, shows=variant.shows)
        _write(page, render(report, variant))
        return report.model_copy(update={"page": str(page)})

    return await asyncio.to_thread(put)


def _folder_of(page: Path) -> Path:
    return page.with_name(f"{page.stem}-sessions")


def check_page(page: Path) -> None:
    """Check that a report and its transcripts can be written.

    Raises:
        SpecError: A file can't be written.
    """
    check_writable(page)
    if not is_device(page):
        check_writable(_folder_of(page) / "session.html")


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


async def _write_session(
    session: str, folder: Path, store: Store, verdict: PageVerdict | None
) -> bool:
    """Write a transcript. Return False if the session cannot be read."""
    try:
        text = await read_page(store, session, None, verdict)
    except DuologueError:
        return False
    await asyncio.to_thread(_write, folder / f"{session}.html", text)
    return True


def _write(page: Path, text: str) -> None:
    make_folders(page)
    write_file(page, text)
