"""A preview of a batch before any call: its size, its calls and two cells. Pure functions."""

import json
from collections.abc import Iterator
from random import Random
from textwrap import shorten
from typing import Any, Final

from pydantic import Field, JsonValue

from ..common.data import Data
from ..common.errors import SpecError
from ..common.sanitize import clean
from ..conversation.judges import SeparateJudge
from ..conversation.limits import UNKNOWN_CALLS, plain_calls
from ..session.session_row import title_of
from .cells import Cell, RunCells
from .order import RunOrder
from .spec import Batch, BatchLimits

COUNTED: Final = 200
"""Maximum number of cells whose calls are counted. Those of more cells are estimated from them."""

_WIDTH = 160
"""Maximum length of a value or text that is shown, in characters."""


class FilledCell(Data):
    """A cell with its values filled in."""

    number: int
    """The cell's place in the batch, from 1."""
    session: str
    """The session's id."""
    varied: dict[str, JsonValue] = Field(default_factory=dict)
    """The values of the fields that vary, by path."""
    title: str = ""
    """The title that lists of sessions show."""
    told: dict[str, str] = Field(default_factory=dict)
    """The text that each speaker starts from, by name: its first message, its task or its system
    prompt.
    """
    seed: int | None = None
    """The seed of the session. None if it has no seed."""
    error: str | None = None
    """The reason why the values do not fit together, or None."""

    def lines(self) -> Iterator[str]:
        """Yield the lines that describe the cell."""
        yield f"Session {self.number:,}, {self.session}: {_short(self.title)}"
        for path, value in self.varied.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"  {path} = {_short(text)}"
        if self.seed is not None:
            yield f"  seed = {self.seed}"
        for name, text in self.told.items():
            yield f"  {name} starts with: {_short(text)}"
        if self.error is not None:
            yield f"  It will fail: {_short(self.error)}"


class Preview(Data):
    """The size of a batch before any call."""

    sessions: int
    """Number of sessions of the run."""
    sample: int | None = None
    """Size of the random sample. None if the batch has all cells."""
    in_all: int
    """Number of cells that would run without a sample and without a limit."""
    seed: int | None = None
    """The seed of the shuffled order. None if the cells run in the order of their numbers."""
    plain_calls: int | None
    """Number of model calls if every session runs up to its cap, without tool calls, summaries and
    retries. Estimated if there are more than `COUNTED` sessions. None if it is not known.
    """
    limits: BatchLimits
    """The limits over all sessions together."""
    cells: tuple[FilledCell, ...]
    """The first and the last cell. If only a part of the cells runs, those of the run's order."""

    def text(self) -> str:
        """Return the preview as text for people."""
        return "\n".join([*self._head(), *(line for cell in self.cells for line in cell.lines())])

    def _head(self) -> Iterator[str]:
        sessions = "1 session" if self.in_all == 1 else f"{self.in_all:,} sessions"
        if self.sample is not None:
            sessions = f"a random sample of {self.sample:,} of {sessions}"
        if self.sessions < (self.sample or self.in_all):
            sessions = f"the first {self.sessions:,} of {sessions}"
        sessions = f"{sessions[0].upper()}{sessions[1:]}"
        if self.plain_calls is None:
            yield f"{sessions}. The number of model calls is {UNKNOWN_CALLS}."
        else:
            number = "about" if self.sessions > COUNTED else "up to"
            yield (
                f"{sessions}, normally {number} {self.plain_calls:,} model calls in all, plus tool "
                "calls and retries."
            )
        yield from _limits(self.limits)
        if self.in_all > 1:
            seed = "the sessions' numbers" if self.seed is None else f"shuffled, seed {self.seed}"
            yield f"Order: {seed}."


def preview_batch(run: RunCells, batch: Batch) -> Preview:
    """Return the preview of a batch from the cells of its run. Their grid has been checked."""
    selection = run.selection
    order = RunOrder() if run.is_whole else selection.order
    numbers = dict.fromkeys(map(order.number, (0, len(run) - 1)))
    return Preview(
        sessions=len(run),
        sample=None if selection.sample_of is None else selection.cells,
        in_all=run.cells.count,
        seed=selection.order.seed,
        plain_calls=_count_calls(run, judge_at_end=batch.judge_at_end),
        limits=batch.limits,
        cells=tuple(_fill_cell(run.cells.cell(number)) for number in numbers),
    )


def _count_calls(run: RunCells, *, judge_at_end: bool) -> int | None:
    """Return the normal number of calls of all sessions. None if that of a session is not known."""
    total, counted = 0, min(COUNTED, len(run))
    for place in Random(0).sample(range(len(run)), counted):  # noqa: S311  # nothing secret
        try:
            conversation = run.cells.cell(run.selection.order.number(place)).conversation()
        except SpecError:
            # Such a session fails before any call.
            continue
        calls = plain_calls(conversation)
        if calls is None:
            return None
        total += calls
        judge = conversation.judge
        if judge_at_end and isinstance(judge, SeparateJudge) and not judge.final_verdict:
            total += 1
    return total if counted == len(run) else int(float(f"{total * len(run) / counted:.2g}"))


def _fill_cell(cell: Cell) -> FilledCell:
    known: dict[str, Any] = {
        "number": cell.number,
        "session": cell.session,
        "varied": dict(cell.varied),
    }
    try:
        conversation = cell.conversation()
    except SpecError as error:
        return FilledCell(**known, error=str(error))
    told = {
        speaker.name: speaker.first_message or speaker.task or speaker.system_prompt or ""
        for speaker in conversation.speakers
    }
    return FilledCell(
        **known,
        title=title_of(conversation),
        told={name: text for name, text in told.items() if text},
        seed=conversation.seed,
    )


def _limits(limits: BatchLimits) -> Iterator[str]:
    """Yield a line with the limits that are set."""
    names = ("max_cost", "max_tokens", "max_seconds")
    given = [(name, getattr(limits, name)) for name in names]
    found = [f"{name} {value:,}" for name, value in given if value is not None]
    for model, rate in limits.rates.items():
        most = [(name, getattr(rate, name)) for name in type(rate).model_fields]
        told = ", ".join(f"{value:,} {name}" for name, value in most if value is not None)
        found += [f"{model} {told}"] if told else []
    yield f"Limits: {'; '.join(found) or 'none'}."


def _short(text: str) -> str:
    return clean(shorten(text, _WIDTH, placeholder=" …"))
