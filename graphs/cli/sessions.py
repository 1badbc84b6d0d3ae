"""Commands that read or change the lists of sessions and batches.

This module does not load LangGraph, which would take longer than the rest of the command.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..batch.status import BatchStatus, list_batches, read_status
from ..common.errors import SpecError, StoreError
from ..common.files import write_file
from ..common.sanitize import clean
from ..session.listing import (
    SessionFilter,
    delete_unchanged,
    find_sessions,
    known_store,
    read_sessions,
    stop_session,
)
from ..store.base import Store
from ..store.errors import unknown_session
from ..store.rows import SessionRow, check_session_id
from .follow_up import FollowUp
from .terminal.console import (
    cell,
    json_line,
    on_screen,
    one_line,
    pad,
    plain,
    show_count,
    stderr,
    stdout,
)

if TYPE_CHECKING:
    from ..session.session import Session


T = TypeVar("T")

_ON_A_SCREEN = 50  # sessions in a list, unless --limit says otherwise
_TITLE = 30  # minimum columns for a title on the session's line; if fewer, on the next line


def show_sessions(store: str | None, chosen: SessionFilter, *, as_json: bool) -> None:
    """Print the sessions of a store that match a filter, newest first."""

    async def print_json(opened: Store) -> None:
        async for row, status in _find_with_status(opened, chosen):
            found = row.model_dump(
                mode="json", exclude={"spec", "digest", "stop_requested", "tools"}
            )
            json_line(json.dumps(found | {"status": status.partition(":")[0]}))

    if as_json:
        _use_store(store, print_json)
        return
    limit = chosen.limit or _ON_A_SCREEN

    async def read(opened: Store) -> list[tuple[SessionRow, str]]:
        # One more than is shown, to find out whether there are older sessions.
        more = chosen.model_copy(update={"limit": limit + 1})
        return [found async for found in _find_with_status(opened, more)]

    rows = _use_store(store, read)
    if rows:
        _print_table(stdout(), rows[:limit])
    if len(rows) > limit:
        last = rows[limit - 1][0].session
        plain(stderr(), f"There are older sessions; show them with --after {last}", "dim")
    elif not rows and chosen == SessionFilter(limit=chosen.limit):
        plain(stderr(), "There are no sessions yet. `duologue run` starts one.", "dim")
    elif not rows:
        plain(stderr(), "No session matches.", "dim")


def _use_store(store: str | None, use: Callable[[Store], Awaitable[T]]) -> T:
    """Open a store, and run a function with it."""

    async def run() -> T:
        async with known_store(store) as opened:
            return await use(opened)

    return asyncio.run(run())


def delete_old(store: str | None, chosen: SessionFilter, *, dry_run: bool, yes: bool) -> None:
    """Delete the sessions that match a filter, after the person at the terminal has agreed."""
    rows = _use_store(store, lambda opened: read_sessions(opened, chosen))
    number = show_count(len(rows), "session")
    if dry_run or not rows:
        plain(stdout(), f"{number} would be deleted." if rows else "No session matches.")
        return
    if not yes:
        if not can_ask():
            raise SpecError(
                f"--yes: {number} would be deleted, and there is no terminal to ask; add --yes"
            )
        if not typer.confirm(f"Delete {number} with all messages?"):
            plain(stdout(), "Nothing was deleted.")
            return
    done = _use_store(store, lambda opened: delete_unchanged(opened, rows))
    plain(stdout(), f"Deleted {show_count(done.deleted, 'session')}.")
    if done.busy:
        names = ", ".join(map(cell, done.busy))
        plain(stderr(), f"Not deleted, because a run is using them: {names}")


def can_ask() -> bool:
    """Return whether a person at the terminal can answer a question."""
    return sys.stdin is not None and sys.stdin.isatty()


def require_session(session: str, store: str | None) -> SessionRow:
    """Return the row of a session, before LangGraph is loaded to read the session.

    The row of an inner session is that of the session that contains it.

    Raises:
        SessionError: There is no such session.
        StoreError: The store cannot be read.
    """
    return _use_store(store, lambda opened: _require(opened, check_session_id(session)))


def open_session(session: str, store: str | None) -> "Session":
    """Return the handle of a session that exists; otherwise raise as `require_session` does."""
    require_session(session, store)
    from ..session.session import Session  # loads LangGraph

    return Session(session, store=store)


def print_next_command(session: "Session", tools: Sequence[str] = ()) -> None:
    """Print the id of a session, and the command that continues it."""
    plain(stdout(), session.id)
    store = None if session.store is None else str(session.store)
    row = require_session(session.id, store)
    if session.state().outcome is None:
        plain(stderr(), FollowUp(store, tools=tools).for_session(row).hint(session.id))
    else:
        # `resume` would change nothing: by the same rules a fork at its end has ended as well.
        say = FollowUp(store).command("say", session.id, arguments=("SPEAKER", "TEXT"))
        told = (
            "It has ended as well, by the same rules: fork at an earlier message (--at), change a "
            f"rule (such as --max-iterations), or add a message: {say}"
        )
        plain(stderr(), told if row.forked_from else f"It has ended. Continue it with: {say}")


def put(text: str, output: Path | None) -> None:
    """Write a text to a file, or to standard output."""
    if output is not None:
        write_file(output, text)
    elif on_screen(stdout()):
        typer.echo(clean(text), nl=False)
    else:
        # Always UTF-8, as in a file, whatever the terminal's encoding.
        typer.echo(text.encode(), nl=False)


async def _require(store: Store, session: str) -> SessionRow:
    # The id of an inner session begins with the id of the session that contains it, and a dot.
    parts = session.split(".")
    ids = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    for one in filter(None, ids):
        if (row := await store.get(one)) is not None:
            return row
    raise unknown_session(session, store.url)


def stop_stored(session: str, store: str | None) -> bool:
    """Stop a session, as `Session.stop` does, and return whether it has ended."""
    return _use_store(store, lambda opened: stop_session(opened, check_session_id(session)))


def delete_stored(session: str, store: str | None) -> None:
    """Delete a session, as `Session.delete` does."""

    async def delete(opened: Store) -> None:
        # Before the lease, whose tables load LangGraph. A damaged row can be deleted as well.
        with suppress(StoreError):
            await _require(opened, check_session_id(session))
        await opened.delete(session)

    _use_store(store, delete)


async def _find_with_status(
    store: Store, chosen: SessionFilter
) -> AsyncIterator[tuple[SessionRow, str]]:
    """Yield the rows of sessions, each with its status in words."""
    async for rows in find_sessions(store, chosen):
        locked = await store.locked([row.session for row in rows])
        for row in rows:
            status = f"finished: {row.reason}" if row.status == "finished" else row.status
            yield row, "running" if row.session in locked else status


def _print_table(out: Console, rows: list[tuple[SessionRow, str]]) -> None:
    cells = [(cell(row.session), cell(status)) for row, status in rows]
    ids, states = (max(map(cell_len, column)) for column in zip(*cells, strict=True))
    narrow = on_screen(out) and out.width < ids + states + 20 + _TITLE
    for (row, _), (session, status) in zip(rows, cells, strict=True):
        when = f"{row.created_at.astimezone():%Y-%m-%d %H:%M}"
        style = {"running": "green", "unfinished": "yellow", "waiting": "cyan"}.get(status, "")
        line = Text.assemble(
            (pad(session, ids), "bold"), "  ", (pad(status, states), style), "  ", when
        )
        room = out.width - (2 if narrow else line.cell_len + 2) if on_screen(out) else None
        line.append("\n  " if narrow else "  ")
        origin = "" if row.forked_from is None else f"Fork of {cell(row.forked_from)}: "
        line.append(one_line(f"{origin}{row.title}", room), "dim")
        out.print(line, soft_wrap=True)


_LOOK = 1.0
"""Seconds between two reads of the status of a batch that another process runs."""


def show_status(name: str, store: str | None, *, watch: bool, as_json: bool) -> None:
    """Print the status of a batch. With `watch`, update it until the batch no longer runs."""

    async def follow(opened: Store) -> BatchStatus:
        status = await read_status(opened, name)
        if not watch:
            return status
        from .terminal.progress import BatchView  # takes a while

        with BatchView(stderr()) as view:
            while status.is_running:
                view.show(status)
                await asyncio.sleep(_LOOK)
                status = await read_status(opened, name)
        return status

    print_status(_use_store(store, follow), as_json=as_json)


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
        when = f"{status.created_at.astimezone():%Y-%m-%d %H:%M}  "
        line = Text.assemble(
            (pad(cell(status.batch), names), "bold"), "  ", status.standing(), "  ", when
        )
        room = out.width - line.cell_len if on_screen(out) else None
        line.append(one_line(status.title, room), "dim")
        out.print(line, soft_wrap=True)
