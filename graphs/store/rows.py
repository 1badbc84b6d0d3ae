"""Rows of sessions, and one place that converts all errors of reading a store.

Any error inside `reading_store` becomes a `StoreError`. Writes use `store_errors`
(`graphs.store.errors`) instead, which converts only the drivers' errors: a written value comes from
the user and may itself be wrong.
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
    Field,
    PositiveInt,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from ..common.data import BEFORE_RELEASE, Data, VersionError, Versions
from ..common.errors import DuologueError, SessionError, StoreError
from .errors import DamagedFileError, UnknownTypeError, damaged_store, store_errors, store_failure

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple


SessionStatus = Literal["unfinished", "waiting", "finished"]
"""The status of a session: unfinished, waiting for a person, or finished."""

_SESSION_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


class SessionRow(BaseModel):
    """The row of one session, which can be read without its checkpoints.

    Attributes:
        session: The session's id, which is LangGraph's `thread_id`.
        title: The title in lists.
        spec: The conversation, as JSON text.
        digest: SHA-256 of `spec` in UTF-8, 64 hexadecimal digits.
        status: Whether the conversation has ended, or waits for a person.
        reason: Why it ended; None while unfinished.
        stop_requested: Whether someone asked it to stop at its next turn.
        created_at: When the row was added, UTC.
        updated_at: When the row last changed, UTC.
        forked_from: The id of the session that this one is a fork of, or None.
        tools: The places of its Python tools, such as ``shop:refund``, by the tools' names, as JSON
            text. They are printed for people, and never imported.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    session: str
    title: str
    spec: str = Field(repr=False)
    digest: str = Field(repr=False)
    status: SessionStatus = "unfinished"
    reason: str | None = None
    stop_requested: bool = False
    created_at: AwareDatetime
    updated_at: AwareDatetime
    forked_from: str | None = None
    tools: str = "{}"


class Wanted(Data):
    """A filter for sessions, which are returned newest first."""

    text: str = ""
    """Text in the title or the id of the sessions; case is ignored."""
    status: SessionStatus | None = None
    """The status of the sessions. Any if None."""
    reason: str | None = None
    """The reason for the end of the sessions. Any if None."""
    batch: str | None = None
    """The name of the batch whose cells the sessions are. Any session if None."""
    is_leased: bool = False
    """Whether only sessions with a lease are returned. A lease may be left by a killed process."""
    changed_before: AwareDatetime | None = None
    """Only sessions whose rows have not changed since this time. Any if None."""
    after: tuple[str, str] | None = None
    """The `place` of a session in the list: only sessions after it are returned. If None, the list
    starts at the newest."""
    limit: PositiveInt = 50
    """Maximum number of sessions."""


def place(row: SessionRow) -> tuple[str, str]:
    """Return the position of a session in the list, as text."""
    return moment(row.created_at), row.session


def moment(when: datetime) -> str:
    """Format a time as text of fixed width, so that texts sort like times."""
    return when.astimezone(UTC).isoformat(timespec="microseconds")


def check_session_id(session: str) -> str:
    """Return `session` if it is a valid id of a session."""
    if _SESSION_ID.fullmatch(session) is None or session in {".", ".."}:
        raise SessionError(
            f"{session!r} is not a valid session id: use 1 to 128 of A-Z a-z 0-9 . _ - "
            "(but not just . or ..)."
        )
    return session


@contextmanager
def reading_store(url: str, session: str | None = None) -> Iterator[None]:
    """Convert every error inside the block to `StoreError`.

    The block must only read and parse stored data, and must not run user code.
    """
    try:
        with store_errors(url):
            yield
    except (StoreError, SessionError):
        raise
    except VersionError as error:
        raise store_failure(url, f"session {session!r} can't be read: {error}") from error
    except Exception as error:
        raise damaged_store(url, _describe_error(error), session) from error


def _describe_error(error: Exception) -> str:
    """Describe the error in a few words."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        text = first["msg"].removeprefix("Value error, ")
        return f"{field}: {text[:1].lower()}{text[1:]}" if field else text
    if isinstance(error, DuologueError | UnknownTypeError | DamagedFileError | _DamageError):
        return str(error)
    return f"{type(error).__name__}: {error}"


class _DamageError(ValueError):
    """Stored data is inconsistent."""


def read_version(found: Sequence[Sequence[Any]], versions: Versions[Any], url: str) -> int | None:
    """Return the version of a store's tables, or None if there are no tables.

    Raises:
        StoreError: This release does not read that version.
    """
    if not found:
        return None
    values = [value for row in found for value in row]
    if len(values) != 1 or type(values[0]) is not int or values[0] < 1:
        raise damaged_store(url, "duologue_schema contains no version")
    version: int = values[0]
    if version > versions.newest:
        raise StoreError(
            f"The sessions in {url} have format {version}, and this duologue reads up to "
            f"{versions.newest}. Upgrade duologue, or choose another store."
        )
    if version < versions.oldest:
        raise StoreError(
            f"The sessions in {url} were {BEFORE_RELEASE} and can't be read. Choose another store."
        )
    return version


_PLACES: Final = TypeAdapter(dict[str, str])


def read_row(values: Sequence[Any], url: str) -> SessionRow:
    """Build the row of a session from the values in its table."""
    data = dict(zip(SessionRow.model_fields, values, strict=True))
    session = data["session"]
    with reading_store(url, session if isinstance(session, str) else None):
        row = SessionRow.model_validate(data)
        if sha256(row.spec.encode()).hexdigest() != row.digest:
            raise _DamageError("its conversation was changed outside of duologue")
        _PLACES.validate_json(row.tools)
        return row


_Version = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.")]
"""LangGraph's counter of a channel's writes, in the form used by databases."""


class _Checkpoint(BaseModel):
    """The part of a checkpoint that LangGraph needs to continue from it."""

    model_config = ConfigDict(strict=True)

    v: int
    id: str
    ts: str
    channel_values: dict[str, Any]
    channel_versions: dict[str, _Version]
    versions_seen: dict[str, dict[str, _Version]]


_WRITES: Final = TypeAdapter(list[tuple[str, str, Any]])


def check_checkpoint(found: "CheckpointTuple") -> "CheckpointTuple":
    """Return a checkpoint that was read, or raise an error if LangGraph can't continue from it."""
    checkpoint = _Checkpoint.model_validate(found.checkpoint)
    _WRITES.validate_python(found.pending_writes or [])
    if checkpoint.id != found.config["configurable"]["checkpoint_id"]:
        raise _DamageError("a checkpoint has the id of another one")
    if not isinstance(found.metadata, dict):
        raise _DamageError("the metadata of a checkpoint is not an object")
    return found
