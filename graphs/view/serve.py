"""The page served on this machine, until Ctrl-C."""

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
        store: Where sessions are kept.
        model: What speaks where a conversation names no model.
        session: The session to show first. None: the list.
        port: The port; 0 for a free one.
        opens: Whether a browser is to be opened.
        tell: Is told the address, once it is answered.

    Raises:
        SpecError: The port can't be had.
        StoreError: The store can't be opened.
    """
    with bind_port(port) as listening, TemporaryDirectory() as private:
        port = listening.getsockname()[1]
        app = view_app(store, model, lambda: server.should_exit)
        guard = Guard(app, port)
        path = "/" if session is None else f"/sessions/{quote(session)}"
        address = f"http://127.0.0.1:{port}{path}?token={guard.token}"
        config = uvicorn.Config(
            guard,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            # What a request says of where it comes from is not believed.
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=3,
        )

        def begin() -> None:
            tell(address)
            if opens:
                _open(address, Path(private))

        server = _Server(config, begin)

        async def run() -> None:
            # The application uses the same open store; what is wrong with it is told here.
            async with known_store(store):
                await server.serve([listening])

        # By then all that ran here has been broken off.
        with suppress(KeyboardInterrupt):
            asyncio.run(run())


def bind_port(port: int) -> socket.socket:
    """Return a socket with a port of 127.0.0.1; 0 is a free one."""
    listening = socket.socket(proto=socket.IPPROTO_TCP)
    if os.name == "posix":
        # A port that was just left is free again at once. Windows would share one that is in use.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise SpecError(f"--port: {port} can't be had: {error.strerror or error}") from error
    return listening


class _Server(uvicorn.Server):
    """Tells when it answers."""

    def __init__(self, config: uvicorn.Config, begin: Callable[[], None]) -> None:
        super().__init__(config)
        self._begin = begin

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        if self.started:
            self._begin()


def _open(address: str, private: Path) -> None:
    """Open the browser by a file that only this user reads: all see the arguments of a process."""
    page = private / "open.html"
    page.touch(mode=0o600)
    where = escape(address)
    page.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={where}">'
        f'<title>duologue</title><a href="{where}">To the page</a>'
    )
    webbrowser.open(page.as_uri())
