"""Access control of servers for programs: a token in each request, and no requests of web pages."""

from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from ..common.errors import SpecError
from ..view.security import LocalGuard, is_same
from .openai_format import error_body
from .session_names import derive_caller

_SHORTEST_TOKEN: Final = 16
"""Minimum length of a token that a user chooses, in characters."""

CALLER: Final = "duologue.caller"
"""The key of an admitted request's scope for the secret of its client, which depends on the token.
"""


def check_token(token: str | None, option: str) -> None:
    """Check a token that a user has chosen.

    Raises:
        SpecError: The token is too short, or contains other characters than ASCII.
    """
    if token is not None and (len(token) < _SHORTEST_TOKEN or not token.isascii()):
        raise SpecError(
            f"{option}: must have at least {_SHORTEST_TOKEN} ASCII characters; choose a "
            "longer token, or leave it out for a random one"
        )


class TokenGuard(LocalGuard):
    """A wrapper of an application that admits only programs on this machine that have a token.

    A program sends its token as ``Authorization: Bearer TOKEN``.

    Args:
        app: The application.
        port: The port of the server.
        token: The token that admits a client. If None, a random token.
        *more: The tokens of other clients.
    """

    def __init__(self, app: ASGIApp, port: int, token: str | None = None, *more: str) -> None:
        super().__init__(app, port, token)
        self.tokens = (self.token, *more)
        self._callers = [*map(derive_caller, self.tokens)]

    def _refused_here(self, request: Request) -> Response | None:
        # Browsers send one of these headers with each request of a page; programs send neither.
        if "origin" in request.headers or "sec-fetch-site" in request.headers:
            return self.refuse(403, "Web pages can't use this server.")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        # All tokens are compared, so that the time does not depend on which of them was sent.
        matches = [is_same(token.strip(), one) for one in self.tokens]
        if scheme.casefold() == "bearer" and any(matches):
            request.scope[CALLER] = self._callers[matches.index(True)]
            return None
        refused = self.refuse(401, "Send the token of this server as Authorization: Bearer TOKEN.")
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused


class ModelGuard(TokenGuard):
    """A guard whose refusals have the format of OpenAI's errors."""

    def refuse(self, status: int, text: str) -> Response:
        """Return the response to a refused request."""
        code = "invalid_api_key" if status == 401 else None
        return JSONResponse(error_body(status, text, code), status)
