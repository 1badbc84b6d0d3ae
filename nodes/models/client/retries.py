"""Notices of the retries that OpenAI's client makes by itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

_COUNT = "x-stainless-retry-count"
"""The header in which the client says how often it has tried before."""

_tell: ContextVar[Callable[[int], None] | None] = ContextVar("_tell", default=None)


@contextmanager
def tries_told(notify: Callable[[str], None], where: str, retries: int) -> Iterator[None]:
    """Tell of each further try of the calls inside the block."""

    def tell(number: int) -> None:
        at = f"{where[:1].upper()}{where[1:]}"
        notify(f"{at} is busy or can't be reached: try {number} of {1 + retries}.")

    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


async def tell_try(request: "httpx2.Request") -> None:
    """Tell of a request that is a further try; a hook of the HTTP client."""
    count = request.headers.get(_COUNT, "0")
    tell = _tell.get()
    if tell is not None and count.isdecimal() and int(count) > 0:
        tell(1 + int(count))
