"""The names of clients' sessions, which prove who has started them.

A name contains the model, a random salt, and a hash of these with the client's token. A server
therefore finds out whether a session of the store belongs to a client, also after a restart and
without a table of tokens. Everybody who lists sessions sees their names, and people may choose
their tokens, so a token is hashed at length first: a guess costs 16 MB of memory and about 40 ms.
"""

import secrets
from functools import lru_cache
from hashlib import scrypt
from hmac import digest
from typing import Final

from ..view.security import is_same

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
