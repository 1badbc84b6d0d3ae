"""The commands that show batches."""

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from ..batch.status import BatchStatus, list_batches, read_status
from ..session.listing import known_store
from .terminal.console import (
    cell,
    json_line,
    on_screen,
    one_line,
    pad,
    plain,
    stderr,
    stdout,
    whole,
)

if TYPE_CHECKING:
    from ..batch.driver import BatchSettings

_LOOK = 1.0
"""Seconds between two reads of the status of a batch that another process runs."""


def show_plan(file: Path, settings: "BatchSettings", *, as_json: bool) -> None:
    """Print the size of a batch and two cells, without running it."""
    from ..batch.preview import preview_batch  # loads LangGraph
    from ..batch.run import batch_name, check_batch, choose_cells

    batch, cells = check_batch(file, batch_name(settings.name, file))
    found = preview_batch(
        choose_cells(cells, settings), batch.limits, judge_at_end=batch.judge_at_end
    )
    if as_json:
        json_line(found.model_dump_json())
        return
    whole(stdout(), found.text())


def show_status(name: str, store: str | None, *, watch: bool, as_json: bool) -> None:
    """Print the status of a batch. With `watch`, update it until the batch no longer runs."""
    print_status(asyncio.run(_followed(name, store, watch=watch)), as_json=as_json)


async def _followed(name: str, store: str | None, *, watch: bool) -> BatchStatus:
    async with known_store(store) as opened:
        status = await read_status(opened, name)
        if not watch:
            return status
        from .batch_view import BatchView  # loads LangGraph

        with BatchView(stderr()) as view:
            while status.is_running:
                view.show(status)
                await asyncio.sleep(_LOOK)
                status = await read_status(opened, name)
        return status


def print_status(status: BatchStatus, *, as_json: bool) -> None:
    """Print the status of a batch."""
    if as_json:
        json_line(json.dumps(_as_json(status)))
        return
    stdout().print(status)


def _as_json(status: BatchStatus) -> dict[str, object]:
    counts = ("finished", "failed", "left", "reasons", "messages", "calls", "tokens", "cost")
    found = status.model_dump(mode="json", exclude={"counts"})
    return found | {name: getattr(status, name) for name in counts}


def show_batches(store: str | None, *, as_json: bool) -> None:
    """Print the batches of a store, newest first."""
    found = list_batches(store=store)
    if as_json:
        for status in found:
            json_line(json.dumps(_as_json(status)))
        return
    if not found:
        plain(stderr(), "There are no batches yet. `duologue batch run` starts one.", "dim")
        return
    out = stdout()
    names = max(cell_len(cell(status.batch)) for status in found)
    for status in found:
        line = Text.assemble(
            (pad(cell(status.batch), names), "bold"), "  ", status.standing(), "  ", _when(status)
        )
        room = out.width - line.cell_len - 2 if on_screen(out) else None
        line.append("  ")
        line.append(one_line(status.title, room), "dim")
        out.print(line, soft_wrap=True)


def _when(status: BatchStatus) -> str:
    created: datetime = status.created_at
    return f"{created.astimezone():%Y-%m-%d %H:%M}"
