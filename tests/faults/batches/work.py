"""A batch that is run by drivers, one after another or at once. No tests here."""

import asyncio
import time
from pathlib import Path

from duologue.graphs import BatchRun, Session
from duologue.nodes.testing.server import ScriptedServer
from support.batches import CALLS, CELLS, Player, batch, written
from support.stores import CellsWanted, open_store

from .drivers import CONCURRENCY, Command

TAKEOVER = 30.0
"""Seconds within which another driver must continue a dead driver's work."""


class Work:
    """A batch that is run by drivers, one after another or at once."""

    def __init__(self, folder: Path, store: str, player: Player, server: ScriptedServer) -> None:
        self.store = store
        self.player = player
        self._folder = folder
        self._file = written(folder, batch())
        self._environ = {
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "any",
            "DUOLOGUE_MAX_RETRIES": "0",
        }
        self.name = ""
        self.began = 0
        """Number of calls made before this batch."""

    def begins(self, name: str) -> None:
        """Continue with another batch."""
        self.name, self.began = name, len(self.player.asked)

    def driver(self, *options: str, store: str | None = None) -> Command:
        """Start a driver; `store` is another spelling of the store's address."""
        arguments = ["batch", "run", str(self._file), "--name", self.name]
        arguments += ["--concurrency", str(CONCURRENCY), *options]
        environ = self._environ | {"DUOLOGUE_STORE": store or self.store}
        return Command(self._folder, *arguments, environ=environ)

    async def said(self) -> dict[str, int]:
        """Return the number of messages in each existing session, by its task."""
        found = dict[str, int]()
        async with open_store(self.store) as opened:
            async for row in opened.batches.each(CellsWanted(batch=self.name)):
                task = str(row.varied["task"]).removesuffix(".")
                if await opened.get(row.session) is not None:
                    result = await Session(row.session, store=self.store).astate()
                    found[task] = len(result.transcript)
        return found

    async def is_whole(self) -> None:
        """Check each cell against its session."""
        async with open_store(self.store) as opened:
            rows = [row async for row in opened.batches.each(CellsWanted(batch=self.name))]
            assert len(rows) == CELLS
            for row in rows:
                result = await Session(row.session, store=self.store).astate()
                task = str(row.varied["task"]).removesuffix(".")
                said = [text for _, text in result.transcript]
                assert said == [f"{turn} of {task}" for turn in range(CALLS)]
                assert result.outcome is not None
                told = result.outcome.reason.value, result.outcome.rounds, len(said), CALLS
                assert (row.reason, row.rounds, row.messages, row.calls) == told
                assert (row.status, row.error) == ("finished", None)
        status = await BatchRun(self.name, store=self.store).astatus()
        assert (status.finished, status.left, status.is_running) == (CELLS, 0, False)
        assert (status.calls, status.stopped) == (CELLS * CALLS, None)
        asked = self.player.asked[self.began :]
        assert len(set(asked)) == CELLS * CALLS

    @property
    def repeated(self) -> int:
        """Return how many calls of this batch were made more than once."""
        return self.player.repeated(self.began)

    def goes_on_to_its_end(self) -> None:
        """Run the same command until nothing is left."""
        before, since = len(self.player.asked), time.monotonic()
        last = self.driver()
        if len(self.player.asked) < self.began + CELLS * CALLS:
            self.player.wait_for(before + 1, TAKEOVER)
            assert time.monotonic() - since < TAKEOVER
        assert last.ended() == 0, last.errors
        asyncio.run(self.is_whole())
