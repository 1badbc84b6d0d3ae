"""Fixtures for the tests of tools."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from support.sandboxes import Session, need

from .approval_help import Saver

Start: TypeAlias = Callable[..., Awaitable[Session]]


@pytest.fixture(params=["memory", "sqlite"])
async def saver(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Saver]:
    if request.param == "memory":
        yield InMemorySaver()
        return
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "s.db")) as found:
        yield found


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Yield a function that makes a session of a level; the sessions are closed after the test."""
    sessions: list[Session] = []

    async def make(level: str, **limits: float) -> Session:
        await need(level)
        sessions.append(Session(level, **limits))
        return sessions[-1]

    yield make
    for session in sessions:
        await session.close()
