"""What is said when a store, or a session in it, can't be used."""

import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from duologue.graphs.errors import SessionError, StoreError


def unknown_session(session: str, url: str) -> SessionError:
    """Return the error for a session that `url` does not hold."""
    return SessionError(f"There is no session {session!r} in {url}.")


def taken_session(session: str, url: str) -> SessionError:
    """Return the error for adding a session that `url` holds already."""
    return SessionError(f"Session {session!r} exists already in {url}.")


def busy_session(session: str) -> SessionError:
    """Return the error for a session that another run holds."""
    return SessionError(f"Session {session!r} is busy: another run holds it.")


def lost_session(session: str) -> SessionError:
    """Return the error for a run that no longer holds its session."""
    return SessionError(
        f"Session {session!r} is no longer held by this run, which stops without writing more: "
        "another run has taken it over, or its lock was removed."
    )


def redacted(url: str) -> str:
    """Return `url` with any password in it replaced by `***`.

    A password that was not percent-encoded may hold `@` or `/`, so all between the user and the
    last `@` is replaced.
    """
    url = re.sub(r"(?s)^([^:/?#]+://[^:@/?#]*):.*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&](?:ssl)?password=)[^&]*", r"\1***", url)


@contextmanager
def store_errors(url: str) -> Iterator[None]:
    """Turn the database drivers' exceptions inside the block into `StoreError`.

    Stores and their checkpointers use it themselves. Around a whole run it would also catch what
    a tool's own database raises.

    Args:
        url: The store's address; a password in it is not shown.

    Raises:
        StoreError: The block raised `sqlite3.Error` or `psycopg.Error`.
    """
    try:
        yield
    except Exception as error:
        # Looked up, not imported: PostgreSQL is optional, and who has not loaded it can't raise.
        psycopg = sys.modules.get("psycopg")
        if isinstance(error, sqlite3.Error) or (psycopg and isinstance(error, psycopg.Error)):
            raise store_failure(url, str(error)) from error
        raise


def store_failure(url: str, why: str) -> StoreError:
    """Return the error for a store that fails.

    Args:
        url: The store's address; a password in it is not shown.
        why: What the driver or the system said; made into one line.
    """
    reason = " ".join(why.split()).rstrip(".?") or "no reason was given"
    return StoreError(f"The sessions in {redacted(url)} can't be used: {reason}.")
