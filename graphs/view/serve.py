"""The server of the local page, which runs until Ctrl-C."""

import asyncio
import os
import socket
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import uvicorn
from starlette.types import ASGIApp

from ..common.errors import SpecError
from ..session.listing import known_store
from .app import view_app
from .security import Guard


def serve(
    store: str | Path | None,
    model: str | None,
    session: str | None,
    port: int,
    opens: bool,
    tell: Callable[[str], None],
) -> None:
    """Serve the page on 127.0.0.1 until Ctrl-C.

    Args:
        store: The store of the sessions.
        model: The model for conversations that name none.
        session: The id of the session to show first. If None, the list of sessions.
        port: The port. If 0, any free port.
        opens: Whether to open a browser.
        tell: A function that receives the address once the server accepts requests.

    Raises:
        SpecError: The port is not available.
        StoreError: The store can't be opened.
    """
    with bind_port(port) as listening, TemporaryDirectory() as private:
        port = listening.getsockname()[1]
        app = view_app(store, model, lambda: server.should_exit)
        guard = Guard(app, port)
        path = "/" if session is None else f"/sessions/{quote(session)}"
        address = f"http://127.0.0.1:{port}{path}?token={guard.token}"

        def begin() -> None:
            tell(address)
            if opens:
                _open(address, Path(private))

        server = LocalServer(guard, begin)
        run_server(server, listening, store)


def run_server(
    server: "LocalServer",
    listening: socket.socket,
    store: str | Path | None,
    *,
    create: bool = False,
) -> None:
    """Run a server on a socket until Ctrl-C.

    Args:
        server: The server.
        listening: The socket.
        store: The store that its application uses.
        create: Whether the store is created if it does not exist.

    Raises:
        StoreError: The store can't be opened.
    """

    async def run() -> None:
        # Opened here as well, so that errors of the store are raised before the server starts.
        async with known_store(store, create=create):
            await server.serve([listening])

    # The running sessions have been cancelled by then.
    with suppress(KeyboardInterrupt):
        asyncio.run(run())


def bind_port(port: int, option: str = "--port") -> socket.socket:
    """Return a socket on a port of 127.0.0.1. Any free port is used if `port` is 0."""
    listening = socket.socket(proto=socket.IPPROTO_TCP)
    if os.name == "posix":
        # A port that was just freed can be used at once. On Windows the option would share a port
        # in use.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise SpecError(
            f"{option}: {port} is not available: {error.strerror or error}; choose another port"
        ) from error
    return listening


class LocalServer(uvicorn.Server):
    """A server for clients on this machine.

    Args:
        app: The application, within a `LocalGuard`.
        begin: A function that is called once the server accepts requests.
        end: A function that is called when the server is about to stop, before it waits for the
            requests that are still open.
    """

    def __init__(
        self, app: ASGIApp, begin: Callable[[], None], end: Callable[[], None] | None = None
    ) -> None:
        config = uvicorn.Config(
            app,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            # Headers of proxies are not trusted.
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=3,
        )
        super().__init__(config)
        self._begin, self._end = begin, end

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server, and call the function."""
        await super().startup(sockets)
        if self.started:
            self._begin()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Call the function, and stop the server."""
        if self._end is not None:
            self._end()
        await super().shutdown(sockets)


def _open(address: str, private: Path) -> None:
    """Open the address through a private file, because all users see a process's arguments."""
    page = private / "open.html"
    page.touch(mode=0o600)
    where = escape(address)
    page.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={where}">'
        f'<title>duologue</title><a href="{where}">Go to the page</a>'
    )
    webbrowser.open(page.as_uri())
