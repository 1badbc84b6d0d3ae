"""Errors of stores, and of sessions and batches in them."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..common.addresses import show_address
from ..common.errors import BatchError, SessionError, StoreError
from ..common.sanitize import clean


class UnknownTypeError(ValueError):
    """A stored value names a type that no session contains. It was not imported or called."""


class DamagedFileError(ValueError):
    """A file in a stored message is missing, or its bytes have changed."""


class BusySessionError(SessionError):
    """Another run has a lease on the session."""


class ReplacedSessionError(SessionError):
    """Another run has replaced the checkpoints of the session while they were read."""


class LostSessionError(SessionError):
    """The run has lost its lease on the session, and writes nothing more to it."""


class LostBatchError(BatchError):
    """The run has lost its lease on the batch, and writes nothing more to it."""


def unknown_session(session: str, url: str) -> SessionError:
    """Return the error for a session that `url` does not contain."""
    return SessionError(f"There is no session {session!r} in {url}.")


def taken_session(session: str, url: str) -> SessionError:
    """Return the error for adding a session that already exists in `url`."""
    return SessionError(f"Session {session!r} already exists in {url}.")


def busy_session(session: str) -> BusySessionError:
    """Return the error for a session that another run has leased."""
    return BusySessionError(
        f"Session {session!r} is busy: another run uses it. Wait until that run has ended."
    )


def replaced_session(session: str) -> ReplacedSessionError:
    """Return the error for a session that was changed while it was read."""
    return ReplacedSessionError(
        f"Session {session!r} was changed by another run while it was read; read it again."
    )


def unknown_batch(batch: str, url: str) -> BatchError:
    """Return the error for a batch that `url` does not contain."""
    return BatchError(f"There is no batch {batch!r} in {url}.")


def busy_batch(batch: str) -> BatchError:
    """Return the error for a batch that another run has leased."""
    return BatchError(
        f"Batch {batch!r} is running already. "
        f"Follow it with `duologue batch status {batch} --watch`."
    )


def lost_session(session: str) -> LostSessionError:
    """Return the error for a run that has lost its lease on a session."""
    return LostSessionError(
        f"This run has lost session {session!r} and stops without writing more: another run has "
        "taken it over, or its lock was removed."
    )


def lost_batch(batch: str) -> LostBatchError:
    """Return the error for a run that has lost its lease on a batch."""
    return LostBatchError(
        f"This run has lost batch {batch!r} and stops without writing more: another run has taken "
        f"it over, or its lock was removed. `duologue batch status {batch}` shows its progress."
    )


_COPY = (
    "make room, or copy it, and its -wal file if there is one, to a folder that you can write to"
)


@contextmanager
def store_errors(url: str) -> Iterator[None]:
    """Convert the database drivers' exceptions inside the block to `StoreError`.

    Stores and their checkpointers use it themselves. Around a whole run it would also catch
    exceptions from a tool's own database.
    """
    try:
        yield
    except Exception as error:
        # Not imported, because PostgreSQL is optional: if psycopg is not loaded, it can't have
        # raised.
        psycopg = sys.modules.get("psycopg")
        if isinstance(error, sqlite3.Error):
            if _code(error) == sqlite3.SQLITE_READONLY:
                raise store_failure(
                    url, "the file is read-only or its disk is full", _COPY
                ) from error
            # Python's own error for text that it can't decode has no code.
            is_damage = str(error).startswith("Could not decode") or _code(error) in _DAMAGE
        elif psycopg and isinstance(error, psycopg.Error):
            is_damage = (error.sqlstate or "").startswith(_DAMAGE_OF_POSTGRES)
        elif isinstance(error, UnicodeDecodeError):
            # SQLite quotes a damaged schema, which the driver can't decode.
            is_damage = True
        else:
            raise
        raise (damaged_store if is_damage else store_failure)(url, str(error)) from error


def as_store_error(url: str, error: Exception) -> StoreError:
    """Convert an exception that a write has raised."""
    try:
        with store_errors(url):
            raise error
    except StoreError as told:
        return told
    except Exception:
        # A value that a database can't store, such as text that is not valid UTF-8.
        return store_failure(url, str(error))


# A missing table or column counts as damage, too.
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
_DAMAGE_OF_POSTGRES = ("42P01", "42703", "XX")


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def damaged_store(url: str, why: str, session: str | None = None) -> StoreError:
    """Return the error for unreadable data in a store, or in one session of it."""
    if session is None:
        return store_failure(url, why, "restore a backup, or choose another store")
    fault = f"session {session[:128]!r} can't be read: {why}"
    return store_failure(url, fault, "restore a backup, or delete that session")


def store_failure(url: str, why: str, help: str | None = None) -> StoreError:  # noqa: A002
    """Return the error for a failure of a store."""
    reason = " ".join(clean(why).split()).rstrip(".?") or "no reason was given"
    if len(reason) > _LONGEST:
        reason = f"{reason[:_LONGEST]}…"
    end = "" if help is None else f"; {help}"
    return StoreError(f"The sessions in {show_address(url)} can't be used: {reason}{end}.")


_LONGEST = 400  # characters of a driver's message, which may quote stored data
