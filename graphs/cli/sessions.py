"""Commands that read or change the list of sessions.

This module does not load LangGraph, which would take longer than the rest of the command.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..common.errors import StoreError
from ..session.listing import known_store
from ..session.stop import stop_session
from ..store.base import Store
from ..store.errors import unknown_session
from ..store.rows import SessionRow, check_session_id
from .terminal.console import cell, json_line, on_screen, one_line, pad, plain, stderr, stdout

if TYPE_CHECKING:
    from ..session.session import Session

T = TypeVar("T")

_TITLE = 30  # minimum columns for a title on the session's line; if fewer, on the next line


def show_sessions(store: str | None, *, as_json: bool) -> None:
    """Print the sessions of a store, newest first."""
    rows = asyncio.run(_rows(store))
    out = stdout()
    if as_json:
        for row, status in rows:
            found = row.model_dump(mode="json", exclude={"spec", "digest", "stop_requested"})
            json_line(json.dumps(found | {"status": status.partition(":")[0]}))
        return
    if not rows:
        plain(stderr(), "There are no sessions yet. `duologue run` starts one.", "dim")
        return
    _print_table(out, rows)


def require_session(session: str, store: str | None) -> None:
    """Raise if the session does not exist, before LangGraph is loaded to read it.

    Raises:
        SessionError: There is no such session.
        StoreError: The store cannot be read.
    """
    asyncio.run(_in_store(store, _require, session))


def open_session(session: str, store: str | None) -> "Session":
    """Return the handle of a session that exists; otherwise raise as `require_session` does."""
    require_session(session, store)
    from ..session.session import Session  # loads LangGraph

    return Session(session, store=store)


async def _require(store: Store, session: str) -> None:
    if await store.get(session) is None:
        raise unknown_session(session, store.url)


def stop_stored(session: str, store: str | None) -> bool:
    """Stop a session, as `Session.stop` does, and return whether it has ended."""
    return asyncio.run(_in_store(store, stop_session, session))


def delete_stored(session: str, store: str | None) -> None:
    """Delete a session, as `Session.delete` does."""
    asyncio.run(_in_store(store, _delete, session))


async def _delete(store: Store, session: str) -> None:
    # Before the lease, whose tables load LangGraph. A damaged row can be deleted as well.
    with suppress(StoreError):
        await _require(store, session)
    await store.delete(session)


async def _in_store(store: str | None, do: Callable[[Store, str], Awaitable[T]], session: str) -> T:
    async with known_store(store) as opened:
        return await do(opened, check_session_id(session))


async def _rows(store: str | None) -> list[tuple[SessionRow, str]]:
    async with known_store(store) as opened:
        rows = await opened.list()
        return [(row, _status(row, locked=await opened.is_locked(row.session))) for row in rows]


def _status(row: SessionRow, *, locked: bool) -> str:
    if locked:
        return "running"
    return f"finished: {row.reason}" if row.status == "finished" else row.status


def _origin(row: SessionRow) -> str:
    return "" if row.forked_from is None else f"Fork of {cell(row.forked_from)}: "


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
        line.append(one_line(f"{_origin(row)}{row.title}", room), "dim")
        out.print(line, soft_wrap=True)
