"""Running one cell of a batch: an ordinary session, and the cell's row."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import JsonValue

from ...nodes.models.gate import MOST_OUTAGES, Gate
from ...nodes.turn.node_context import Resources
from ..common.errors import (
    DuologueError,
    ModelUnavailableError,
    PausedError,
    ServerDownError,
    StoreError,
)
from ..common.sanitize import excerpt
from ..common.settings import Settings
from ..conversation.judges import SeparateJudge
from ..session.judging import judge_read
from ..session.options import Options
from ..session.run import make_resources, run_session
from ..session.session import Result, result_of
from ..session.stored_session import LaterVerdict, StoredSession, read_verdicts, write_verdict
from ..store.batches import CellRow
from ..store.errors import BusySessionError, LostBatchError, LostSessionError
from ..store.open import SessionLease, Store
from ..store.session_lease import BatchLease
from .batch_row import (
    add_judge_usage,
    cell_status_of,
    new_cell_row,
    read_figures,
    read_result,
)
from .cells import Cell
from .scores import ScoreFunction, score

_TAKEOVER: Final = 30.0
"""Seconds to wait for a session that another process is using: that process may be dying."""

COLLECTED: Final = (50_000, 20, 20)
"""Thresholds of the garbage collection in a process that only runs a batch. With Python's
thresholds, collection takes half of the time of hundreds of concurrent sessions.
"""

_PAUSE: Final = 0.5

ExamineFunction: TypeAlias = Callable[
    [Result, Mapping[str, JsonValue]], Awaitable[LaterVerdict | None]
]
"""A function that judges a session that has ended, after the judge and before the scores. Its
arguments are the session and the cell's values by path. It returns the verdict to store, or None if
there is no new one.
"""

EncloseFunction: TypeAlias = Callable[
    [str, Mapping[str, JsonValue], Result | None], AbstractAsyncContextManager[bool]
]
"""A function that returns an async context manager, within which a session is run and judged. Its
arguments are the session's id, the cell's values by path, and the session so far or None. Its value
is whether the session begins again, at its first message.
"""

_PAUSED: Final[Mapping[str, Any]] = {
    "status": "paused",
    "reason": None,
    "error": None,
    "scores": {},
}
"""The fields of a cell that is paused, also if its session has ended but is not judged yet."""


_STOPPING: Final = (
    ModelUnavailableError,
    PausedError,
    StoreError,
    BusySessionError,
    LostSessionError,
)
"""Errors of a judge that stop the cell, or the whole batch. Others are written to its row."""


class _JudgedCell(NamedTuple):
    """A session that has ended, after it was judged."""

    session: StoredSession
    """The session with its verdicts."""
    problem: str | None
    """The reasons why a verdict is missing, or None."""


@dataclass(frozen=True)
class CellRules:
    """The rules by which the cells of a batch run. They are the same in each process."""

    options: Options
    """The options of each session's run."""
    scores: Mapping[str, ScoreFunction] = field(default_factory=dict)
    """The functions that score a session that has ended, by name."""
    judge_at_end: bool = False
    """Whether the conversation's separate judge is asked about a session that has ended."""
    examine: ExamineFunction | None = None
    """The function that judges a session that has ended. None if there is none."""
    second_judge: str | None = None
    """The name of a second model that answers the judge's question. None if there is none."""
    enclose: EncloseFunction | None = None
    """The function that prepares the run of a session, and cleans up. None if there is none."""


