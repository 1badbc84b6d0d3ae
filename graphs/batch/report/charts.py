"""The geometry of the charts on the page of a batch."""

from collections.abc import Sequence
from typing import NamedTuple

from .estimates import Estimate
from .page_data import Histogram, Kind

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
