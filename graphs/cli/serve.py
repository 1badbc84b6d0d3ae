"""The command `duologue serve`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from .options import ModelOption, Port, StoreOption


def serve(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="The .toml or .json files of the conversations."),
    ],
    port: Port = 0,
    token: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOKEN",
            envvar="DUOLOGUE_SERVE_TOKEN",
            help="The token that clients send as their API key. Repeatable: each token has its own "
            "sessions. Other users of this machine can read arguments, so set the variable "
            "instead; spaces separate its tokens. [default: a new random token]",
            show_default=False,
        ),
    ] = None,
    concurrency: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Maximum number of conversations that run at the same time; further requests "
            "wait. [default: 8]",
            show_default=False,
        ),
    ] = 8,
    store: StoreOption = None,
    model: ModelOption = None,
) -> None:
    """Serve conversation files as models with OpenAI's API.

    Each file is one model, with the name of the file. A request runs the conversation and returns
    its output. It is stored only if a header of the request starts a session.
    """
    from ..common.errors import SpecError, how_to_install
    from .terminal.console import plain, stderr, stdout

    try:
        from ..serve.openai_server import serve_models
    except ImportError as error:
        raise SpecError(f"serve needs more packages ({error}); {how_to_install('view')}") from error

    def tell(address: str, names: Sequence[str], tokens: Sequence[str]) -> None:
        plain(stdout(), address)
        plain(stdout(), f"Models: {', '.join(names)}")
        if not token:
            plain(stdout(), f"API key: {tokens[0]}")
        plain(stderr(), "Ctrl-C stops the server. Anyone with a key can use it.", "dim")

    serve_models(files, store, model, port, token or [], concurrency, tell)
