"""Tools of MCP servers.

Each call opens and closes its own connection in the task that makes it. An interrupted call
therefore leaves nothing behind, and a conversation can resume after a crash. A server that must
keep state between calls has to run as a separate process with a url.
"""

import asyncio
import json
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import IO, Any, Literal, TextIO, TypeVar, cast

import anyio
import httpx
from langchain_core.tools import BaseTool, ToolException
from langchain_mcp_adapters.sessions import Connection, create_session
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import (
    CONNECTION_CLOSED,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import ValidationError

from ...graphs.common.addresses import remember_secrets, show_address
from ...graphs.common.content import Block, file_block, text_block
from ...graphs.common.errors import ToolServerError
from ...graphs.common.sanitize import excerpt
from .servers import CommandServer, Server, UrlServer

T = TypeVar("T")

_MOST = 1000
"""Maximum length of a server's message in an error, in characters."""

_GONE = 32600
"""Error code that the MCP client uses for HTTP 404."""

# The client logs a traceback for each invalid line; the user's terminal should not show it.
logging.getLogger("mcp").addHandler(logging.NullHandler())


class McpTool(BaseTool):
    """A tool of an MCP server. Its schema alone defines the arguments and their names.

    As in ``langchain-mcp-adapters``, the structured content of a result is its artifact.
    """

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    server: Server
    """The server that runs the tool."""
    at_server: str
    """Name of the tool on the server."""

    def _run(self, /, *args: object, **arguments: object) -> tuple[object, object]:
        raise NotImplementedError("MCP tools are asynchronous; call ainvoke instead")

    async def _arun(self, /, *args: object, **arguments: Any) -> tuple[object, object]:
        async def call(session: ClientSession) -> CallToolResult:
            return await session.call_tool(self.at_server, arguments)

        try:
            result = await ask_server(self.server, call)
        except ToolServerError as error:
            raise ToolException(f"its MCP server {error}") from error
        if result.isError:
            raise ToolException(result_text(result))
        text, found = result_text(result), result.structuredContent
        # Servers wrap a text or a number, which then says the same as the text.
        is_more = found is not None and (found.keys() != {"result"} or str(found["result"]) != text)
        content = [block for one in result.content if (block := _file_of(one)) is not None]
        shown = [text_block(text), *content] if content else text
        return shown, {"structured_content": found} if is_more else None


async def tools_of(server: Server, name: str) -> dict[str, BaseTool]:
    """Return the tools of a server, by ``server.tool``."""

    async def listed(session: ClientSession) -> list[BaseTool]:
        async with asyncio.timeout(server.connect_timeout):
            return await load_mcp_tools(session)

    return {
        f"{name}.{tool.name}": McpTool(
            name=f"{name}.{tool.name}",
            description=tool.description or f"The tool {tool.name} of {name}.",
            args_schema=_schema(tool.args_schema),
            server=server,
            at_server=tool.name,
        )
        for tool in await ask_server(server, listed)
    }


def _schema(given: object) -> dict[str, Any]:
    """Return the schema of a tool's arguments, with the keys that servers may omit."""
    found = given if isinstance(given, dict) else {}
    return {"type": "object", "properties": {}} | found


def result_text(result: CallToolResult) -> str:
    """Return the text of a tool's result. Its type replaces content that is no text and no file."""
    parts = [_text(block) for block in result.content if _file_of(block) is None]
    if not parts and result.content:
        return ""
    if not parts and result.structuredContent is not None:
        parts = [json.dumps(result.structuredContent, ensure_ascii=False)]
    return "\n".join(parts) or "(nothing)"


def _file_of(block: ContentBlock) -> Block | None:
    """Return the block of an image, audio or another file with its bytes, or None."""
    match block:
        case ImageContent() | AudioContent():
            return file_block(block.data, block.mimeType)
        case EmbeddedResource(resource=BlobResourceContents() as blob):
            name = str(blob.uri).rpartition("/")[2]
            return file_block(blob.blob, blob.mimeType or "application/octet-stream", name)
    return None


def _text(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ResourceLink():
            return f"[{block.title or block.name}: {block.uri}]"
        case EmbeddedResource(resource=TextResourceContents() as text):
            return text.text
        case _:
            return f"[{block.type}, not shown]"


async def ask_server(server: Server, question: Callable[[ClientSession], Awaitable[T]]) -> T:
    """Connect to a server, ask it something, and close the connection."""
    # In a separate task, since anyio's scopes miscount cancellations of the task that they are in.
    asking = asyncio.create_task(_ask_once(server, question))
    try:
        return await asking
    except ToolServerError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # The connection failed because the call was cancelled.
            raise asyncio.CancelledError from error
        raise


async def _ask_once(server: Server, question: Callable[[ClientSession], Awaitable[T]]) -> T:
    # The command's stderr is kept to explain a failure.
    errors = await asyncio.to_thread(
        tempfile.TemporaryFile, "w+", encoding="utf-8", errors="replace"
    )
    noise: list[Exception] = []
    found: list[T] = []
    try:
        async with asyncio.timeout(server.connect_timeout) as limit, AsyncExitStack() as stack:

            async def heard(message: object) -> None:
                if isinstance(message, Exception):
                    noise.append(message)
                    is_first = isinstance(server, UrlServer) and limit.when() is not None
                    # An invalid reply, or the reply to the first POST: no other will follow.
                    if (is_first or _is_reply(message)) and not (found or limit.expired()):
                        limit.reschedule(0)

            session = await stack.enter_async_context(_session(server, errors, heard))
            await session.initialize()
            limit.reschedule(None)
            found.append(await question(session))
    except Exception as error:
        cause = noise[-1] if noise and isinstance(error, TimeoutError) else error
        while isinstance(cause, ExceptionGroup):
            cause = cause.exceptions[0]
        said = await asyncio.to_thread(_last_line, errors)
        # The text of a status error contains the address with its secrets.
        quotes_address = isinstance(cause, httpx.HTTPStatusError)
        raise ToolServerError(_describe_failure(cause, server, said)) from (
            None if quotes_address else error
        )
    finally:
        # Closing is quick, since nothing is left to write.
        errors.close()
    if not found:
        # Closing a broken connection can hide the error.
        raise ToolServerError("closed the connection; start it again")
    return found[0]


def _session(
    server: Server, errors: IO[str], heard: Callable[[object], Awaitable[None]]
) -> AbstractAsyncContextManager[ClientSession]:
    settings = {"message_handler": heard} | (server.session_kwargs or {})
    if isinstance(server, CommandServer):
        return _start_command(server, errors, settings)
    remember_secrets(server.url)
    return create_session(cast("Connection", server.given() | {"session_kwargs": settings}))


@asynccontextmanager
async def _start_command(
    server: CommandServer, errors: IO[str], settings: dict[str, Any]
) -> AsyncIterator[ClientSession]:
    # The adapter's own function would write the server's stderr to our terminal.
    parameters = StdioServerParameters.model_validate(server.given())
    async with (
        stdio_client(parameters, errlog=cast("TextIO", errors)) as (read, write),
        ClientSession(read, write, **settings) as session,
    ):
        yield session


def _is_reply(error: Exception) -> bool:
    """Return whether an error is about a reply that can't be parsed, and not about other output."""
    if not isinstance(error, ValidationError):
        return False
    written = str(error.errors(include_url=False)[0]["input"])
    return "jsonrpc" in written and ("result" in written or "error" in written)


def _has_ended(error: Exception) -> bool:
    """Return whether an error means that the command of a server has ended."""
    if isinstance(error, McpError):
        return error.error.code == CONNECTION_CLOSED
    return isinstance(error, anyio.BrokenResourceError)


def _describe_failure(error: Exception, server: Server, said: str) -> str:
    """Describe the failure of a server and its remedy."""
    is_command = isinstance(server, CommandServer)
    place = "command" if is_command else "url"
    address = "" if isinstance(server, CommandServer) else show_address(server.url)
    match error:
        case TimeoutError():
            seconds = f"{server.connect_timeout:g} s"
            return f"did not answer within {seconds}; check whether it runs, or set connect_timeout"
        case OSError() if is_command:
            what = f"{error.strerror or error}: {error.filename!r}"
            return f"can't be started ({what}); correct its command"
        case _ if is_command and _has_ended(error):
            output = f" (last output: {excerpt(said, _MOST)!r})" if said else ""
            return f"ended before it answered{output}; run its command in a terminal to see why"
        case McpError() if not is_command and error.error.code == _GONE:
            return f"has nothing at {address}; correct its url"
        case McpError():
            return f"answered with an error: {excerpt(str(error), _MOST)}"
        case httpx.TransportError():
            what = excerpt(str(error), _MOST) or type(error).__name__
            return f"can't be reached at {address} ({what}); start it, or correct its url"
        case httpx.HTTPStatusError():
            code = error.response.status_code
            return f"answered HTTP {code} at {address}; correct its url or its headers"
        case ValidationError():
            written = error.errors(include_url=False)[0]["input"]
            return (
                f"does not speak MCP, but writes {excerpt(str(written), 80)!r}; correct its {place}"
            )
        case ValueError():
            return f"does not speak MCP ({excerpt(str(error), _MOST)}); correct its {place}"
        case _:
            return f"failed: {type(error).__name__}: {excerpt(str(error), _MOST)}"


def _last_line(written: IO[str]) -> str:
    size = written.seek(0, os.SEEK_END)
    written.seek(max(0, size - 4096))
    lines = [line.strip() for line in written.read().splitlines() if line.strip()]
    return lines[-1] if lines else ""
