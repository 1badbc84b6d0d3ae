"""An HTTP server that sends arbitrary bytes chosen by a test, such as invalid responses."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Self

from duologue.nodes.models import settings

Body = dict[str, Any]


@dataclass(frozen=True)
class Sent:
    """A response to one request."""

    body: bytes = b""
    """Body of the response."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    """Headers in addition to the content length, or in its place."""
    parts: Callable[[], AsyncGenerator[bytes]] | None = None
    """Returns the pieces of the body, each sent as a separate chunk. Replaces `body`."""
    raw: bytes | None = None
    """All bytes of the response, with its head. `parts`, if any, follow as they are, and then the
    server closes the connection."""


class FaultyServer:
    """A server on 127.0.0.1 that runs in a thread inside a `with` block.

    Args:
        answer: Returns the response to a request, from the path and the JSON body. It is called in
            the server's thread.

    Attributes:
        connections: Total number of connections.
        open: Number of open connections.
        headers: The headers of the newest request, with names in lower case.
    """

    def __init__(self, answer: Callable[[str, Body], Sent]) -> None:
        self._answer = answer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.connections = 0
        self.open = 0
        self.headers: dict[str, str] = {}
        # An event loop keeps only weak references to its tasks. After a client has left, nothing
        # else would refer to a waiting task, and Python would collect it.
        self._serving: set[asyncio.Task[None] | None] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=2048)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        # Another test's server may have had the same port.
        settings._servers.pop(f"{self.url}/", None)
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        """Return the base URL for clients."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def _stop(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        # The loop closes connections in its next iterations.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self._serving.add(asyncio.current_task())
        try:
            # The task is cancelled when the server ends.
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._serve_one(reader, writer):
                    pass
        finally:
            self.open -= 1
            self._serving.discard(asyncio.current_task())
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = (line.partition(":") for line in head.split("\r\n"))
        self.headers = {name.lower(): value.strip() for name, _, value in lines}
        body = await reader.readexactly(int(self.headers.get("content-length", 0)))
        path = head.split(" ")[1]
        sent = self._answer(path, json.loads(body) if body else {})
        if sent.raw is not None:
            writer.write(sent.raw)
            if sent.parts is not None:
                async with aclosing(sent.parts()) as parts:
                    async for part in parts:
                        writer.write(part)
                        await writer.drain()
            await writer.drain()
            return False
        ending = (
            {"Transfer-Encoding": "chunked"}
            if sent.parts is not None
            else {"Content-Length": str(len(sent.body))}
        )
        headers = {"Content-Type": "application/json", **ending, **sent.headers}
        written = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {sent.status} X\r\n{written}\r\n".encode("latin-1"))
        if sent.parts is None:
            writer.write(sent.body)
        else:
            async with aclosing(sent.parts()) as parts:
                async for part in parts:
                    writer.write(b"%x\r\n%b\r\n" % (len(part), part))
                    await writer.drain()
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True
