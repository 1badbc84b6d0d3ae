"""Leases, the right to write one session or one batch, and the writer that checks them.

The writer of a SQL store commits jobs together that wait at the same time, each under its lease.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

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
    acquisition: "Statement | None" = None
    """The statement that acquires the lease in the transaction of the first write. None if the
    lease is acquired."""
    is_tried: bool = False
    """Whether a write under the lease was begun. Even if it failed, it may have been committed."""
    is_released: bool = False
    """Whether the last write has deleted the lease."""
    stop_requested: bool = False
    """Whether a stop of the session was requested, as of `stop_sign`."""
    stop_sign: object = None
    """The store's `stop_sign` before the last write. None if there was no write."""
    writing: set["asyncio.Future[int]"] = field(default_factory=set)
    """The writes in progress."""

    @cached_property
    def terms(self) -> tuple[str, str, int]:
        """The lease's row: key, owner, number. Computed once, because every write compares it."""
        return self.subject.key, self.owner, self.number

    def note_write(self, stop_sign: object, *, stop_requested: bool) -> None:
        """Record that statements were committed under this lease."""
        self.acquisition = None
        self.stop_sign, self.stop_requested = stop_sign, stop_requested

    def refusal(self) -> SessionError | BatchError:
        """Return the error for a write, because the store does not contain this lease."""
        return self.subject.lost_error() if self.acquisition is None else self.subject.busy_error()

    async def drain(self) -> None:
        """Await the writes in progress."""
        while self.writing:
            await asyncio.wait(self.writing)


class Statement(NamedTuple):
    """One SQL statement, with the database's own placeholders."""

    sql: str
    values: Sequence[Any] = ()
    many: bool = False
    """Whether `values` contains the values of several executions."""


class Job(NamedTuple):
    """Statements that are committed together."""

    statements: Sequence[Statement]
    lease: Lease | None
    """The lease that must be valid at the commit. None if the job needs none."""


Results: TypeAlias = Sequence[int | Exception]
"""For each job, the number of rows that its last statement changed, or the error that prevented
it."""


class WriteFailure(NamedTuple):
    """The reason why jobs were not written."""

    error: Exception
    """The error that `Writer.write` raises."""
    is_for_all: bool
    """Whether every other job would fail in the same way, so that none is tried separately."""


class Writer:
    """A writer that commits the jobs of one store in the order in which they arrive.

    Jobs that arrive during a commit wait and are committed together in the next one. If jobs can't
    be committed together, each is tried separately.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Job]], Awaitable[Results]],
        explain: Callable[[Exception], WriteFailure],
    ) -> None:
        self._commit = commit
        self._explain = explain
        self._waiting: list[tuple[Job, asyncio.Future[int]]] = []
        self._running: asyncio.Task[None] | None = None

    async def write(self, *statements: Statement, lease: Lease | None = None) -> int:
        """Commit statements, even if the caller is cancelled; return the last one's row count."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        # Read here, so that asyncio does not report an exception that no caller retrieves.
        done.add_done_callback(lambda found: found.cancelled() or found.exception())
        if lease is not None:
            lease.is_tried = True
            lease.writing.add(done)
            done.add_done_callback(lease.writing.discard)
        self._waiting.append((Job(statements, lease), done))
        if self._running is None or self._running.done():
            self._begin()
        return await asyncio.shield(done)

    def _begin(self) -> None:
        self._running = asyncio.create_task(self._run())
        self._running.add_done_callback(self._continue)

    def _continue(self, ended: asyncio.Task[None]) -> None:
        """Write the jobs that still wait, since callers may wait for them."""
        # A task that a loop has cancelled before its first step is done without having run.
        if ended is self._running and self._waiting:
            self._begin()

    async def drain(self) -> None:
        """Await all waiting writes."""
        while self._running is not None and not self._running.done():
            await asyncio.wait([self._running])

    async def _run(self) -> None:
        jobs: list[tuple[Job, asyncio.Future[int]]] = []
        try:
            while self._waiting:
                jobs, self._waiting = self._waiting, []
                _resolve(jobs, await self._results([job for job, _ in jobs]))
        except asyncio.CancelledError:
            # The loop is shutting down.
            for _, done in [*jobs, *self._waiting]:
                done.cancel()
            self._waiting = []
            raise

    async def _results(self, jobs: Sequence[Job]) -> Results:
        try:
            return await self._commit(jobs)
        except Exception as error:
            failure = self._explain(error)
        if failure.is_for_all or len(jobs) == 1:
            return [failure.error] * len(jobs)
        results = list[int | Exception]()
        for job in jobs:
            try:
                results += await self._commit([job])
            except Exception as error:
                failure = self._explain(error)
                if failure.is_for_all:
                    return results + [failure.error] * (len(jobs) - len(results))
                results.append(failure.error)
        return results


def _resolve(jobs: Sequence[tuple[Job, asyncio.Future[int]]], results: Results) -> None:
    for (_, done), result in zip(jobs, results, strict=True):
        if done.done():
            continue
        if isinstance(result, Exception):
            done.set_exception(result)
        else:
            done.set_result(result)
