"""The report of a suite as an HTML page: the page of its batch, with the simulations."""

from pathlib import Path
from typing import Final

from ..batch.report.report import PageVariant, write_report
from ..store.batches import CellRow
from ..store.open import Store
from .suite_report import SuiteReport

_ROWS: Final = 200
"""Maximum number of scenarios with their personas that are listed."""

_WORST: Final = 40
"""Maximum number of simulations whose verdicts are shown."""

_TRANSCRIPTS: Final = 1000
"""Maximum number of transcripts that are written."""

_LABELS: Final = "labels."


async def write_suite_page(store: Store, report: SuiteReport, page: Path) -> None:
    """Write the report of a suite as a page, with a folder of transcripts next to it.

    Args:
        store: The store of the sessions.
        report: The report.
        page: The file of the page, which is replaced if it exists.

    Raises:
        SpecError: The page can't be written.
    """
    places = {one.session: place for place, one in enumerate(report.simulations)}

    def rank(row: CellRow) -> tuple[float, ...]:
        return (places.get(row.session, len(places)), row.number)

    values = {
        "suite": report,
        "has_personas": any(one.persona is not None for one in report.scenarios),
        "rows": _ROWS,
        "listed": _WORST,
    }
    variant = PageVariant("simulations.html", values, rank, lambda path: path.startswith(_LABELS))
    await write_report(store, report.batch, page, _TRANSCRIPTS, None, variant)
