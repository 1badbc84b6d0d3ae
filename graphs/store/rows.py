"""The rows of sessions, and one boundary around all that is read from a store.

Whatever fails inside `reading_store` is a `StoreError`. Writes have `store_errors`
(`graphs.store.errors`) instead, which knows only the drivers' errors: the written value is the
user's and may itself be wrong.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    PositiveInt,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from ..common.data import Data
from ..common.errors import DuologueError, SessionError, StoreError
from ..common.versions import BEFORE_RELEASE, VersionError, Versions
from .errors import UnknownTypeError, damaged_store, store_errors, store_failure

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple


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


@contextmanager
def reading_store(url: str, session: str | None = None) -> Iterator[None]:
    """Turn whatever is raised inside the block into `StoreError`.

    It belongs around reading what is stored and making sense of it, and around nothing of the
    user's.
    """
    try:
        with store_errors(url):
            yield
    except (StoreError, SessionError):
        raise
    except VersionError as error:
        raise store_failure(url, f"session {session!r} can't be read: {error}") from error
    except Exception as error:
        raise damaged_store(url, _said(error), session) from error


def _said(error: Exception) -> str:
    """Say what is wrong, in a few words."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        text = first["msg"].removeprefix("Value error, ")
        return f"{field}: {text[:1].lower()}{text[1:]}" if field else text
    if isinstance(error, DuologueError | UnknownTypeError | _DamageError):
        return str(error)
    return f"{type(error).__name__}: {error}"


class _DamageError(ValueError):
    """What is stored does not fit together."""


def read_version(found: Sequence[Sequence[Any]], versions: Versions[Any], url: str) -> int | None:
    """Read the version of a store's tables."""
    if not found:
        return None
    values = [value for row in found for value in row]
    if len(values) != 1 or type(values[0]) is not int or values[0] < 1:
        raise damaged_store(url, "duologue_schema holds no version")
    version: int = values[0]
    if version > versions.newest:
        raise StoreError(
            f"The sessions in {url} have format {version} and this duologue reads up to "
            f"{versions.newest}: upgrade duologue, or choose another store."
        )
    if version < versions.oldest:
        raise StoreError(
            f"The sessions in {url} were {BEFORE_RELEASE} and can't be read: choose another store."
        )
    return version


def read_row(values: Sequence[Any], url: str) -> SessionRow:
    """Make the row of a session out of what its table holds."""
    data = dict(zip(SessionRow.model_fields, values, strict=True))
    session = data["session"]
    with reading_store(url, session if isinstance(session, str) else None):
        row = SessionRow.model_validate(data)
        if sha256(row.spec.encode()).hexdigest() != row.digest:
            raise _DamageError("its conversation is not the one that was stored")
        return row


_Version = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.")]
"""What LangGraph counts a channel's writes with, where it stores them in a database."""


class _Checkpoint(BaseModel):
    """What must be in a checkpoint for LangGraph to go on from it."""

    model_config = ConfigDict(strict=True)

    v: int
    id: str
    ts: str
    channel_values: dict[str, Any]
    channel_versions: dict[str, _Version]
    versions_seen: dict[str, dict[str, _Version]]


_WRITES: Final = TypeAdapter(list[tuple[str, str, Any]])


def check_checkpoint(found: "CheckpointTuple") -> "CheckpointTuple":
    """Return a checkpoint that was read, if LangGraph can go on from it."""
    checkpoint = _Checkpoint.model_validate(found.checkpoint)
    _WRITES.validate_python(found.pending_writes or [])
    if checkpoint.id != found.config["configurable"]["checkpoint_id"]:
        raise _DamageError("a checkpoint stands in the place of another one")
    if not isinstance(found.metadata, dict):
        raise _DamageError("the metadata of a checkpoint is not an object")
    return found
