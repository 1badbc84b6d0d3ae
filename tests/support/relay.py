"""An address whose server can be away for a while. No tests here."""

import asyncio
from contextlib import ExitStack, suppress
from typing import Self

from anyio.from_thread import start_blocking_portal


class Relay:
    """A port of 127.0.0.1 that passes connections on to another port, except during an outage."""

    def __init__(self, target: str) -> None:
        self._target = int(target.rpartition(":")[2].partition("/")[0])
        self._stack = ExitStack()
        self._server: asyncio.Server | None = None
        self._writers = set[asyncio.StreamWriter]()
        self.port = 0

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        self._portal = self._stack.enter_context(start_blocking_portal())
        self._stack.callback(self.break_off)
        self.restore()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def break_off(self) -> None:
        """Close the port and break all connections."""
        self._portal.call(self._close)

    def restore(self) -> None:
        """Open the same port again."""
        self._portal.call(self._open)

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, back}
        await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while part := await reader.read(2**16):
            writer.write(part)
            await writer.drain()
    writer.close()
