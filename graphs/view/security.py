"""Who may use the page: whoever has its token, from this machine's browser, and from itself alone.

- A site that points its name at this machine (DNS rebinding) is told by `Host`.
- Another page that sends something here is told by `Origin` and `Sec-Fetch-Site`. A page on another
  port of this machine is the same *site*, so that the cookie alone would not keep it out.
- The token stands only in the first address. It is exchanged for a cookie that no script reads.
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
    # With `no-referrer` a form would be sent with the origin "null".
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""What stands in the head of every answer that does not say otherwise."""

_READS: Final = ("GET", "HEAD")


class Guard:
    """Stands before an application and lets only its own user through.

    Args:
        app: The application.
        port: The port that it is served on.
        token: What the first address holds. None: a random one.
    """

    def __init__(self, app: ASGIApp, port: int, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self._app = app
        # Browsers leave out HTTP's own port.
        end = "" if port == 80 else f":{port}"
        self._hosts = {name + end for name in ("127.0.0.1", "localhost")}
        # Cookies are the same for all ports of a machine.
        self._cookie = f"duologue-view-{port}"
        self._key = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
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
        """Return the answer to who may not go on; None: it may."""
        if request.headers.getlist("host") not in [[host] for host in self._hosts]:
            return _refusal(421, "This page answers only to 127.0.0.1 and localhost.")
        if not _is_own(request):
            return _refusal(403, "This came from another page.")
        if _same(request.cookies.get(self._cookie, ""), self._key):
            return None
        if request.method == "GET" and _same(request.query_params.get("token", ""), self.token):
            return self._let_in(request)
        return _refusal(401, "This needs the address that `duologue view` has printed.")

    def _let_in(self, request: Request) -> Response:
        """Return the cookie, and go on from here: a browser counts that as the page's own step."""
        path = escape("/" + request.url.path.lstrip("/"))
        page = f'<!doctype html><meta http-equiv="refresh" content="0; url={path}">'
        page += f'<title>duologue</title><a href="{path}">To the page</a>'
        answer = HTMLResponse(page)
        answer.set_cookie(self._cookie, self._key, httponly=True, samesite="strict")
        return answer


def _is_own(request: Request) -> bool:
    """Whether a request comes from this page, or from the person at the browser."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    if request.method in _READS:
        # Who follows a link from elsewhere only reads, and no other page can see what.
        is_visit = request.headers.get("sec-fetch-mode") == "navigate"
        return site in ("same-origin", "none") or is_visit
    origin = f"http://{request.headers['host']}"
    return site == "same-origin" and request.headers.getlist("origin") == [origin]


def _same(given: str, known: str) -> bool:
    return compare_digest(given.encode(), known.encode())


def _refusal(status: int, text: str) -> Response:
    return PlainTextResponse(text + "\n", status)
