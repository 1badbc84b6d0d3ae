"""A preview of a batch before any call: its size, its calls and two cells. Pure functions."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from textwrap import shorten
from typing import Any, Final

from pydantic import Field, JsonValue

from ..common.data import Data
from ..common.errors import SpecError
from ..common.sanitize import clean
from ..conversation.conversation import Conversation
from ..conversation.judges import Concurrent, SeparateJudge
from ..conversation.limits import most_calls, plain_calls
from ..ends.end import call_caps
from ..session.session_row import title_of
from .cells import Cell
from .grid import PLAIN_TEXTS, RowGroup, group_rows
from .order import RunOrder
from .paths import read_paths
from .selection import RunCells
from .spec import BatchLimits
from .values import Axis, Value

MOST_KINDS: Final = 2_000
"""Maximum number of different conversations whose calls are counted."""

_WIDTH = 160
"""Maximum length of a value or text that is shown, in characters."""

_SAME_CALLS: Final = PLAIN_TEXTS | {
    *("name", "model", "seed", "temperature", "task_temperature", "user_role", "assistant_role"),
    *("user", "assistant", "coder", "executor", "writer", "critic", "word_limit"),
}
"""Fields whose texts and numbers change the messages, but not the number of model calls."""


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
        yield f"Cell {self.number:,}, session {self.session}: {_short(self.title)}"
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
    most_calls: int | None
    """Maximum number of model calls of all sessions together. None if there is no bound."""
    plain_calls: int | None
    """Number of model calls if every session runs up to its cap, without tool calls, summaries and
    retries.
    """
    no_bound: str | None = None
    """The reason why there is no bound, as a sentence. None if there is a bound."""
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
        if self.most_calls is None or self.plain_calls is None:
            yield f"{sessions}. There is no bound on the model calls: {self.no_bound}"
        else:
            yield (
                f"{sessions}, at most {self.most_calls:,} model calls in all; {self.plain_calls:,} "
                "if every session runs up to its cap, without tool calls and retries."
            )
        yield from _limits(self.limits)
        if self.in_all > 1:
            seed = "the cells' numbers" if self.seed is None else f"shuffled, seed {self.seed}"
            yield f"Order: {seed}."


def preview_batch(run: RunCells, limits: BatchLimits, *, judge_at_end: bool = False) -> Preview:
    """Return the preview of a batch.

    Args:
        run: The cells of the run. Their grid has passed `Grid.check`.
        limits: The limits over all sessions together.
        judge_at_end: Whether the separate judge is asked about sessions that have ended.
    """
    most, plain, why = 0, 0, None
    try:
        for kind, many in _kinds(run):
            judged = _calls_at_end(kind) if judge_at_end else (0, 0)
            most += many * (_max_calls(kind) + judged[0])
            plain += many * (min(_max_calls(kind), plain_calls(kind)) + judged[1])
    except _NoBoundError as error:
        why = str(error)
    selection = run.selection
    order = RunOrder() if run.is_whole else selection.order
    numbers = dict.fromkeys(map(order.number, (0, len(run) - 1)))
    return Preview(
        sessions=len(run),
        sample=None if selection.sample_of is None else selection.cells,
        in_all=run.cells.count,
        seed=selection.order.seed,
        most_calls=None if why else most,
        plain_calls=None if why else plain,
        no_bound=why,
        limits=limits,
        cells=tuple(_fill_cell(run.cells.cell(number)) for number in numbers),
    )


class _NoBoundError(Exception):
    """The number of model calls has no known bound. The message is the reason."""


def _max_calls(conversation: Conversation) -> int:
    if conversation.agents:
        raise _NoBoundError("your own agents may make any number of calls.")
    if conversation.has_inner:
        raise _NoBoundError("inner conversations may make any number of calls.")
    caps = call_caps(conversation.end_chat.when)
    if not (conversation.end_chat.is_capped or caps):
        raise _NoBoundError("there is no cap on the rounds.")
    if isinstance(conversation.turn_order, Concurrent):
        # The other calls of a round are made at the same time as the call that reaches a cap.
        caps = [cap + len(conversation.speakers) - 1 for cap in caps]
    return min([most_calls(conversation), *caps])


def _calls_at_end(conversation: Conversation) -> tuple[int, int]:
    """Return the maximum number of the judge's calls after an end, and the number after a cap."""
    judge = conversation.judge
    if not isinstance(judge, SeparateJudge):
        return 0, 0
    # An unreadable verdict is requested once more. A final verdict is not repeated.
    return 2, 0 if judge.final_verdict else 1


def _kinds(run: RunCells) -> Iterator[tuple[Conversation, int]]:
    """Yield a conversation for each group with the same number of calls, and the group's size."""
    grid = run.cells.grid
    groups = [_group_rows(axis, grid.places) for axis in grid.axes]
    for chosen, cells in _count_kinds(run, groups).items():
        rows = [axis[group].rows[0] for axis, group in zip(groups, chosen, strict=True)]
        try:
            found = grid.conversation(rows)
        except SpecError:
            # Such a session fails before any call.
            continue
        yield found, cells


def _count_kinds(
    run: RunCells, groups: Sequence[Sequence[RowGroup]]
) -> Mapping[tuple[int, ...], int]:
    """Return the number of cells for each choice of a group of each axis."""
    found = Counter[tuple[int, ...]]()
    if run.is_whole:
        _check_kinds(prod(map(len, groups)))
        for chosen in product(*(range(len(axis)) for axis in groups)):
            sizes = (len(axis[group].rows) for axis, group in zip(groups, chosen, strict=True))
            found[chosen] = prod(sizes) * run.cells.trials
        return found
    of = [{row: group for group, one in enumerate(axis) for row in one.rows} for axis in groups]
    for number in run.numbers():
        rows = run.cells.grid.rows((number - 1) // run.cells.trials)
        found[tuple(axis[row] for axis, row in zip(of, rows, strict=True))] += 1
        _check_kinds(len(found))
    return found


def _check_kinds(many: int) -> None:
    if many > MOST_KINDS:
        raise _NoBoundError(
            f"the varied fields make more than {MOST_KINDS:,} kinds of conversations."
        )


def _group_rows(axis: Axis, places: Mapping[str, object]) -> Sequence[RowGroup]:
    """Return the groups of rows whose sessions make the same number of model calls."""
    paths = zip(axis.paths, read_paths(axis.key), strict=True)
    columns = {
        column: _is_plain if path[-1] in _SAME_CALLS else None
        for column, (text, path) in enumerate(paths)
        if text in places
    }
    return group_rows(axis, columns)


def _is_plain(value: Value) -> bool:
    return isinstance(value, str | int | float)


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
