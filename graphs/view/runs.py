"""The sessions that this page runs on after an answer, and what went wrong with that."""

import asyncio
import logging
from pathlib import Path
from typing import Any, Final

from ...nodes.models.adapters.composed import Chat
from ..api.session import Session
from ..common.errors import DuologueError, SpecError

_log = logging.getLogger("duologue")

_AT_ONCE: Final = 1.5
"""Seconds within which it is told at once that an answer does not fit, or that another has it."""

_NOT_HERE: Final = (
    " This page has the models of its own environment, and the tools that installed packages "
    "register: what a program registers can be run by that program alone, or by `duologue answer` "
    "where it is installed."
)


class Runs:
    """Answers sessions and runs them on, each in a task of its own.

    Args:
        store: Where sessions are kept.
        model: What speaks where a conversation names no model.
    """

    def __init__(self, store: str | Path | None, model: Chat | str | None) -> None:
        self.problems: dict[str, str] = {}
        """What went wrong with a session, until it is asked for something again."""
        self._store, self._model = store, model
        self._running = set[asyncio.Task[None]]()

    async def answer(self, session: str, value: Any, question: str) -> None:  # noqa: ANN401
        """Answer a question of a session and run it on; what fails soon is known after this."""
        self.problems.pop(session, None)
        task = asyncio.create_task(self._run(session, value, question))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.wait([task], timeout=_AT_ONCE)

    async def _run(self, session: str, value: Any, question: str) -> None:  # noqa: ANN401
        try:
            handle = Session(session, store=self._store)
            await handle.aanswer(value, question=question, model=self._model)
        except DuologueError as error:
            told = str(error) + (_NOT_HERE if isinstance(error, SpecError) else "")
            self.problems[session] = told
        except Exception as error:
            _log.exception("session %s failed", session)
            self.problems[session] = f"It failed: {type(error).__name__}: {error}"

    async def close(self) -> None:
        """Break off what runs; it can be resumed."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
