"""What is listed of a session, and what its id may be."""

import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, PositiveInt

from ..common.data import Data
from ..common.errors import SessionError

SessionStatus = Literal["unfinished", "waiting", "finished"]
"""Whether a conversation has ended, or waits for a person."""

_SESSION_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


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
    status: SessionStatus = "unfinished"
    reason: str | None = None
    stop_requested: bool = False
    created_at: AwareDatetime
    updated_at: AwareDatetime


class Wanted(Data):
    """Which sessions are looked for, the newest first."""

    text: str = ""
    """What stands in their title or id, in any case."""
    status: SessionStatus | None = None
    """Their status."""
    reason: str | None = None
    """Why they ended."""
    after: tuple[str, str] | None = None
    """The `place` of the session that they come after in the list. None: from the newest on."""
    limit: PositiveInt = 50
    """How many, at most."""

    def has(self, row: SessionRow) -> bool:
        """Whether a session is one of them, as far as one row can tell."""
        text = self.text.casefold()
        return (
            (text in row.title.casefold() or text in row.session.casefold())
            and self.status in (None, row.status)
            and self.reason in (None, row.reason)
        )


def place(row: SessionRow) -> tuple[str, str]:
    """Give where a session stands in the list, as text."""
    return moment(row.created_at), row.session


def moment(when: datetime) -> str:
    """Write a time as the stores do: of one width, so that texts are in the order of times."""
    return when.isoformat(timespec="microseconds")


def new_row(session: str, title: str, spec: str) -> SessionRow:
    """Return the row of a session that starts now."""
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
    """Return `session` if it can be a session's id."""
    if _SESSION_ID.fullmatch(session) is None or session in {".", ".."}:
        raise SessionError(
            f"{session!r} can't be a session's id: use 1 to 128 of A-Z a-z 0-9 . _ - "
            "(and not just . or ..)."
        )
    return session
