"""Judging stored sessions: their selection, several calls at once, and the display of verdicts."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from langchain_core.utils.iter import batch_iterate

from ..batch.status import known_batch
from ..common.errors import DuologueError, ModelUnavailableError, SpecError, StoreError
from ..conversation.judges import Finding, SeparateJudge, Verdict
from ..session.judging import judge_with, read_judge
from ..session.listing import known_store
from ..store.batches import CellsWanted
from ..store.open import Store
from ..store.rows import check_session_id
from .options import ExitCode, explain, run_to_exit
from .terminal.console import cell, json_line, plain, stderr, stdout
from .terminal.progress import Progress

_WINDOW = 500
"""Number of sessions that are judged before their verdicts are shown, in the sessions' order."""


def judge_here(
    sessions: Sequence[str] | str,
    criteria: Path | None,
    model: str | None,
    store: str | None,
    concurrency: int,
    *,
    as_json: bool,
) -> None:
    """Judge sessions, or the sessions of a batch that have ended, and show the verdicts."""

    async def play() -> ExitCode:
        judge = None if criteria is None else read_judge(criteria)
        async with known_store(store) as opened:
            return await _Run(opened, judge, model, concurrency, as_json).play(sessions)

    run_to_exit(play())


@dataclass
class _Run:
    store: Store
    judge: SeparateJudge | None
    model: str | None
    concurrency: int
    as_json: bool
    judged: int = 0
    """Number of sessions with a readable verdict."""
    met: Counter[str] = field(default_factory=Counter)
    """Number of sessions that meet a criterion, by criterion."""
    code: ExitCode = ExitCode.DONE

    async def play(self, sessions: Sequence[str] | str) -> ExitCode:
        found = 0
        async for window in _windows(self.store, sessions):
            found += len(window)
            with Progress(stderr(), "Judging"):
                given = await self._judge_all(window)
            for session, one in zip(window, given, strict=True):
                self._show(session, one)
        if not self.as_json and (found > 1 or isinstance(sessions, str)):
            plain(stdout(), f"Judged {self.judged:,} of {found:,} sessions.")
            for criterion, met in self.met.items():
                plain(stdout(), f"  met in {met:,}: {cell(criterion)}")
        return self.code

    async def _judge_all(self, sessions: Sequence[str]) -> list[Verdict | DuologueError]:
        limit = asyncio.Semaphore(self.concurrency)

        async def judge(session: str) -> Verdict | DuologueError:
            async with limit:
                try:
                    asked = judge_with(self.store, session, self.judge, self.model, {})
                    return (await asked).verdict
                except (ModelUnavailableError, SpecError, StoreError):
                    # Each of the other sessions would fail, too.
                    raise
                except DuologueError as error:
                    return error

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(judge(session)) for session in sessions]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    def _show(self, session: str, found: Verdict | DuologueError) -> None:
        if isinstance(found, DuologueError):
            self.code = explain(found)
            return
        findings = found.findings
        self.judged += found.readable
        for criterion, finding in findings.items():
            self.met[criterion] += finding is Finding.MET
        if self.as_json:
            verdict = found.model_dump(mode="json")
            json_line(json.dumps({"session": session, "verdict": verdict}))
            return
        met = sum(finding is Finding.MET for finding in findings.values())
        words = (
            f"{met} of {len(findings)} criteria met"
            if found.readable
            else "the verdict could not be read"
        )
        plain(stdout(), f"{cell(session)}: {words}")
        for criterion, finding in findings.items():
            plain(stdout(), f"  {finding.in_words}: {cell(criterion)}")
            if reason := found.describe_reason(criterion):
                plain(stdout(), f"    {cell(reason)}")


async def _windows(store: Store, sessions: Sequence[str] | str) -> AsyncIterator[list[str]]:
    """Yield the ids of the sessions, or of a batch's sessions that have ended, some at a time."""
    if not isinstance(sessions, str):
        for some in batch_iterate(_WINDOW, [check_session_id(session) for session in sessions]):
            yield some
        return
    await known_batch(store, sessions)
    window = []
    async for row in store.batches.each(CellsWanted(batch=sessions, status="finished")):
        window.append(row.session)
        if len(window) == _WINDOW:
            yield window
            window = []
    if window:
        yield window
