"""Access control of the local page: only a browser on this machine that has the token may use it.

- A site that points its name at this machine (DNS rebinding) is recognised by `Host`.
- Requests from other pages are recognised by `Origin` and `Sec-Fetch-Site`. A page on another port
  of this machine belongs to the same *site*, so the cookie alone would not keep it out.
- The token is only in the first address. It is exchanged for a cookie that scripts can't read.
"""

import secrets
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


class Guard:
    """A wrapper of an application that admits only the user who has the token.

    Args:
        app: The application.
        port: The port of the server.
        token: The token of the first address. If None, a random token.
    """

    def __init__(self, app: ASGIApp, port: int, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self._app = app
        # Browsers leave out the default port of HTTP.
        end = "" if port == 80 else f":{port}"
        self._hosts = {name + end for name in ("127.0.0.1", "localhost")}
        # Cookies are shared by all ports of a machine.
        self._cookie = f"duologue-view-{port}"
        self._key = secrets.token_urlsafe(32)

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
            return _refusal(421, "This page answers only to 127.0.0.1 and localhost.")
        if not _is_own(request):
            return _refusal(403, "This request came from another page.")
        if _same(request.cookies.get(self._cookie, ""), self._key):
            return None
        if request.method == "GET" and _same(request.query_params.get("token", ""), self.token):
            return self._let_in(request)
        return _refusal(401, "Open the address that `duologue view` printed.")

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


def _same(given: str, known: str) -> bool:
    return compare_digest(given.encode(), known.encode())


def _refusal(status: int, text: str) -> Response:
    return PlainTextResponse(text + "\n", status)
