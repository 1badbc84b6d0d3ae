"""The transports of the MCP server: the streams of the process, and streamable HTTP."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Final

import anyio
from mcp import types
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ..common.errors import SpecError
from ..session.listing import known_store
from ..view.request_body import MOST_TEXT, read_body, read_json
from ..view.serve import LocalServer, bind_port, run_server
from .mcp_server import ConversationServer
from .security import TokenGuard, check_token
from .tools import load_tools

_PATIENCE: Final = 3600
"""Seconds after which a client without an open request is forgotten.

A client that has gone without closing its connection may have left a question open. Until then,
nobody else can continue that session.
"""


def _is_of_interest(record: logging.LogRecord) -> bool:
    """Return whether a log record says more than that a client has closed its connection."""
    return not (record.exc_info and isinstance(record.exc_info[1], anyio.ClosedResourceError))


# The library logs a traceback for each client that closes its connection.
logging.getLogger("mcp.server.streamable_http").addFilter(_is_of_interest)


def serve_stdio(files: Sequence[Path], store: str | None, model: str | None) -> None:
    """Serve the conversations of files on stdin and stdout, until stdin ends.

    Args:
        files: The files.
        store: The store of the sessions. If None, the store in the settings.
        model: The model for conversations that name none.

    Raises:
        SpecError: A file is not valid, or its conversation can't run here.
        ModelError: A model is not available.
        StoreError: The store can't be opened.
    """
    # Reading stdin can't be interrupted. Nothing is lost: the sessions can be continued.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(_serve_stdio(files, store, model))


async def _serve_stdio(files: Sequence[Path], store: str | None, model: str | None) -> None:
    # First of all, because libraries that are loaded for a model may print.
    stdin, stdout = _take_streams()
    tools = await load_tools(files, store, model)
    server = ConversationServer(tools, store, model).server
    async with known_store(store, create=True), stdio_server(stdin, stdout) as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


def _take_streams() -> tuple[anyio.AsyncFile[str], anyio.AsyncFile[str]]:
    """Keep stdin and stdout for the protocol.

    Everything else that reads stdin finds its end, and everything that is printed, for example by a
    tool or a library, goes to stderr.
    """
    reads, writes = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return (
        anyio.wrap_file(TextIOWrapper(os.fdopen(reads, "rb"), "utf-8", errors="replace")),
        anyio.wrap_file(TextIOWrapper(os.fdopen(writes, "wb"), "utf-8", newline="\n")),
    )


def serve_http(
    files: Sequence[Path],
    store: str | None,
    model: str | None,
    port: int,
    token: str | None,
    tell: Callable[[str, str], None],
) -> None:
    """Serve the conversations of files by streamable HTTP on 127.0.0.1, until Ctrl-C.

    Args:
        files: The files.
        store: The store of the sessions. If None, the store in the settings.
        model: The model for conversations that name none.
        port: The port. If 0, any free port.
        token: The token that admits clients. If None, a random token.
        tell: A function that receives the address and the token once the server accepts requests.

    Raises:
        SpecError: A file is not valid, its conversation can't run here, the port is not available,
            or the token is too short.
        ModelError: A model is not available.
        StoreError: The store can't be opened.
    """
    check_token(token, "DUOLOGUE_MCP_TOKEN")
    tools = asyncio.run(load_tools(files, store, model))
    with bind_port(port, "--http") as listening:
        port = listening.getsockname()[1]
        guard = TokenGuard(http_app(ConversationServer(tools, store, model)), port, token)
        address = f"http://127.0.0.1:{port}/mcp"
        server = LocalServer(guard, lambda: tell(address, guard.token))
        run_server(server, listening, store, create=True)


def http_app(server: ConversationServer) -> Starlette:
    """Return the application of streamable HTTP, which must be wrapped in a `TokenGuard`."""
    manager = StreamableHTTPSessionManager(server.server, session_idle_timeout=_PATIENCE)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[Route("/mcp", _Endpoint(manager))], lifespan=lifespan)


class _Endpoint:
    """The address of the protocol. Starlette passes all methods to an object like this one."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method == "POST":
            # The library would parse any number of values, and would not read deep JSON.
            body = await read_body(request, MOST_TEXT)
            try:
                read_json(body)
            except SpecError as error:
                await _refuse(str(error))(scope, receive, send)
                return
            receive = _repeat(body, receive)
        await self._manager.handle_request(scope, receive, send)


def _repeat(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body that was read already, and what follows it."""
    first = iter([{"type": "http.request", "body": body}])

    async def receive_again() -> Message:
        return next(first, None) or await receive()

    return receive_again


def _refuse(text: str) -> Response:
    """Return the response to a body that is not read, as the library returns it."""
    error = types.ErrorData(code=types.PARSE_ERROR, message=text)
    refused = types.JSONRPCError(jsonrpc="2.0", id="server-error", error=error)
    return JSONResponse(refused.model_dump(exclude_none=True), 400)
