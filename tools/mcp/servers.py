"""MCP servers by name: what is given in Python, and what stands in the file that a setting names.

They are no part of a conversation's spec, which may come from anywhere: one of them is a command
on this machine.
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
from ...graphs.common.errors import SpecError
from ...graphs.common.files import read_file
from ...graphs.common.settings import load_settings
from ...graphs.common.validation import did_you_mean, validate

McpServer: TypeAlias = Mapping[str, Any]
"""An MCP server, as `langchain_mcp_adapters` takes it: ``{"command": …, "args": […], "env": {…}}``
or ``{"url": …, "headers": {…}}``, each with a ``transport`` where it is not plain, and with the
``connect_timeout`` in seconds where 10 will not do."""

_TRANSPORTS: Final[Mapping[str, str]] = {
    "http": "streamable_http",
    "streamable-http": "streamable_http",
    "streamableHttp": "streamable_http",
}
"""Other names that clients have for one."""

_VARIABLE: Final = re.compile(r"\$\{([^}]+)\}")


def _filled(values: dict[str, str] | None) -> dict[str, str] | None:
    """Put the environment's variables in the places of their names."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise ValueError(f"the environment has no variable {found[1]!r}")
        return os.environ[found[1]]

    return values and {name: _VARIABLE.sub(value, text) for name, text in values.items()}


_Filled = Annotated[dict[str, str] | None, AfterValidator(_filled)]
_Seconds = float | timedelta


class ServerError(Exception):
    """A server did not answer, or not as MCP has it. Says what it did and what to do."""


class _Server(Data):
    session_kwargs: dict[str, Any] | None = None
    connect_timeout: PositiveFloat = 10.0
    """How long it may take to answer for the first time, in seconds."""

    def given(self) -> dict[str, Any]:
        """Give what was said of it, and its transport."""
        names = (self.model_fields_set | {"transport"}) - {"connect_timeout"}
        return {name: getattr(self, name) for name in names}


class CommandServer(_Server):
    """An MCP server that is a command on this machine."""

    transport: Literal["stdio"] = "stdio"
    command: Text
    """The program."""
    args: list[str] = Field(default_factory=list)
    """What it is called with."""
    env: _Filled = None
    """What its environment has beside a few harmless variables; ``${NAME}`` stands for one of
    ours."""
    cwd: str | Path | None = None
    """The folder it works in."""
    encoding: str = "utf-8"
    encoding_error_handler: Literal["strict", "ignore", "replace"] = "strict"


class UrlServer(_Server):
    """An MCP server that is reached over HTTP."""

    transport: Literal["streamable_http", "sse"] = "streamable_http"
    url: Annotated[str, AfterValidator(check_address)]
    """Its address."""
    headers: _Filled = None
    """What each request carries; ``${NAME}`` stands for a variable of the environment."""
    timeout: _Seconds = 30.0
    sse_read_timeout: _Seconds = 300.0
    terminate_on_close: bool = True
    httpx_client_factory: Any = None
    auth: Any = None


Server: TypeAlias = CommandServer | UrlServer


def read_given_servers(given: object) -> dict[str, Server]:
    """Read the servers that are given in Python."""
    if given is not None and not isinstance(given, Mapping):
        raise SpecError(
            f"mcp_servers: must be a dict from names to servers, not {type(given).__name__}"
        )
    return {name: _server("mcp_servers", name, one) for name, one in (given or {}).items()}


def configured_servers() -> dict[str, Server]:
    """Read the servers of the file that ``DUOLOGUE_MCP_SERVERS`` names. Reads files.

    It has the form that other programs share: ``{"mcpServers": {name: {"command": …}}}``; what
    these have put there for themselves is passed over.
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
        raise SpecError(f'{where}: must hold {{"mcpServers": {{name: {{"command": …}}}}}}')
    return {
        name: _server(f"{where}: mcpServers", name, _ours(one)) for name, one in servers.items()
    }


def is_at(servers: Mapping[str, Server], name: str) -> bool:
    """Whether a tool's name is ``server.tool``, of one of these servers."""
    server, _, tool = name.partition(".")
    return bool(tool) and server in servers


def hint_of(servers: Mapping[str, Server], name: str) -> str | None:
    """Say what may be wrong with the name of a tool that there is not; None: not the server."""
    server, dot, _ = name.partition(".")
    if server in servers:
        return f"; of the MCP server {server!r} name one tool, as {server}.tool"
    if not dot:
        return None
    hint = did_you_mean(server, list(servers)) or "; register one of them"
    return f", and no MCP server {server!r}{hint}"


_SHARED: Final = frozenset(
    {"transport", "type", "command", "args", "env", "cwd", "url", "headers", "connect_timeout"}
)


def _ours(one: object) -> object:
    """Leave out what other programs have put into the file they share with us."""
    if not isinstance(one, dict):
        return one
    found = {name: value for name, value in one.items() if name in _SHARED}
    kind = found.pop("type", None)
    return found if kind is None else {"transport": kind} | found


def _server(where: str, name: object, given: object) -> Server:
    if not isinstance(name, str) or not re.fullmatch(r"[^.\s]+", name):
        raise SpecError(
            f"{where}: {name!r} can't be the name of a server: it stands in front of the dot in "
            "server.tool, and has no dot and no space itself"
        )
    where = f"{where}.{name}"
    fields = dict(given) if isinstance(given, Mapping) else {}
    if not fields.keys() & {"command", "url"}:
        raise SpecError(f"{where}: must be a dict with a command or a url")
    # As other clients do where nothing is said.
    plain = "stdio" if "command" in fields else "streamable_http"
    transport = fields.get("transport") or plain
    fields["transport"] = _TRANSPORTS.get(str(transport), transport)
    if transport == "stdio":
        return validate(CommandServer, fields, f"{where}.")
    return validate(UrlServer, fields, f"{where}.")
