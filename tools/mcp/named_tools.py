"""Lookup of the MCP tools that a conversation names."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from langchain_core.tools import BaseTool

from ...graphs.common.errors import (
    SpecError,
    ToolServerError,
    did_you_mean,
    how_to_install,
    list_names,
)
from .servers import Server


async def find_tools(
    servers: Mapping[str, Server], wanted: Iterable[tuple[str, str]]
) -> dict[str, BaseTool]:
    """Return MCP tools by their names. Only the servers of these tools are asked, concurrently.

    Args:
        servers: The MCP servers, by name.
        wanted: The field and the name of each tool. Errors mention the field.

    Raises:
        SpecError: A server has no tool of this name.
        ToolServerError: A server fails.
    """
    named: dict[str, list[tuple[str, str]]] = {}
    for path, name in wanted:
        named.setdefault(name.partition(".")[0], []).append((path, name))
    if not named:
        return {}
    tools_of = await asyncio.to_thread(_import_tools_of, *next(iter(named.values()))[0])
    asks = (tools_of(servers[server], server) for server in named)
    answers = await asyncio.gather(*asks, return_exceptions=True)
    found: dict[str, BaseTool] = {}
    for (server, names), answer in zip(named.items(), answers, strict=True):
        for path, name in names:
            if isinstance(answer, ToolServerError):
                raise ToolServerError(f"{path}: the MCP server {server!r} {answer}") from answer
            if isinstance(answer, BaseException):
                raise answer
            if name not in answer:
                hint = did_you_mean(name, list(answer))
                hint = hint or f"; its tools are {list_names(answer)}"
                raise SpecError(f"{path}: the MCP server {server!r} has no tool {name!r}{hint}")
            found[name] = answer[name]
    return found


def _import_tools_of(
    path: str, name: str
) -> Callable[[Server, str], Awaitable[dict[str, BaseTool]]]:
    """Import the MCP client, which takes a while and needs an extra."""
    try:
        from .tools import tools_of
    except ImportError as error:
        raise SpecError(
            f"{path}: {name!r} is a tool of an MCP server, which needs more packages ({error}); "
            + how_to_install("mcp")
        ) from error
    return tools_of
