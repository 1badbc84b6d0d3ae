"""Access control of local servers: only a client on this machine that has the token may use them.

`Guard` protects the local page, which browsers use. `graphs.serve.security` protects servers for
programs.

- A site that points its name at this machine (DNS rebinding) is recognised by `Host`.
- Requests from other pages are recognised by `Origin` and `Sec-Fetch-Site`. A page on another port
  of this machine belongs to the same *site*, so the cookie alone would not keep it out.
- The token is only in the first address. It is exchanged for a cookie that scripts can't read.
"""

import secrets
from abc import ABC, abstractmethod
from hmac import compare_digest
from html import escape
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

        refused = self._refused(Request(scope))
        await (refused or self._app)(scope, receive, guarded)

    def _refused(self, request: Request) -> Response | None:
        """Return the response to a refused request, or None if it is admitted."""
        if request.headers.getlist("host") not in [[host] for host in self._hosts]:
            return self.refuse(421, "This server answers only to 127.0.0.1 and localhost.")
        return self._refused_here(request)

    def refuse(self, status: int, text: str) -> Response:
        """Return the response to a refused request."""
        return refusal(status, text)

    @abstractmethod
    def _refused_here(self, request: Request) -> Response | None:
        """Return the response to a request of this machine if it is refused, or None."""


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

    def _refused_here(self, request: Request) -> Response | None:
        """Return the response to a refused request, or None if it is admitted."""
        if not _is_own(request):
            return refusal(403, "This request came from another page.")
        if is_same(request.cookies.get(self._cookie, ""), self._key):
            return None
        if request.method == "GET" and is_same(request.query_params.get("token", ""), self.token):
            return self._let_in(request)
        return refusal(401, "Open the address that `duologue view` printed.")

    def _let_in(self, request: Request) -> Response:
        """Return a page that sets the cookie and opens the address without the token.

        A redirect would not do: the browser would count it as a request from elsewhere, and
        withhold the cookie.
        """
        path = escape("/" + request.url.path.lstrip("/"))
        page = f'<!doctype html><meta http-equiv="refresh" content="0; url={path}">'
        page += f'<title>duologue</title><a href="{path}">Go to the page</a>'
        answer = HTMLResponse(page)
        answer.set_cookie(self._cookie, self._key, httponly=True, samesite="strict")
        return answer


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


def refusal(status: int, text: str) -> Response:
    """Return the response to a refused request."""
    return PlainTextResponse(text + "\n", status)
