"""The command that shows sessions on a local page."""

from typing import Annotated

import typer

from .options import ModelOption, StoreOption


def view(
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="The session to show. [default: all, in a list]"),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            max=65535,
            help="The port on 127.0.0.1. [default: a free one]",
            show_default=False,
        ),
    ] = 0,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Only print the address; open no browser.")
    ] = False,
    store: StoreOption = None,
    model: ModelOption = None,
) -> None:
    """Show sessions in the browser, and answer or stop them there.

    They are shown live and can be searched, and calls of tools approved. The page is served on
    this machine alone, to whoever has the address, until Ctrl-C.
    """
    from ..common.errors import SpecError
    from ..store.rows import check_session_id
    from .terminal.console import plain, stderr, stdout

    if session is not None:
        check_session_id(session)
    try:
        from ..view.serve import serve
    except ImportError as error:
        needed = "uv run --extra view, or pip install 'duologue[view]'"
        raise SpecError(f"view needs the extra view: {needed} ({error})") from error

    def tell(address: str) -> None:
        plain(stdout(), address)
        plain(stderr(), "Ctrl-C ends it. The address opens it for whoever has it.", "dim")

    serve(store, model, session, port, not no_open, tell)
