"""Access of programs to servers: a token in each request, and names that prove who began a session.

Requests of web pages are refused. The name of a session contains the model, a random salt, and a
hash of these with the client's token. A server therefore finds out whether a session of the store
belongs to a client, also after a restart and without a table of tokens. Everybody who lists
sessions sees their names, and people may choose their tokens, so a token is hashed at length first:
a guess costs 16 MB of memory and about 40 ms.
"""

import secrets
from functools import lru_cache
from hashlib import scrypt
from hmac import digest
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from ..common.errors import SpecError
from ..view.local_server import LocalGuard, is_same
from .openai_format import error_body

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

    def _refuse_client(self, request: Request) -> Response | None:
        # Browsers send one of these headers with each request of a page; programs send neither.
        if "origin" in request.headers or "sec-fetch-site" in request.headers:
            return self.refuse(403, "Web pages can't use this server.")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        # All tokens are compared, so that the time does not depend on which of them was sent.
        matches = [is_same(token.strip(), one) for one in self.tokens]
        if scheme.casefold() == "bearer" and any(matches):
            request.scope[CALLER] = self._callers[matches.index(True)]
            return None
        refused = self.refuse(
            401, "Send the key that this server printed as Authorization: Bearer KEY."
        )
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused


class ModelGuard(TokenGuard):
    """A guard whose refusals have the format of OpenAI's errors."""

    def refuse(self, status: int, text: str) -> Response:
        """Return the response to a refused request."""
        code = "invalid_api_key" if status == 401 else None
        return JSONResponse(error_body(status, text, code), status)


_SALT: Final = 16
"""Length of the salt in a name, in hexadecimal digits."""


@lru_cache
def derive_caller(token: str) -> bytes:
    """Return the secret of the client that has a token. It takes about 40 ms."""
    return scrypt(token.encode(), salt=b"duologue serve", n=2**14, r=8, p=1)


def name_session(model: str, caller: bytes) -> str:
    """Return a new name for a session of a client."""
    return _sign(model, secrets.token_hex(_SALT // 2), caller)


def is_session_of(caller: bytes, model: str, session: str) -> bool:
    """Return whether a client has started the session with this name, with this model."""
    salt = session.removeprefix(f"{model}-")[:_SALT]
    return is_same(session, _sign(model, salt, caller))


def _sign(model: str, salt: str, caller: bytes) -> str:
    signed = digest(caller, f"{model}-{salt}".encode(), "sha256")
    return f"{model}-{salt}{signed.hex()[:_SALT]}"
