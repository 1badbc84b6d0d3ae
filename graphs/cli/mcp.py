"""The command `duologue mcp`."""

from pathlib import Path
from typing import Annotated

import typer

from .options import ModelOption, StoreOption


def mcp(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="The .toml or .json files of the conversations."),
    ],
    http: Annotated[
        int | None,
        typer.Option(
            "--http",
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve streamable HTTP at this port of 127.0.0.1; 0 is any free port. "
            "[default: serve stdin and stdout]",
            show_default=False,
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TOKEN",
            envvar="DUOLOGUE_MCP_TOKEN",
            help="With --http: the token that clients send. Other users of this machine can read "
            "arguments, so set the variable instead. [default: a new random token]",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = None,
    model: ModelOption = None,
) -> None:
    """Serve conversation files as tools to MCP clients.

    Each file is one tool, with the name of the file. A call runs the conversation and returns its
    output. Sessions are kept in the store, as those of `duologue run`.
    """
    from ..common.errors import SpecError, how_to_install
    from .terminal.console import plain, stderr, stdout

    try:
        from ..serve.transports import serve_http, serve_stdio
    except ImportError as error:
        raise SpecError(f"mcp needs more packages ({error}); {how_to_install('mcp')}") from error

    def tell(address: str, token: str) -> None:
        plain(stdout(), address)
        plain(stdout(), f"Authorization: Bearer {token}")
        plain(stderr(), "Ctrl-C stops the server. Anyone with this token can use it.", "dim")

    if http is None:
        serve_stdio(files, store, model)
    else:
        serve_http(files, store, model, http, token, tell)
