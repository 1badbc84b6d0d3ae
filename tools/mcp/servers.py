"""MCP servers by name, passed in Python or read from the file named by a setting.

Servers are not part of a conversation's spec, since a spec may come from anyone, and a server may
be a command on this machine.
"""

import json
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, PositiveFloat

from ...graphs.common.addresses import check_address
from ...graphs.common.data import Data, Text
from ...graphs.common.errors import SpecError, did_you_mean
from ...graphs.common.files import read_file
from ...graphs.common.settings import load_settings
from ...graphs.common.validation import validate

McpServer: TypeAlias = Mapping[str, Any]
"""An MCP server, as `langchain_mcp_adapters` accepts it: ``{"command": …, "args": […], "env":
{…}}`` or ``{"url": …, "headers": {…}}``. Optional keys: ``transport`` (default: stdio for a
command, streamable HTTP for a url) and ``connect_timeout`` in seconds (default: 10).
"""

_TRANSPORTS: Final[Mapping[str, str]] = {
    "http": "streamable_http",
    "streamable-http": "streamable_http",
    "streamableHttp": "streamable_http",
}
"""Other clients' names for transports, each with ours."""

_VARIABLE: Final = re.compile(r"\$\{([^}]+)\}")


def _filled(values: dict[str, str] | None) -> dict[str, str] | None:
    """Replace each ``${NAME}`` with the environment variable of this name."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise ValueError(f"the environment has no variable {found[1]!r}; set it")
        return os.environ[found[1]]

    return values and {name: _VARIABLE.sub(value, text) for name, text in values.items()}


_Filled = Annotated[dict[str, str] | None, AfterValidator(_filled)]
_Seconds = float | timedelta


class _Server(Data):
    session_kwargs: dict[str, Any] | None = None
    connect_timeout: PositiveFloat = 10.0
    """Maximum time until the first answer, in seconds."""

    def given(self) -> dict[str, Any]:
        """Return the fields that were set, and the transport."""
        names = (self.model_fields_set | {"transport"}) - {"connect_timeout"}
        return {name: getattr(self, name) for name in names}


class CommandServer(_Server):
    """An MCP server that is a command on this machine."""

    transport: Literal["stdio"] = "stdio"
    command: Text
    """The program to start."""
    args: list[str] = Field(default_factory=list)
    """The program's arguments."""
    env: _Filled = Field(default=None, repr=False)
    """Environment variables of the program, in addition to a few harmless ones. ``${NAME}`` is
    replaced by a variable of the current environment.
    """
    cwd: str | Path | None = None
    """Working folder of the program."""
    encoding: str = "utf-8"
    encoding_error_handler: Literal["strict", "ignore", "replace"] = "strict"


class UrlServer(_Server):
    """An MCP server that is reached over HTTP."""

    transport: Literal["streamable_http", "sse"] = "streamable_http"
    url: Annotated[str, AfterValidator(check_address)] = Field(repr=False)
    """Address of the server."""
    headers: _Filled = Field(default=None, repr=False)
    """Headers of each request. ``${NAME}`` is replaced by a variable of the environment."""
    timeout: _Seconds = 30.0
    sse_read_timeout: _Seconds = 300.0
    terminate_on_close: bool = True
    httpx_client_factory: Any = None
    auth: Any = None


Server: TypeAlias = CommandServer | UrlServer


def read_given_servers(given: object) -> dict[str, Server]:
    """Return the servers that are passed in Python."""
    if given is not None and not isinstance(given, Mapping):
        raise SpecError(
            f"mcp_servers: must be a dict from names to servers, not {type(given).__name__}"
        )
    return {name: _server("mcp_servers", name, one) for name, one in (given or {}).items()}


def configured_servers() -> dict[str, Server]:
    """Return the servers of the file that ``DUOLOGUE_MCP_SERVERS`` names.

    The file has the form that MCP clients share: ``{"mcpServers": {name: {"command": …}}}``. Keys
    that only other programs use are ignored.
    """
    path = load_settings().mcp_servers
    if path is None:
        return {}
    where = f"{path} (DUOLOGUE_MCP_SERVERS)"
    try:
        data = read_file(path, json.loads)
    except SpecError as error:
        raise SpecError(f"DUOLOGUE_MCP_SERVERS: {error}") from error
    servers = data.get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise SpecError(f'{where}: must contain {{"mcpServers": {{name: {{"command": …}}}}}}')
    return {
        name: _server(f"{where}: mcpServers", name, _ours(one)) for name, one in servers.items()
    }


def is_at(servers: Mapping[str, Server], name: str) -> bool:
    """Return whether a name is ``server.tool`` with one of these servers."""
    server, _, tool = name.partition(".")
    return bool(tool) and server in servers


def hint_of(servers: Mapping[str, Server], name: str) -> str | None:
    """Return a hint about an unknown tool's name, or None if the name is not about MCP servers."""
    server, dot, _ = name.partition(".")
    if server in servers:
        return f"; it is an MCP server, so name one of its tools, as {server}.tool"
    if not dot:
        return None
    hint = did_you_mean(server, list(servers)) or "; register one of them"
    return f", and no MCP server {server!r}{hint}"


_SHARED: Final = frozenset(
    {"transport", "type", "command", "args", "env", "cwd", "url", "headers", "connect_timeout"}
)


def _ours(one: object) -> object:
    """Return the known keys of a server's entry; other programs add keys to the shared file."""
    if not isinstance(one, dict):
        return one
    found = {name: value for name, value in one.items() if name in _SHARED}
    kind = found.pop("type", None)
    return found if kind is None else {"transport": kind} | found


def _server(where: str, name: object, given: object) -> Server:
    if not isinstance(name, str) or not re.fullmatch(r"[^.\s]+", name):
        raise SpecError(
            f"{where}: {name!r} can't be a server's name; choose one without dots and spaces, "
            "since its tools are named server.tool"
        )
    where = f"{where}.{name}"
    fields = dict(given) if isinstance(given, Mapping) else {}
    if not fields.keys() & {"command", "url"}:
        raise SpecError(f"{where}: must be a dict with a command or a url")
    # Other clients have the same defaults.
    plain = "stdio" if "command" in fields else "streamable_http"
    transport = fields.get("transport") or plain
    fields["transport"] = _TRANSPORTS.get(str(transport), transport)
    if transport == "stdio":
        return validate(CommandServer, fields, f"{where}.")
    return validate(UrlServer, fields, f"{where}.")
