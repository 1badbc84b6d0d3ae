"""The page of a batch drawn as HTML, of the same parts as the page of a session."""

from pathlib import Path
from typing import Final

from ...page.render import policy_of, style_of, templates
from . import charts
from .contents import Report, brief, in_words, percent

_TEMPLATES: Final = Path(__file__).parent / "templates"


def render(report: Report) -> str:
    """Draw the page of a batch."""
    known = templates(_TEMPLATES)
    style = style_of(known, 0, "report.css")
    return known.get_template("report.html").render(
        report=report,
        style=style,
        script="",
        policy=policy_of(style, "", form_action="'none'"),
        charts=charts,
        brief=brief,
        percent=percent,
        in_words=in_words,
        lasted=lasted,
    )


def lasted(seconds: float) -> str:
    """Write a time down."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"
