"""An ASGI application served by uvicorn in a thread."""

import asyncio
import socket
from contextlib import ExitStack
from typing import Any

import uvicorn
from anyio.from_thread import start_blocking_portal
from starlette.requests import Request
from starlette.types import ASGIApp

_SECONDS_TO_CLOSE = 2.0  # reached only if the application does not notice that it is cancelled


class AppThread:
    """An application on a free port of 127.0.0.1, served from `start` to `close`.

    Raises:
        OSError: No port is free.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._stack = ExitStack()
        # With an explicit protocol, asyncio turns off Nagle's algorithm, which costs 40 ms per
        # answer.
        self._socket = self._stack.enter_context(socket.socket(proto=socket.IPPROTO_TCP))
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(128)
        self.port: int = self._socket.getsockname()[1]
        # A `log_config` would change the logging of the whole process.
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=3600,
        )
        self._uvicorn = uvicorn.Server(config)

    @property
    def connections(self) -> list[Any]:
        """The open connections, as uvicorn's protocol objects."""
        return list(self._uvicorn.server_state.connections)

    def start(self) -> None:
        """Start the thread."""
        portal = self._stack.enter_context(start_blocking_portal())
        # Cancelled, because uvicorn's own shutdown takes 0.2 s and waits for open connections.
        self._stack.callback(portal.start_task_soon(self._uvicorn.serve, [self._socket]).cancel)
        self._stack.callback(portal.call, self._break_connections)

    def close(self) -> None:
        """Break all connections and end the thread."""
        self._stack.close()

    async def hang_up(self, request: Request) -> None:
        """Close the connection of a request, and wait until the application is notified."""
        for connection in self.connections:
            if connection.client == request.scope["client"]:
                connection.transport.close()
        while (await request.receive())["type"] != "http.disconnect":
            pass

    async def _break_connections(self) -> None:
        for connection in self.connections:
            connection.transport.abort()
        if tasks := self._uvicorn.server_state.tasks:
            await asyncio.wait(tasks, timeout=_SECONDS_TO_CLOSE)
