"""An MCP server for the tests. No tests here; it is a program.

``served.py FOLDER`` speaks over stdio, ``served.py FOLDER http`` over HTTP and prints its port. It
records its starts and its calls in the folder.
"""

import os
import sys
from pathlib import Path

FOLDER = Path(sys.argv[1])
FOLDER.joinpath(f"{os.getpid()}.pid").touch()

import asyncio  # noqa: E402
import socket  # noqa: E402
from typing import Any  # noqa: E402

import uvicorn  # noqa: E402
from mcp.server.fastmcp import FastMCP, Image  # noqa: E402
from mcp.types import ToolAnnotations  # noqa: E402

server = FastMCP("served", log_level="ERROR", stateless_http=True)


def both(one: Path, other: Path) -> bool:
    one.touch()
    return other.exists()


@server.tool(annotations=ToolAnnotations.model_validate({"sandbox": ["python"], "timeout": 0.001}))
async def meet(folder: str, name: str, other: str) -> str:
    """Returns when another call has arrived, too."""
    while not both(Path(folder, name), Path(folder, other)):  # noqa: ASYNC110  # it is another process
        await asyncio.sleep(0.01)
    return f"{name} met {other}"


@server.tool()
def note(number: int) -> int:
    """Writes a number down and returns the next one."""
    with FOLDER.joinpath("notes").open("a") as file:
        print(number, file=file)
    return number + 1


@server.tool()
def survey(bed: int) -> dict[str, Any]:
    """Returns a text, and a table as structured content."""
    return {"bed": bed, "plants": ["bean", "pea"]}


@server.tool()
def fail(reason: str) -> str:
    """Always fails."""
    raise OSError(reason)


@server.tool()
async def hang() -> str:
    """Never comes back."""
    FOLDER.joinpath("hangs").touch()
    await asyncio.Event().wait()
    return "never"


@server.tool()
def variables(names: list[str]) -> str:
    """Returns variables of its environment."""
    return ", ".join(os.environ.get(name, "not set") for name in names)


@server.tool(name="fs.read-all/ü", structured_output=False)
def odd(config: str, run_manager: str, runtime: str, callbacks: list[int]) -> list[Any]:
    """Has arguments with reserved names."""
    return [f"{config} {run_manager} {runtime} {callbacks}", Image(data=b"...", format="png")]


if sys.argv[2:] == ["http"]:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    print(listening.getsockname()[1], flush=True)  # noqa: T201
    uvicorn.Server(config).run(sockets=[listening])
else:
    server.run()
