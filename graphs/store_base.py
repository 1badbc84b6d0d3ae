"""What every store of sessions is: its rows, its contract, its errors. No database lives here."""

import re
import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal, TypeAlias

from langgraph.checkpoint.base import BaseCheckpointSaver
from pydantic import AwareDatetime, BaseModel, ConfigDict

from duologue.graphs.errors import SessionError, StoreError

_SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class SessionRow(BaseModel):
    """What is known of one session without reading its checkpoints.

    Attributes:
        session: The session's id, which is LangGraph's `thread_id`.
        title: What people see in a listing.
        spec: The conversation, as JSON text.
        digest: SHA-256 of `spec` in UTF-8, 64 hexadecimal digits.
        status: Whether the conversation has ended, or waits for a person.
        reason: Why it ended; None while unfinished.
        stop_requested: Whether someone asked it to stop at its next turn.
        created_at: When the row was added, UTC.
        updated_at: When the row last changed, UTC.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    session: str
    title: str
    spec: str
    digest: str
    status: Literal["unfinished", "waiting", "finished"] = "unfinished"
    reason: str | None = None
    stop_requested: bool = False
    created_at: AwareDatetime
    updated_at: AwareDatetime


# Inside the class, `list` is its method.
_Rows: TypeAlias = list[SessionRow]


class Store(ABC):
    """The place where sessions live: a checkpointer, and one row for each session beside it.

    Get one from `open_store`. Every method, and the checkpointer itself, raises `StoreError` when
    the database behind it fails.

    Attributes:
        url: The address as shown to people; a password in it is replaced by `***`.
        checkpointer: LangGraph's saver on the same database. It belongs to the event loop that
            opened the store.
    """

    url: str
    checkpointer: BaseCheckpointSaver[str]

    @abstractmethod
    async def add(self, session: str, *, title: str, spec: str) -> SessionRow:
        """Add an unfinished session.

        Args:
            session: Its id, see `check_session_id`.
            title: What people see in a listing.
            spec: The conversation, as JSON text.

        Returns:
            The new row.

        Raises:
            SessionError: The id is not valid or is taken.
            StoreError: The database fails.
        """

    @abstractmethod
    async def get(self, session: str) -> SessionRow | None:
        """Return the row of `session`, or None if there is no such session.

        Raises:
            StoreError: The database fails.
        """

    @abstractmethod
    async def list(self) -> _Rows:
        """Return every row, newest first by `created_at`; checkpoints are not read.

        Raises:
            StoreError: The database fails.
        """

    @abstractmethod
    async def finish(self, session: str, reason: str) -> None:
        """Mark `session` as finished because of `reason`; a second call replaces the reason.

        Raises:
            SessionError: There is no such session.
            StoreError: The database fails.
        """

    @abstractmethod
    async def wait(self, session: str) -> None:
        """Mark `session` as one that waits for a person.

        Raises:
            SessionError: There is no such session.
            StoreError: The database fails.
        """

    @abstractmethod
    async def reopen(self, session: str) -> None:
        """Mark `session` as unfinished, whatever ended it or whomever it waited for.

        Raises:
            SessionError: There is no such session.
            StoreError: The database fails.
        """

    async def drain(self) -> None:
        """Await the writes under way; some stores have none."""
        return

    @abstractmethod
    async def request_stop(self, session: str) -> None:
        """Ask whoever runs `session`, here or in another process, to stop at its next turn.

        Raises:
            SessionError: There is no such session.
            StoreError: The database fails.
        """

    @abstractmethod
    async def clear_stop(self, session: str) -> None:
        """Forget that `session` was asked to stop, as a run that starts does.

        Raises:
            SessionError: There is no such session.
            StoreError: The database fails.
        """

    async def stop_requested(self, session: str) -> bool:
        """Return whether `session` was asked to stop.

        Raises:
            SessionError: There is no such session.
            StoreError: The database fails.
        """
        row = await self.get(session)
        if row is None:
            raise unknown_session(session, self.url)
        return row.stop_requested

    async def delete(self, session: str) -> None:
        """Delete the row of `session` and all its checkpoints.

        Raises:
            SessionError: There is no such session, or it is being run.
            StoreError: The database fails.
        """
        async with self.lock(session):
            if await self.get(session) is None:
                raise unknown_session(session, self.url)
            await self.erase(session)

    async def erase(self, session: str) -> None:
        """Delete the row of `session` and all its checkpoints, for whoever holds its lock.

        Raises:
            StoreError: The database fails.
        """
        # The row goes last: a kill in between leaves something that can be deleted again.
        await self.checkpointer.adelete_thread(session)
        await self._remove(session)

    @abstractmethod
    async def _remove(self, session: str) -> None:
        """Delete the row of `session` alone."""

    @abstractmethod
    def lock(self, session: str) -> AbstractAsyncContextManager[None]:
        """Hold `session` for one run; the lock is freed at exit and by the holder's death.

        The session need not exist yet.

        Raises:
            SessionError: The id is not valid, or another run, in this process or another, holds
                it ("busy"); raised on entering, without waiting.
            StoreError: The lock can't be made.
        """

    @abstractmethod
    async def is_locked(self, session: str) -> bool:
        """Return whether someone is running `session` now.

        Raises:
            StoreError: The lock can't be looked at.
        """


def new_row(session: str, title: str, spec: str) -> SessionRow:
    """Return the row of a session that starts now.

    Args:
        session: Its id, see `check_session_id`.
        title: What people see in a listing.
        spec: The conversation, as JSON text.

    Raises:
        SessionError: The id is not valid.
    """
    now = datetime.now(UTC)
    return SessionRow(
        session=check_session_id(session),
        title=title,
        spec=spec,
        digest=sha256(spec.encode()).hexdigest(),
        created_at=now,
        updated_at=now,
    )


def check_session_id(session: str) -> str:
    """Return `session` if it can be a session's id.

    Args:
        session: 1 to 128 letters, digits, `.`, `_` or `-` (ASCII), but neither `.` nor `..`.

    Raises:
        SessionError: It is something else.
    """
    if _SESSION_ID.fullmatch(session) is None or session in {".", ".."}:
        raise SessionError(
            f"{session!r} can't be a session's id: use 1 to 128 of A-Z a-z 0-9 . _ - "
            "(and not just . or ..)."
        )
    return session


def unknown_session(session: str, url: str) -> SessionError:
    """Return the error for a session that `url` does not hold."""
    return SessionError(f"There is no session {session!r} in {url}.")


def taken_session(session: str, url: str) -> SessionError:
    """Return the error for adding a session that `url` holds already."""
    return SessionError(f"Session {session!r} exists already in {url}.")


def busy_session(session: str) -> SessionError:
    """Return the error for a session that another run holds."""
    return SessionError(f"Session {session!r} is busy: another run holds it.")


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
