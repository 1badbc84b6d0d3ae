"""Opening of stores by address. A process shares one open store per address and event loop."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..common.addresses import show_address
from ..common.errors import StoreError, how_to_install
from .base import Store, settled
from .errors import store_failure
from .session_lease import SessionLease
from .sqlite import SqliteStore


class _Shared:
    """A store that is open or being opened, with its number of users."""

    def __init__(self, make: Callable[[], Store]) -> None:
        # A separate task, because the first user may be cancelled while others wait.
        self.opening = asyncio.create_task(_open(make))
        self.users = 0

    async def close(self) -> None:
        """Close the store, or stop opening it."""
        self.opening.cancel()
        with suppress(Exception, asyncio.CancelledError):
            store = await self.opening
            await store.close()


async def _open(make: Callable[[], Store]) -> Store:
    store = make()
    try:
        await store.open()
    except BaseException:
        await settled(store.close())
        raise
    return store


_OPEN: dict[tuple[str, asyncio.AbstractEventLoop], _Shared] = {}
# The parent's stores are kept, because a forked child must not close their SQLite connections.
_OF_THE_PARENT: list[object] = []


def _forget_parents_stores() -> None:
    _OF_THE_PARENT.extend(_OPEN.values())
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents_stores)


@asynccontextmanager
async def share_store(address: str, make: Callable[[], Store]) -> AsyncIterator[Store]:
    """Yield the open store of an address; the first user opens it, and the last one closes it."""
    key = address, asyncio.get_running_loop()
    store = _OPEN.get(key)
    if store is None:
        store = _OPEN[key] = _Shared(make)
    store.users += 1
    try:
        yield await asyncio.shield(store.opening)
    finally:
        store.users -= 1
        # A forked child must not close its parent's store.
        if not store.users and _OPEN.get(key) is store:
            del _OPEN[key]
            await settled(store.close())


__all__ = ["SessionLease", "Store", "open_store"]

# At least two characters, so that a drive (C:) is read as a path.
# libpq's other form of an address: `name=value` pairs.
_LIBPQ = re.compile(
    r"\s*(?:[a-z_]+\s*=.*\s)?(?:host|hostaddr|port|dbname|user|password|service)\s*=",
    re.IGNORECASE | re.DOTALL,
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@asynccontextmanager
async def open_store(
    target: str | Path | None = None, *, create: bool = True
) -> AsyncIterator[Store]:
    """Open a store; all users of one address on the same event loop share it."""
    # In a thread, like all access to files, because the dev server refuses it in a coroutine.
    place = await asyncio.to_thread(_place, target, create=create)
    async with share_store(place.address, place.make) as store:
        yield store


class _Place(NamedTuple):
    """The address of a store, and a function that makes the store."""

    address: str
    make: Callable[[], Store]


def _place(target: str | Path | None, *, create: bool) -> _Place:
    if target is None:
        from platformdirs import user_data_path  # not needed for a store that is named

        target = user_data_path("duologue") / "sessions.db"
    if isinstance(target, Path):
        return _sqlite(target, create=create)
    if not isinstance(target, str):
        raise _bad_address(type(target).__name__)
    if target.startswith(("postgresql://", "postgres://")):
        return _Place(target, partial(_postgres(), target))
    if re.fullmatch(r"memory:[A-Za-z0-9._-]*", target):
        from .in_memory import MemoryStore  # loads LangGraph

        return _Place(target, partial(MemoryStore, target))
    if _LIBPQ.match(target):
        # The text may contain a password.
        raise _bad_address("an address of the form host=… password=…")
    path = target.removeprefix("sqlite:///")
    if path in {"", ":memory:"} or (path == target and _SCHEME.match(target)):
        raise _bad_address(repr(show_address(target)))
    return _sqlite(Path(path), create=create)


def _bad_address(given: str) -> StoreError:
    return StoreError(
        f"Sessions can't be kept in {given}: use a file's path, sqlite:///file.db, postgresql://…, "
        "memory: or memory:name."
    )


def _sqlite(path: Path, *, create: bool) -> _Place:
    # Resolved, so that a link and its target are one store.
    try:
        path = path.expanduser().resolve()
        is_there = path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise store_failure(f"sqlite:///{path.as_posix()}", str(error)) from error
    url = f"sqlite:///{path.as_posix()}"
    if not create and not is_there:
        raise store_failure(url, "there is no such file")
    return _Place(url, partial(SqliteStore, path, url))


def _postgres() -> Callable[[str], Store]:
    try:
        from .postgres import PostgresStore
    except ImportError as error:
        raise StoreError(
            f"Sessions in PostgreSQL need more packages: {how_to_install('postgres')}."
        ) from error
    return PostgresStore
