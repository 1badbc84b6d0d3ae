"""The guard and the runner of servers on this machine, and the limits of their requests.

Only a client on this machine that has the token may use a server. `Guard` protects the local page,
which browsers use; `graphs.serve.security` protects servers for programs.

- A site that points its name at this machine (DNS rebinding) is recognised by `Host`.
- Requests from other pages are recognised by `Origin` and `Sec-Fetch-Site`. A page on another port
  of this machine belongs to the same *site*, so the cookie alone would not keep it out.
- The token is only in the first address. It is exchanged for a cookie that scripts can't read.
"""

import asyncio
import os
import secrets
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from hmac import compare_digest
from html import escape
from pathlib import Path
from typing import Final, TypeVar

import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..common.errors import SpecError
from ..common.files import parse_json
from ..session.listing import known_store

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # With `no-referrer`, a form would be sent with the origin "null".
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The default headers of every response."""

_READS: Final = ("GET", "HEAD")


class LocalGuard(ABC):
    """A wrapper of an application that admits only requests of this machine.

    Args:
        app: The application.
        port: The port of the server.
        token: The token that admits a client. If None, a random token.
    """

    def __init__(self, app: ASGIApp, port: int, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self._app = app
        # Browsers leave out the default port of HTTP.
        end = "" if port == 80 else f":{port}"
        self._hosts = {name + end for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it to the application."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        if request.headers.getlist("host") in [[host] for host in self._hosts]:
            refused = self._refuse_client(request)
        else:
            refused = self.refuse(421, "This server answers only to 127.0.0.1 and localhost.")
        await (refused or self._app)(scope, receive, guarded)

    def refuse(self, status: int, text: str) -> Response:
        """Return the response to a refused request."""
        return PlainTextResponse(text + "\n", status)

    @abstractmethod
    def _refuse_client(self, request: Request) -> Response | None:
        """Return the response to a request of this machine if it is refused, or None."""


G = TypeVar("G", bound=LocalGuard)


class Guard(LocalGuard):
    """A wrapper of the local page that admits only the browser of the user who has the token.

    Args:
        app: The application.
        port: The port of the server.
        token: The token of the first address. If None, a random token.
    """

    def __init__(self, app: ASGIApp, port: int, token: str | None = None) -> None:
        super().__init__(app, port, token)
        # Cookies are shared by all ports of a machine.
        self._cookie = f"duologue-view-{port}"
        self._key = secrets.token_urlsafe(32)

    def _refuse_client(self, request: Request) -> Response | None:
        """Return the response to a refused request, or None if it is admitted."""
        if not _is_own(request):
            return self.refuse(403, "This request came from another page.")
        if is_same(request.cookies.get(self._cookie, ""), self._key):
            return None
        if request.method == "GET" and is_same(request.query_params.get("token", ""), self.token):
            # A page that opens the address without the token. A redirect would not do: the browser
            # would count it as a request from elsewhere, and withhold the cookie.
            answer = HTMLResponse(page_to("/" + request.url.path.lstrip("/")))
            answer.set_cookie(self._cookie, self._key, httponly=True, samesite="strict")
            return answer
        return self.refuse(401, "Open the address that `duologue view` printed.")


def page_to(address: str) -> str:
    """Return a page that opens an address."""
    where = escape(address)
    return (
        f'<!doctype html><meta http-equiv="refresh" content="0; url={where}">'
        f'<title>duologue</title><a href="{where}">Go to the page</a>'
    )


def _is_own(request: Request) -> bool:
    """Return whether a request comes from this page, or from the person at the browser."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    if request.method in _READS:
        # A followed link from another page only reads, and the other page can't see the response.
        is_visit = request.headers.get("sec-fetch-mode") == "navigate"
        return site in ("same-origin", "none") or is_visit
    origin = f"http://{request.headers['host']}"
    return site == "same-origin" and request.headers.getlist("origin") == [origin]


def is_same(given: str, known: str) -> bool:
    """Compare a secret with the known one, in a time that does not depend on their contents."""
    return compare_digest(given.encode(), known.encode())


def run_server(
    guard_at: Callable[[int], G],
    tell: Callable[[str, G], None],
    store: str | Path | None,
    port: int,
    *,
    option: str = "--port",
    create: bool = False,
    end: Callable[[], None] | None = None,
) -> None:
    """Run a server on 127.0.0.1 until Ctrl-C.

    Args:
        guard_at: A function that returns the guarded application for a port.
        tell: A function that receives the server's address and the guard once the server accepts
            requests.
        store: The store that the application uses.
        port: The port. If 0, any free port.
        option: The option that sets the port, for the error if the port is not available.
        create: Whether the store is created if it does not exist.
        end: A function that is called when the server is about to stop, before it waits for the
            requests that are still open.

    Raises:
        SpecError: The port is not available.
        StoreError: The store can't be opened.
    """
    with bind_port(port, option) as listening:
        port = listening.getsockname()[1]
        guard = guard_at(port)
        server = _Server(guard, lambda: tell(f"http://127.0.0.1:{port}", guard), end)

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


class _Server(uvicorn.Server):
    def __init__(
        self, app: ASGIApp, begin: Callable[[], None], end: Callable[[], None] | None
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


MOST_TEXT: Final = 300_000
"""Maximum size of the texts in a request of a program, in characters.

Each step of the work for a text keeps a server's other clients waiting: one step for 1,000,000
characters takes 130 ms.
"""

_SLOWEST: Final = 60.0
"""Maximum seconds until a whole body has arrived."""


async def body_parts(request: Request, most: int) -> AsyncGenerator[bytes]:
    """Yield the parts of a request's body.

    Args:
        request: The request.
        most: The maximum size of the body, in bytes.

    Raises:
        HTTPException: The body is too long, or the client has closed the connection.
    """
    too_long = HTTPException(413, f"The request is longer than {most:,} bytes; send a shorter one.")
    length = request.headers.get("content-length", "")
    # A number of 20 digits is too large anyway.
    if length.isdecimal() and int(length[:20]) > most:
        raise too_long
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise too_long
            yield part
    except ClientDisconnect as error:
        raise HTTPException(400, "The connection was closed during the request.") from error


async def read_body(request: Request, most: int) -> bytes:
    """Return the body of a request.

    Raises:
        HTTPException: As in `body_parts`, or the body is too slow.
    """
    try:
        async with asyncio.timeout(_SLOWEST):
            return b"".join([part async for part in body_parts(request, most)])
    except TimeoutError as error:
        text = f"The request took longer than {_SLOWEST:g} seconds; send it faster."
        raise HTTPException(408, text) from error


def read_json(body: bytes) -> object:
    """Parse a body.

    Raises:
        SpecError: It is not JSON.
    """
    try:
        return parse_json(body)
    except ValueError as error:
        raise SpecError(f"the body can't be read as JSON ({error}); send a JSON object") from error
