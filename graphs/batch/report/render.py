"""The HTML page of a batch, with the same frame and style as the page of a session."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ...show.render import policy_of, script_of, style_of, templates
from ..status import format_duration
from . import charts
from .page_data import BatchReport, format_estimate, format_number, format_percent

_TEMPLATES: Final = Path(__file__).parent / "templates"


_MOST: Final = 490_000
"""Maximum size of a page in bytes."""

_MOST_WITHOUT_CELLS: Final = 300_000

_SCORES: Final = 8
"""Maximum number of scores that are shown for values and cells."""


def render(
    report: BatchReport,
    template: str = "report.html",
    values: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """Render the page of a batch, with as many fields and cells as its maximum size allows.

    Args:
        report: The report.
        template: The name of the template.
        values: Further values for the template.
    """
    fields, cells = len(report.varied), len(report.lines)
    while (
        len(bare := _render(report, fields, 0, template, values)) > _MOST_WITHOUT_CELLS and fields
    ):
        fields -= 1
    page = _render(report, fields, cells, template, values)
    while len(page) > _MOST and cells:
        share = max(0, _MOST - len(bare)) / (len(page) - len(bare))
        cells = int(cells * share * 0.98)
        page = _render(report, fields, cells, template, values)
    return page.decode()


def _render(
    report: BatchReport, fields: int, cells: int, template: str, values: Mapping[str, object]
) -> bytes:
    known = templates(_TEMPLATES)
    style, script = style_of(known, 0, "report.css"), script_of(known, "report.js")
    drawn = known.get_template(template).render(
        **values,
        report=report,
        fields=fields,
        cells=cells,
        beside=_SCORES,
        style=style,
        script=script,
        policy=policy_of(style, script, form_action="'none'"),
        charts=charts,
        brief=format_number,
        percent=format_percent,
        in_words=format_estimate,
        lasted=format_duration,
    )
    # A model may have written lone surrogates, which have no encoding.
    return drawn.encode("utf-8", errors="replace")
