"""Access control of servers for programs: a token in each request, and no requests of web pages."""

from starlette.requests import Request
from starlette.responses import Response

from ..view.security import LocalGuard, is_same, refusal


class TokenGuard(LocalGuard):
    """A wrapper of an application that admits only programs on this machine that have the token.

    A program sends the token as ``Authorization: Bearer TOKEN``.
    """

    def _refused_here(self, request: Request) -> Response | None:
        # Browsers send one of these headers with each request of a page; programs send neither.
        if "origin" in request.headers or "sec-fetch-site" in request.headers:
            return refusal(403, "Web pages can't use this server.")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.casefold() == "bearer" and is_same(token.strip(), self.token):
            return None
        refused = refusal(401, "Send the token of this server as Authorization: Bearer TOKEN.")
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused
