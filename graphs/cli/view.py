"""The command `duologue view`."""

from typing import Annotated

import typer

from .options import ModelOption, Port, StoreOption


def view(
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="SESSION", help="The session to show. [default: the list of all sessions]"
        ),
    ] = None,
    port: Port = 0,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address without opening a browser.")
    ] = False,
    store: StoreOption = None,
    model: ModelOption = None,
) -> None:
    """Show sessions live in the browser; answer and stop them there.

    The page lists and searches sessions and approves tool calls. It is served on this machine only,
    to anyone who has the printed address, until Ctrl-C.
    """
    from ..common.errors import SpecError, how_to_install
    from ..store.rows import check_session_id
    from .terminal.console import plain, stderr, stdout

    if session is not None:
        check_session_id(session)
    try:
        from ..view.serve import serve
    except ImportError as error:
        raise SpecError(f"view needs more packages ({error}); {how_to_install('view')}") from error

    def tell(address: str) -> None:
        plain(stdout(), address)
        plain(stderr(), "Ctrl-C stops the page. Anyone with this address can use it.", "dim")

    serve(store, model, session, port, not no_open, tell)
