"""The commands that list and delete sessions.

Each command imports its modules inside its function, as in `graphs.cli.app`.
"""

import re
from datetime import timedelta
from typing import Annotated, Any, Final

import typer

from ..common.errors import SpecError
from .options import Json, StoreOption

_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

_Status = Annotated[
    str | None,
    typer.Option(
        metavar="STATUS",
        help="Only sessions with this status: running, waiting, unfinished or finished.",
    ),
]
_Batch = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only the sessions of this batch.")
]
_OlderThan = Annotated[
    str | None,
    typer.Option(
        metavar="AGE",
        help="Only sessions whose latest run is at least this old, such as 12h, 30d or 8w.",
    ),
]


def sessions(
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="Only sessions with this text in their title or id."),
    ] = None,
    status: _Status = None,
    reason: Annotated[
        str | None,
        typer.Option(
            metavar="REASON", help="Only sessions that ended for this reason, such as done_token."
        ),
    ] = None,
    batch: _Batch = None,
    older_than: _OlderThan = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Maximum number of sessions. [default: 50; with --json: all]",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only sessions after the one with this id in the list."),
    ] = None,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """List the sessions, newest first."""
    from .sessions import show_sessions

    chosen = _filter(
        text=text or "",
        status=status,
        reason=reason,
        batch=batch,
        older_than=_read_age(older_than),
        after=after,
        limit=limit,
    )
    show_sessions(store, chosen, as_json=as_json)


def delete(
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="The session's id. Leave it out with --older-than."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="AGE",
            help="Delete all sessions whose latest run is at least this old, such as 12h, 30d or "
            "8w. Running sessions are kept.",
        ),
    ] = None,
    status: _Status = None,
    batch: _Batch = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With --older-than: delete nothing, only count."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --older-than: delete without asking first.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Delete a session with all its messages, or all old sessions."""
    from .sessions import delete_old, delete_stored
    from .terminal.console import plain, stdout

    given = {"--status": status, "--batch": batch, "--dry-run": dry_run, "--yes": yes}
    if (session is None) is (older_than is None):
        raise SpecError(
            "SESSION or --older-than: exactly one of the two is needed; name a session, or pass an "
            "age such as 30d"
        )
    if session is None:
        chosen = _filter(status=status, batch=batch, older_than=_read_age(older_than))
        delete_old(store, chosen, dry_run=dry_run, yes=yes)
        return
    for option, value in given.items():
        if value:
            raise SpecError(f"{option} works only with --older-than; leave it out")
    delete_stored(session, store)
    plain(stdout(), f"Deleted {session}.")


def _filter(**fields: Any) -> Any:  # noqa: ANN401  # the class is imported here
    from ..session.listing import read_filter

    return read_filter(**fields)


def _read_age(text: str | None) -> timedelta | None:
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6})([mhdw])", text.strip().lower())
    if found is None:
        raise SpecError(
            f"--older-than: {text!r} is not an age; write a number and a unit, as in 90m, 12h, "
            "30d or 8w"
        )
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
