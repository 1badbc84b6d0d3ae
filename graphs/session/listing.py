"""The sessions of a store: listing them, stopping one, and deleting old ones.

This module does not load LangGraph, which takes longer than reading the list.
`graphs.session.session_row` reads a single session.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, PositiveInt

from ..common.data import Data
from ..common.errors import SessionError, hide_frames, suggest_near_or_all
from ..common.settings import load_settings
from ..common.threads import in_background
from ..common.validation import validate
from ..store.errors import unknown_batch, unknown_session
from ..store.open import Store, open_store
from ..store.rows import SessionRow, Wanted, place


async def stop_session(store: Store, session: str) -> bool:
    """Stop a session that waits, or request a stop after the current turn of a session that runs.

    Returns:
        Whether the session has ended.

    Raises:
        SessionError: The session does not exist, has already ended, or is neither running nor
            waiting; or it is waiting, and a stop alone does not meet its ``end_chat.when``.
    """
    row = await store.get(session)
    if row is None:
        raise unknown_session(session, store.url)
    if row.status == "finished":
        raise SessionError(f"Session {session!r} has ended already.")
    if await store.is_locked(session):
        await store.request_stop(session)
        return False
    if row.status != "waiting":
        raise SessionError(f"Session {session!r} is not running; there is nothing to stop.")
    # This import loads LangGraph.
    from .edits import end_waiting

    await end_waiting(store, session)
    return True


ListedStatus = Literal["running", "waiting", "unfinished", "finished"]
"""The status of a session in lists: running if a run has a lease on it, else its stored status."""

_PORTION: Final = 500  # sessions that are read at once
_AT_ONCE: Final = 50  # sessions that are deleted at once, so that one commit deletes several


@asynccontextmanager
async def known_store(store: str | Path | None, *, create: bool = False) -> AsyncIterator[Store]:
    """Open a store. If `store` is passed, the store must exist, unless `create` is true."""
    target = store or (await asyncio.to_thread(load_settings)).store
    async with open_store(target, create=create or not store) as opened:
        yield opened


def _known_reason(reason: str) -> str:
    from ..ends.end_chat import Reason

    known = [one.value for one in Reason]
    if reason not in known:
        raise ValueError(f"{reason!r} is unknown{suggest_near_or_all(reason, known)}")
    return reason


class SessionFilter(Data):
    """The sessions that a list contains."""

    status: ListedStatus | None = None
    """The status of the sessions. Any if None."""
    reason: Annotated[str, AfterValidator(_known_reason)] | None = None
    """The reason for the end of the sessions. Any if None."""
    batch: str | None = None
    """The name of the batch to which the sessions belong. Any session if None."""
    text: str = ""
    """Text in the title or the id of the sessions; case is ignored."""
    older_than: timedelta | None = None
    """The minimum time since the latest run of the sessions began or ended. Any time if None."""
    after: str | None = None
    """The id of a session: the list contains only sessions after it, which are older. If None, the
    list starts at the newest session."""
    limit: PositiveInt | None = None
    """Maximum number of sessions. No limit if None."""


def read_filter(**fields: Any) -> SessionFilter:
    """Return the filter with these fields.

    Raises:
        SpecError: A field is not valid.
    """
    return validate(SessionFilter, fields)


async def find_sessions(store: Store, chosen: SessionFilter) -> AsyncIterator[Sequence[SessionRow]]:
    """Yield the rows of the sessions that match a filter, newest first, in several portions.

    Raises:
        BatchError: There is no such batch.
        SessionError: There is no such session after which the list begins.
        StoreError: The store cannot be read.
    """
    wanted = await _make_query(store, chosen)
    left = chosen.limit
    while rows := await store.find(wanted):
        found = rows
        if chosen.status == "running":
            locked = await store.locked([row.session for row in rows])
            found = [row for row in rows if row.session in locked]
        yield found[:left]
        left = None if left is None else left - len(found)
        if len(rows) < wanted.limit or (left is not None and left <= 0):
            return
        wanted = wanted.model_copy(update={"after": place(rows[-1])})


async def read_sessions(store: Store, chosen: SessionFilter) -> list[SessionRow]:
    """Return the rows of all sessions that match a filter, as `find_sessions` yields them."""
    return [row async for rows in find_sessions(store, chosen) for row in rows]


async def _make_query(store: Store, chosen: SessionFilter) -> Wanted:
    if chosen.batch is not None and await store.batches.get(chosen.batch) is None:
        raise unknown_batch(chosen.batch, store.url)
    # No session is older than the calendar.
    now = datetime.now(UTC)
    longest = now - datetime.min.replace(tzinfo=UTC)
    age = chosen.older_than
    after = None if chosen.after is None else await store.get(chosen.after)
    if chosen.after is not None and after is None:
        raise unknown_session(chosen.after, store.url)
    return Wanted(
        text=chosen.text,
        status=None if chosen.status == "running" else chosen.status,
        reason=chosen.reason,
        batch=chosen.batch,
        is_leased=chosen.status == "running",
        changed_before=None if age is None else now - min(age, longest),
        after=None if after is None else place(after),
        limit=min(chosen.limit or _PORTION, _PORTION),
    )


@hide_frames
async def alist_sessions(
    *,
    store: str | Path | None = None,
    status: ListedStatus | None = None,
    reason: str | None = None,
    batch: str | None = None,
    text: str = "",
    older_than: timedelta | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> list[SessionRow]:
    """List the sessions of a store, newest first, without reading their contents.

    Args:
        store: The store: a path, ``sqlite:///…``, ``postgresql://…`` or ``memory:``. If None, the
            store in the settings, or else an SQLite file in the user's data folder.
        status: Only sessions with this status: ``running``, ``waiting``, ``unfinished`` or
            ``finished``. ``unfinished`` includes sessions that are running.
        reason: Only sessions that ended for this reason, such as ``done_token``.
        batch: Only sessions of the batch with this name.
        text: Only sessions with this text in their title or id; case is ignored.
        older_than: Only sessions whose latest run began and ended at least this long ago.
        after: The id of a session: only sessions after it in the list, which are older.
        limit: Maximum number of sessions. No limit if None.

    Returns:
        One row for each session.

    Raises:
        SpecError: An argument is not valid.
        BatchError: There is no such batch.
        SessionError: There is no session with the id ``after``.
        StoreError: The store cannot be opened or read.
    """
    chosen = read_filter(
        status=status,
        reason=reason,
        batch=batch,
        text=text,
        older_than=older_than,
        after=after,
        limit=limit,
    )
    async with known_store(store) as opened:
        return await read_sessions(opened, chosen)


list_sessions = in_background(alist_sessions)


@dataclass
class Deletion:
    """The result of deleting sessions."""

    deleted: int = 0
    """Number of deleted sessions."""
    busy: list[str] = field(default_factory=list)
    """The ids of sessions that stay because a run is using them."""


async def delete_unchanged(store: Store, rows: Sequence[SessionRow]) -> Deletion:
    """Delete sessions whose rows have not changed since they were read.

    Args:
        store: The store of the sessions.
        rows: The rows of the sessions.

    Returns:
        The number of deleted sessions, and the sessions that are in use.
    """
    done = Deletion()

    async def delete(row: SessionRow) -> None:
        try:
            async with store.lock(row.session) as held:
                if await store.get(row.session) == row and await held.erase():
                    done.deleted += 1
        except SessionError:
            done.busy.append(row.session)

    locked = await store.locked([row.session for row in rows])
    done.busy += [row.session for row in rows if row.session in locked]
    free = [row for row in rows if row.session not in locked]
    for start in range(0, len(free), _AT_ONCE):
        await asyncio.gather(*map(delete, free[start : start + _AT_ONCE]))
    return done
