"""The bodies of requests to servers on this machine, with limits of their size and time."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from ..common.errors import SpecError
from ..common.files import parse_json

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
