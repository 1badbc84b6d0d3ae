"""The output of commands that make sessions or write files: the next command, and the file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..session.session import Session as Handle


def print_next_command(session: "Handle", tools: Sequence[str] = ()) -> None:
    """Print the id of a session, and the command that continues it."""
    from .follow_up import FollowUp
    from .sessions import require_session
    from .terminal.console import plain, stderr, stdout

    plain(stdout(), session.id)
    store = None if session.store is None else str(session.store)
    row = require_session(session.id, store)
    if session.state().outcome is None:
        plain(stderr(), FollowUp(store, tools=tools).for_session(row).hint(session.id))
    else:
        # `resume` would change nothing: by the same rules a fork at its end has ended as well.
        say = FollowUp(store).command("say", session.id, arguments=("SPEAKER", "TEXT"))
        told = (
            "It has ended as well, by the same rules: fork at an earlier message (--at), change a "
            f"rule (such as --max-iterations), or add a message: {say}"
        )
        plain(stderr(), told if row.forked_from else f"It has ended. Continue it with: {say}")


def put(text: str, output: Path | None) -> None:
    """Write a text to a file, or to standard output."""
    from ..common.files import write_file
    from ..common.sanitize import clean
    from .terminal.console import on_screen, stdout

    if output is not None:
        write_file(output, text)
    elif on_screen(stdout()):
        typer.echo(clean(text), nl=False)
    else:
        # Always UTF-8, as in a file, whatever the terminal's encoding.
        typer.echo(text.encode(), nl=False)
