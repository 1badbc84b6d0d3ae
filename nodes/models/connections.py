"""Connections to models: endpoints, and the clients of each event loop.

The chat models and agents of users get one pool of connections for each event loop. All connections
are closed when their loop ends.
"""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary, WeakSet

from langchain_core.language_models import BaseChatModel


@dataclass(frozen=True)
class Endpoint:
    """A server with OpenAI's API."""

    url: str | None = field(repr=False)
    """Address of the server. OpenAI's own if None."""
    key: str = field(repr=False)
    """The API key to send."""
    limit_name: Literal["max_completion_tokens", "max_tokens"] = "max_tokens"
    """The server's name for the output token limit."""
    shown: str | None = None
    """Address of the server in errors, without secrets. None if the server is a child of this
    process.
    """
    max_tokens: int | None = None
    """Output token limit of calls that set none. The server's limit if None."""
    uses_proxies: bool = True
    """Whether requests use the proxies of the environment."""


# An HTTP connection belongs to the event loop that opened it, so each loop has its own clients.
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, Any]] = WeakKeyDictionary()


def clients_of_loop(loop: asyncio.AbstractEventLoop) -> dict[object, Any]:
    """Return the cache of an event loop's clients."""
    return _clients.setdefault(loop, {})


async def close_with_loop(pool: object = None) -> None:
    """Arrange that the connections of the running event loop are closed when it ends.

    Args:
        pool: A further pool of connections to close.
    """
    cached = clients_of_loop(asyncio.get_running_loop())
    if _CLOSING not in cached:
        cached[_CLOSING] = _open_until_closed(cached)
        await anext(cached[_CLOSING])
    if pool is not None:
        cached.setdefault(_USERS, WeakSet()).add(pool)


_CLOSING = "closing"
_USERS = "pools of users"

POOLS: Final = "pools"
"""Key of the HTTP clients of an event loop, which are closed with it."""


async def _open_until_closed(cached: dict[object, Any]) -> AsyncGenerator[None, None]:
    """Close the connections when the loop, at its end, closes this generator."""
    try:
        yield
    finally:
        connections = [*cached.get(POOLS, {}).values(), *cached.get(_USERS, ())]
        cached.clear()
        for connection in connections:
            await connection.aclose()


class LoopPools:
    """The connection pools of a user's HTTP client: one for each event loop.

    The clients of providers keep connections for the next call. In another event loop, such a
    connection fails. LangChain shares the clients of equal chat models, so new objects fail, too.
    """

    def __init__(self, pool: Any) -> None:  # noqa: ANN401  # of httpcore or httpcore2
        self._pool = pool
        self._of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Return an attribute of the client's own pool, such as a setting."""
        return getattr(self._pool, name)

    async def handle_async_request(self, request: object) -> Any:  # noqa: ANN401
        """Send a request on a connection of the running event loop."""
        return await (await self._own()).handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await (await self._own()).aclose()

    async def __aenter__(self) -> "LoopPools":
        """Return the pools themselves."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the connections of the running event loop."""
        await self.aclose()

    async def _own(self) -> Any:  # noqa: ANN401
        loop = asyncio.get_running_loop()
        if loop not in self._of_loops:
            for closed in [one for one in self._of_loops if one.is_closed()]:
                del self._of_loops[closed]
            # The pool has no function that copies its settings.
            made = copy(self._pool)
            made._connections, made._requests = [], []
            made._optional_thread_lock = type(made._optional_thread_lock)()
            self._of_loops[loop] = made
            await close_with_loop(made)
        return self._of_loops[loop]


_MOST_PARTS: Final = 5000
"""Maximum number of parts of a user's object that are searched for connections."""


def separate_loops(used: object) -> None:
    """Let each event loop have its own connections in a user's model or agent.

    All HTTP clients inside the object that use httpx are changed, even if they are shared with
    other objects. Clients that use aiohttp separate the event loops themselves.
    """
    libraries = filter(None, (sys.modules.get(name) for name in ("httpcore", "httpcore2")))
    kinds = tuple(library.AsyncConnectionPool for library in libraries)
    left, known = deque([used]), dict[int, object]()
    while left and len(known) < _MOST_PARTS:
        part = left.popleft()
        if id(part) in known:
            continue
        known[id(part)] = part
        for name, value in _parts_of(part):
            if name and isinstance(value, kinds):
                setattr(part, name, LoopPools(value))
            elif not isinstance(value, _WITHOUT_PARTS):
                left.append(value)


_WITHOUT_PARTS: Final = (
    *(str, bytes, int, float, complex, type(None), type, ModuleType),
    *(asyncio.AbstractEventLoop, LoopPools),
)


def _parts_of(part: object) -> list[tuple[str, object]]:
    """Return the values that an object contains, with their names if they are attributes."""
    match part:
        case dict():
            return [("", value) for value in part.values()]
        case list() | tuple() | set() | frozenset():
            return [("", value) for value in part]
        case FunctionType():
            cells: list[object] = []
            for cell in part.__closure__ or ():
                with suppress(ValueError):  # an empty cell
                    cells.append(cell.cell_contents)
            return [("", cell) for cell in cells]
        case partial():
            return [("", part.func), ("", part.args), ("", part.keywords)]
        case MethodType():
            return [("", part.__self__)]
    made: list[tuple[str, object]] = []
    if isinstance(part, BaseChatModel):
        # Some clients are made at the first use.
        with suppress(Exception):
            made.append(("_async_client", part._async_client))  # type: ignore[attr-defined]
    if type(part).__name__ == "_ConfigurableModel":
        # Of `init_chat_model`: it makes a model for each call, with one shared client.
        with suppress(Exception):
            made.append(("", part._model({})))  # type: ignore[attr-defined]
    fields = getattr(part, "__dict__", {})
    return [*made, *fields.items(), ("", getattr(part, "__pydantic_private__", None))]
