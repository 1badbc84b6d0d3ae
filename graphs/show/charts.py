"""The geometry of the page's charts: the timeline, and bars of usage."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from langchain_core.messages import BaseMessage

from ..common.data import sum_known
from ..conversation.conversation import Conversation
from ..log.messages import metadata, place_of
from ..log.metadata import Speech
from .page_data import Chart, Mark, Share, Spending, Spent, Step, Timeline

WIDTH: Final = 720
"""Width of a chart, in SVG units."""

_BARS: Final = 90
"""Maximum number of bars in a chart."""

_HEIGHT: Final = 64

_COLOURS: Final = 8
"""Number of colours; further speakers repeat them."""


def colour(number: int | None) -> str:
    """Return the class of a speaker's colour. None means no speaker."""
    return "c-" if number is None else f"c{number % _COLOURS}"


def timeline(
    conversation: Conversation, log: Sequence[BaseMessage], steps: Sequence[Step]
) -> Timeline | None:
    """Draw all messages from left to right, each at its place in the log."""
    numbers = {name: number for number, name in enumerate(conversation.names)}
    if not log:
        return None
    at = {place_of(message): _x(place, len(log)) for place, message in enumerate(log)}
    width = max(1.0, min(8.0, 0.7 * WIDTH / len(log)))
    paths = defaultdict[str, list[str]](list)
    drawn = dict[str, float]()
    for message in log:
        about = metadata(message)
        if isinstance(about, Speech):
            x, name = at[place_of(message)], colour(numbers.get(about.speaker or ""))
            # Skip marks that would overlap the previous one.
            if x - drawn.get(name, -1.0) >= _LEAST:
                drawn[name] = x
                paths[name].append(f"M{x - width / 2:.4g} 0h{width:.4g}v18h-{width:.4g}z")
    marks = tuple(Mark(x=round(at[one.place], 1), step=one) for one in steps if one.place in at)
    return Timeline(
        width=WIDTH, ticks={name: "".join(path) for name, path in paths.items()}, marks=marks
    )


_LEAST: Final = 0.5
"""Minimum distance between two drawn messages of one speaker."""


def _x(place: int, many: int) -> float:
    margin = 10.0
    return margin + (WIDTH - 2 * margin) * (place + 0.5) / many


def spending_of(conversation: Conversation, steps: Sequence[Spent]) -> Spending | None:
    """Add up the usage of each speaker, and draw it by turn."""
    if not any(step.calls or step.seconds for step in steps):
        return None
    turns = _by_turn(steps)
    who = [*conversation.names, *(step.who for step in steps)]
    colours = {
        name: colour(conversation.names.index(name) if name in conversation.names else None)
        for name in dict.fromkeys(who)
    }
    each = -(-len(turns) // _BARS)
    bars = [
        [step for turn in turns[first : first + each] for step in turn]
        for first in range(0, len(turns), each)
    ]
    measures: list[tuple[str, Callable[[Spent], float], str]] = [
        ("Tokens", lambda one: one.tokens, "{:,.0f}"),
        ("Seconds", lambda one: one.seconds, "{:.2f}"),
        ("Cost", lambda one: one.cost or 0.0, "{:.4g}"),
    ]
    charts = (_chart(title, form, bars, of, colours) for title, of, form in measures)
    return Spending(
        shares=tuple(
            share
            for name, of_colour in colours.items()
            if (share := _share(name, of_colour, turns)) is not None
        ),
        charts=tuple(chart for chart in charts if chart is not None),
        turns_a_bar=each,
        has_cost=any(step.cost is not None for step in steps),
    )


_BRIEF: Final = 0.01
"""Seconds below which work without a model call, outside the speakers' turns, is not shown."""


def _by_turn(steps: Sequence[Spent]) -> list[list[Spent]]:
    turns: list[list[Spent]] = []
    for step in steps:
        if step.is_new_turn or not turns:
            turns.append([])
        turns[-1].append(step)
    return turns


def _share(name: str, of_colour: str, turns: Sequence[Sequence[Spent]]) -> Share | None:
    mine = [step for turn in turns for step in turn if step.who == name]
    if not mine:
        return None
    added = ("calls", "input_tokens", "output_tokens", "seconds")
    sums = {field: sum(getattr(step, field) for step in mine) for field in added}
    if of_colour == colour(None) and not sums["calls"] and sums["seconds"] < _BRIEF:
        return None
    taken = sum(any(step.who == name for step in turn) for turn in turns)
    return Share(
        who=name, colour=of_colour, turns=taken, cost=sum_known(step.cost for step in mine), **sums
    )


def _chart(
    title: str,
    form: str,
    bars: Sequence[Sequence[Spent]],
    of: Callable[[Spent], float],
    colours: dict[str, str],
) -> Chart | None:
    most = max(sum(map(of, bar)) for bar in bars)
    if not most:
        return None
    room = min(WIDTH / len(bars), 28.0)
    wide = room * 0.72
    paths = defaultdict[str, list[str]](list)
    for place, bar in enumerate(bars):
        foot = float(_HEIGHT)
        for name, of_colour in colours.items():
            tall = sum(of(step) for step in bar if step.who == name) / most * (_HEIGHT - 2)
            if tall:
                corner = f"M{place * room:.4g} {foot:.4g}"
                paths[of_colour].append(f"{corner}v-{tall:.3g}h{wide:.3g}v{tall:.3g}z")
                foot -= tall
    return Chart(
        title=title,
        most=form.format(most),
        width=round(room * len(bars)),
        height=_HEIGHT,
        bars={name: "".join(path) for name, path in paths.items()},
    )
