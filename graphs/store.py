"""Where sessions live, by address. Each kind of store is in a module of its own, `store_*`."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from platformdirs import user_data_path

from duologue.graphs.errors import StoreError
from duologue.graphs.store_base import (
    SessionRow,
    Store,
    check_session_id,
    redacted,
    store_errors,
    store_failure,
    taken_session,
    unknown_session,
)
from duologue.graphs.store_memory import open_memory
from duologue.graphs.store_sqlite import open_sqlite

__all__ = [
    "SessionRow",
    "Store",
    "check_session_id",
    "default_store_url",
    "open_store",
    "store_errors",
    "taken_session",
    "unknown_session",
]

# Two characters at least, so that a drive (C:) still begins a path.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def default_store_url() -> str:
    """Return the address of the store in the user's data folder, `sqlite:///…/sessions.db`."""
    return f"sqlite:///{(user_data_path('duologue') / 'sessions.db').as_posix()}"


@asynccontextmanager
async def open_store(
    target: str | Path | None = None, *, create: bool = True
) -> AsyncIterator[Store]:
    """Open the place where sessions live.

    Args:
        target: None for the user's data folder; a path, `sqlite:///relative.db` or
            `sqlite:////absolute.db` for a SQLite file, readable by its owner only if it is made
            here; `postgresql://…` or `postgres://…`; `memory:` or `memory:name` for this
            process's memory, where the same address is the same store.
        create: Whether a SQLite file is made where it is missing.

    Yields:
        The store, usable in this event loop until the block ends.

    Raises:
        StoreError: The target is none of these, or can't be used.
    """
    # In a thread, like all that touches files: the dev server refuses it in a coroutine.
    opening = await asyncio.to_thread(_opening, target, create=create)
    async with opening as store:
        yield store


def _opening(target: str | Path | None, *, create: bool) -> AbstractAsyncContextManager[Store]:
    if target is None:
        target = default_store_url()
    if isinstance(target, Path):
        return _sqlite(target, create=create)
    if not isinstance(target, str):
        raise _unfit(type(target).__name__)
    if target.startswith(("postgresql://", "postgres://")):
        return _postgres()(target)
    if re.fullmatch(r"memory:[A-Za-z0-9._-]*", target):
        return open_memory(target)
    path = target.removeprefix("sqlite:///")
    if path in {"", ":memory:"} or (path == target and _SCHEME.match(target)):
        raise _unfit(repr(redacted(target)))
    return _sqlite(Path(path), create=create)


def _unfit(given: str) -> StoreError:
    return StoreError(
        f"Sessions can't be kept in {given}: use a file's path, sqlite:///file.db, postgresql://…, "
        "memory: or memory:name."
    )


def _sqlite(path: Path, *, create: bool) -> AbstractAsyncContextManager[Store]:
    path = path.expanduser().absolute()
    if not create and not path.exists():
        raise store_failure(f"sqlite:///{path.as_posix()}", "there is no such file")
    return open_sqlite(path)


def _postgres() -> Callable[[str], AbstractAsyncContextManager[Store]]:
    try:
        from duologue.graphs.store_postgres import open_postgres
    except ImportError as error:
        raise StoreError(
            "Sessions in PostgreSQL need more packages: install duologue[postgres]."
        ) from error
    return open_postgres