@dataclass(frozen=True)
class Worker:
    """A runner for cells of one batch. It can run many cells at once."""

    lease: BatchLease
    """The lease on the batch, under which the rows of cells are written."""
    store: Store
    """The store of the sessions."""
    gate: Gate
    """The gate that delays each model call until the limits of the batch allow it."""
    settings: Settings
    """The settings of each session's run, which are read once."""
    rules: CellRules
    """The rules by which the cells run."""

    @cached_property
    def _judging(self) -> Resources:
        """The models that judge. They are shared, so that each is found once."""
        return make_resources(self.rules.options, self.settings, self.gate)

    async def run(self, cell: Cell) -> CellRow:
        """Run a cell from its current state as far as possible, and write its row.

        Raises:
            LostBatchError: Another run has taken the batch over.
            StoreError: The store fails.
            ModelUnavailableError: A model is not available, which stops the whole batch.
        """
        row = new_cell_row(self.lease.batch, cell)
        await self.lease.put_cell(row)
        stops: DuologueError | None = None
        outcome: dict[str, Any] = {}
        result: StoredSession | None = None
        judged: _JudgedCell | None = None
        try:
            async with self._enclose(cell) as again:
                result = await self._run(cell, reset=again)
                if result is not None and result.outcome is not None:
                    judged = await self._judge_ended(cell, result)
        except (StoreError, LostBatchError):
            raise
        except (BusySessionError, LostSessionError):
            # Another run continues the session. The row is written from the session's stored state.
            pass
        except PausedError:
            outcome |= _PAUSED
        except ModelUnavailableError as error:
            outcome |= _PAUSED
            stops = error
        except Exception as error:
            # An error of a model, a tool or a user's function belongs to this cell only.
            is_ours = isinstance(error, DuologueError)
            why = str(error) if is_ours else excerpt(f"{type(error).__name__}: {error}")
            outcome |= {"status": "failed", "error": why}
        known: dict[str, Any] = {"status": "paused"}
        figures = await self._session_figures(cell, result, judged)
        row = row.model_copy(update=known | figures | outcome)
        row = row.model_copy(update={"updated_at": datetime.now(UTC)})
        await self.lease.put_cell(row)
        if stops is not None:
            raise stops
        return row

    @asynccontextmanager
    async def _enclose(self, cell: Cell) -> AsyncIterator[bool]:
        """Prepare the run of a cell, and yield whether its session begins again."""
        if self.rules.enclose is None:
            yield False
            return
        read = await read_result(self.store, cell.session, self.lease.batch)
        known = None if read is None else result_of(read[0], self.store.address)
        async with self.rules.enclose(cell.session, cell.varied, known) as again:
            yield again

    async def _run(self, cell: Cell, *, reset: bool) -> StoredSession | None:
        """Run a cell's session, and return the session after the run.

        If another run uses the session or takes it over, wait for it. If an agent failed because
        its model's server is down, continue the session: its calls wait at the gate.
        """
        outages = set[int]()
        until = time.monotonic() + _TAKEOVER
        while True:
            try:
                return await self._run_session(cell, reset=reset)
            except ServerDownError as error:
                reset = False
                outages.add(error.outage)
                if len(outages) > MOST_OUTAGES:
                    raise error.__cause__ or error from None
                continue
            except (BusySessionError, LostSessionError) as error:
                # A driver that has lost its batch loses the sessions as well.
                await self.lease.check()
                if isinstance(error, LostSessionError):
                    reset = False
                    until = time.monotonic() + _TAKEOVER
                elif time.monotonic() > until:
                    raise
            await asyncio.sleep(_PAUSE)

    async def _run_session(self, cell: Cell, *, reset: bool) -> StoredSession | None:
        run = run_session(
            cell.conversation(),
            cell.session,
            self.rules.options,
            reset=reset,
            tokens=False,
            gate=self.gate,
            settings=self.settings,
            opened=self.store,
        )
        result: StoredSession | None = None
        async with aclosing(run) as events:
            async for event in events:
                result = event if isinstance(event, StoredSession) else None
        return result

    async def _judge_ended(self, cell: Cell, result: StoredSession) -> _JudgedCell:
        """Have a session judged that has ended, by its judge and by the function `examine`."""
        is_judged = self.rules.judge_at_end and isinstance(result.conversation.judge, SeparateJudge)
        if not is_judged and self.rules.examine is None:
            return _JudgedCell(result, None)
        problems: list[str] = []
        async with self.store.lock(cell.session) as held:
            result = await self._with_verdicts(result)
            # The session has ended under its rules: if an error occurs, only its scores lack a
            # verdict. The judge may have stored one that can't be read.
            try:
                if is_judged:
                    result = await self._judge(held, result)
            except _STOPPING:
                raise
            except DuologueError as error:
                problems.append(f"the judge returned no verdict: {error}")
                result = await self._with_verdicts(result)
            try:
                result = await self._examine(held, cell, result)
            except (StoreError, LostSessionError):
                raise
            except DuologueError as error:
                problems.append(str(error))
        return _JudgedCell(result, "; ".join(problems) or None)

    async def _judge(self, held: SessionLease, result: StoredSession) -> StoredSession:
        """Ask the judges, store their verdicts, and return the session with them."""
        for model in (None, self.rules.second_judge) if self.rules.second_judge else (None,):
            found = await judge_read(
                held,
                result,
                None,
                self._judging,
                self.rules.options,
                model=model,
                batch=self.lease.batch,
            )
            result = found.session
        return result

    async def _examine(
        self, held: SessionLease, cell: Cell, result: StoredSession
    ) -> StoredSession:
        """Call the function that judges, store its verdict, and return the session with it."""
        if self.rules.examine is None:
            return result
        verdict = await self.rules.examine(result_of(result, self.store.address), cell.varied)
        if verdict is None:
            return result
        verdict = verdict.model_copy(update={"batch": self.lease.batch})
        known = result.later_verdicts
        await write_verdict(held, len(known) + 1, verdict)
        return replace(result, later_verdicts=(*known, verdict))

    async def _with_verdicts(self, result: StoredSession) -> StoredSession:
        known = await read_verdicts(self.store, result.session_id)
        return replace(result, later_verdicts=known)

    async def _session_figures(
        self, cell: Cell, result: StoredSession | None, judged: _JudgedCell | None
    ) -> dict[str, Any]:
        """Return the figures of the cell's session, with its scores if it has ended."""
        try:
            batch = self.lease.batch
            if result is not None and (ended := result.outcome) is not None:
                # If judging was interrupted, verdicts may be stored that are not in the result.
                result = await self._with_verdicts(result) if judged is None else judged.session
                found = add_judge_usage(read_figures(ended), result.later_verdicts, batch)
            elif (read := await read_result(self.store, cell.session, batch)) is not None:
                result, found = read
            else:
                return {}
            found["status"] = cell_status_of(result)
            if result.outcome is not None and self.rules.scores:
                scored = await score(
                    result_of(result, self.store.address), cell.varied, self.rules.scores
                )
                unjudged = None if judged is None else judged.problem
                problem = "; ".join(filter(None, (unjudged, scored.problem))) or None
                found |= {"scores": scored.scores, "error": problem}
            return found
        except DuologueError as error:
            # Damage belongs to this cell only: other sessions can still be read.
            return {"status": "failed", "error": str(error)}
