"""Leases: the right to write one session or one batch. Every write checks its lease."""

import asyncio
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..common.errors import BatchError, SessionError
from .errors import busy_batch, busy_session, lost_batch, lost_session


class LeaseSubject(NamedTuple):
    """A session or a batch, which only one run at a time may write."""

    kind: Literal["session", "batch"]
    name: str
    """The session's id, or the batch's name."""

    @property
    def key(self) -> str:
        """Return the subject's key among all leases. No session's id contains a colon."""
        return self.name if self.kind == "session" else f"batch:{self.name}"

    def busy_error(self) -> SessionError | BatchError:
        """Return the error for a run that can't have this lease, because another run has it."""
        return busy_session(self.name) if self.kind == "session" else busy_batch(self.name)

    def lost_error(self) -> SessionError | BatchError:
        """Return the error for a run that has lost its lease."""
        return lost_session(self.name) if self.kind == "session" else lost_batch(self.name)


@dataclass(eq=False)
class Lease:
    """The right to write one session or one batch."""

    subject: LeaseSubject
    owner: str
    """The name of the open store that acquired it. Other processes can check whether that store is
    alive."""
    number: int
    """A number that the owner increments for each lease, so that no two leases are equal."""
    writing: set["asyncio.Future[int]"] = field(default_factory=set)
    """The writes in progress."""

    terms: tuple[str, str, int] = field(init=False)
    """The lease's row: key, owner, number."""

    def __post_init__(self) -> None:
        """Compute the row once, because every write compares it."""
        self.terms = self.subject.key, self.owner, self.number

    async def drain(self) -> None:
        """Await the writes in progress."""
        while self.writing:
            await asyncio.wait(self.writing)
