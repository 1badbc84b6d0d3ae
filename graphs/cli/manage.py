"""The commands that list, delete, fork and export sessions.

Each command imports its modules inside its function, as in `graphs.cli.app`.
"""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from ..common.errors import SpecError
from ..session.export_formats import FORMATS, ExportFormat, check_format, check_log_name
from .options import (
    select_set,
)

_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def sessions(
    text: str | None = None,
    status: str | None = None,
    reason: str | None = None,
    batch: str | None = None,
    older_than: str | None = None,
    limit: Annotated[int | None, typer.Option(min=1)] = None,
    after: str | None = None,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """List the sessions, newest first.

    Options:
        text (TEXT): Only sessions with this text in their title or id.
        older_than (--older-than AGE): Only sessions whose latest run is at least this old, such as
            12h, 30d or 8w.
        reason (--reason REASON): Only sessions that ended for this reason, such as done_token.
        limit (--limit N): Maximum number of sessions. [default: 50; with --json: all]
        after (--after ID): Only sessions after the one with this id in the list.

    Examples:
        duologue sessions garden --status finished --limit 20
    """
    from ..session.listing import read_filter
    from .sessions import show_sessions

    chosen = read_filter(
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
    session: str | None = None,
    older_than: str | None = None,
    status: str | None = None,
    batch: str | None = None,
    dry_run: bool = False,
    yes: bool = False,
    store: str | None = None,
) -> None:
    """Delete a session with all its messages, or all old sessions.

    Options:
        session (SESSION): The session's id. Leave it out with --older-than.
        older_than (--older-than AGE): Delete all sessions whose latest run is at least this old,
            such as 12h, 30d or 8w. Running sessions are kept.
        dry_run (--dry-run): With --older-than: delete nothing, only count.
        yes (--yes): With --older-than: delete without asking first.

    Examples:
        duologue delete garden
        duologue delete --older-than 30d --status finished --dry-run
    """
    from ..session.listing import read_filter
    from .sessions import delete_old, delete_stored
    from .terminal.console import plain, stdout

    given = {"--status": status, "--batch": batch, "--dry-run": dry_run, "--yes": yes}
    if (session is None) is (older_than is None):
        raise SpecError(
            "SESSION or --older-than: exactly one of the two is needed; name a session, or pass an "
            "age such as 30d"
        )
    if session is None:
        chosen = read_filter(status=status, batch=batch, older_than=_read_age(older_than))
        delete_old(store, chosen, dry_run=dry_run, yes=yes)
        return
    for option, value in given.items():
        if value:
            raise SpecError(f"{option} works only with --older-than; leave it out")
    delete_stored(session, store)
    plain(stdout(), f"Deleted {session}.")


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


def fork(
    session: str,
    at: str | None = None,
    into: str | None = None,
    mode: str | None = None,
    max_iterations: int | None = None,
    task: str | None = None,
    prompt: list[str] | None = None,
    speaker_task: list[str] | None = None,
    speaker_model: list[str] | None = None,
    tools: list[str] | None = None,
    store: str | None = None,
) -> None:
    """Make a new session from any message of another session.

    The other session does not change. The new one has the same rules, apart from the options.
    Ends that are functions or other objects need Python: Session("ID").fork(end_chat=…).

    Options:
        at (--at MESSAGE): The id of the last message to keep, such as m0007. [default: the newest]
        into (--into ID): The new session's id. [default: made from SESSION]
        mode (--mode MODE): [default: unchanged]
        max_iterations (--max-iterations N): [default: unchanged]
        task (--task TEXT): A new task, used exactly as written.
        prompt (--prompt SPEAKER=TEXT): A new system prompt for a speaker. Repeatable.
        speaker_task (--speaker-task SPEAKER=TEXT): A new private task for a speaker. Repeatable.
        speaker_model (--speaker-model SPEAKER=NAME): A new model for a speaker. Repeatable.
        tools (--tools MODULE): A Python module with the session's tools, or one tool as
            MODULE:NAME. The printed command contains it. Repeatable.

    Examples:
        duologue fork garden --at m0004 --into other --max-iterations 9
    """
    from .sessions import open_session, print_next_command

    end_chat = select_set(mode=mode, max_iterations=max_iterations)
    speakers = _read_changes(
        ("--prompt", "system_prompt", prompt),
        ("--speaker-task", "task", speaker_task),
        ("--speaker-model", "model", speaker_model),
    )
    changes = select_set(end_chat=end_chat or None, task=task, speakers=speakers or None)
    new = open_session(session, store).fork(at=at, into=into, **changes)
    print_next_command(new, tools or ())


def _read_changes(*options: tuple[str, str, list[str] | None]) -> dict[str, dict[str, str]]:
    """Read options that set speakers' fields. Each has a name, a field and SPEAKER=TEXT pairs."""
    found: dict[str, dict[str, str]] = {}
    for option, field, pairs in options:
        for pair in pairs or []:
            name, sign, text = pair.partition("=")
            if not sign:
                raise SpecError(f"{option}: {pair!r} has no '='; write SPEAKER=TEXT")
            fields = found.setdefault(name.strip(), {})
            if field in fields:
                raise SpecError(f"{option}: {name.strip()!r} has two values; pass one")
            fields[field] = text
    return found


_FORMATS: Final = "; ".join(f"{name}, {purpose}" for name, purpose in FORMATS.items())


def export(
    session: str | None = None,
    batch: str | None = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help=f"For a session: {_FORMATS}. For a batch: jsonl (one object per session), "
            "openai, sharegpt or inspect. [default: markdown; for a batch: jsonl]",
        ),
    ] = None,
    speaker: str | None = None,
    reason: list[str] | None = None,
    status: str | None = None,
    score: list[str] | None = None,
    trial: int | None = None,
    no_metadata: bool = False,
    output: Path | None = None,
    store: str | None = None,
) -> None:
    """Export a session to read, or a batch as a data set.

    With --batch a manifest is written next to the file: its contents, its hash and the sessions
    that were left out.

    Options:
        session (SESSION): The session's id. Leave it out with --batch.
        batch (--batch BATCH): Export the sessions of this batch into one file.
        speaker (--as SPEAKER): Only the memory of this speaker. [default: the whole session; for
            openai and sharegpt: each speaker whose messages come from a model]
        reason (--reason REASON): With --batch: only sessions that ended for this reason.
            Repeatable.
        status (--status STATUS): With --batch: only sessions with this status: finished, failed,
            paused, waiting, running or any. [default: finished]
        score (--score COMPARISON): With --batch: only sessions whose score satisfies this
            comparison, as in 'won>=0.5'. Repeatable.
        trial (--trial N): With --batch: only trial N of each combination; the first is 1.
        no_metadata (--no-metadata): For openai and sharegpt: leave out duologue's own fields, which
            OpenAI's service refuses.

    Examples:
        duologue export garden --format html --output garden.html
    """
    chosen = select_set(reason=reason, score=score, trial=trial, status=status)
    options: dict[str, Any] = {"speaker": speaker, "metadata": not no_metadata}
    if batch is not None and session is None:
        from .run_batch import export_to

        export_to(batch, store, output, format=form or "jsonl", **options, **chosen)
        return
    if batch is not None or session is None:
        raise SpecError("name either a session or, with --batch, a batch")
    if chosen:
        raise SpecError(f"--{next(iter(chosen))} works only with --batch; leave it out")
    from .sessions import open_session, put

    one = cast(ExportFormat, form or "markdown")
    check_format(one)
    if one == "inspect" and output is not None:
        check_log_name(output, (".eval", ".json"))
    text = open_session(session, store).export(one, **options)
    if one == "inspect" and output is not None and output.suffix == ".eval":
        from ..common.files import write_file
        from ..session.export_inspect import pack_session

        write_file(output, pack_session(text))
        return
    put(text, output)


def show_page(session: str, speaker: str | None, store: str | None) -> None:
    """Open a session's page in the browser, or write it to a pipe or a file."""
    import webbrowser
    from tempfile import mkdtemp

    from .sessions import open_session, put
    from .terminal.console import on_screen, plain, stdout

    page = open_session(session, store).export("html", speaker=speaker)
    if not on_screen(stdout()):
        put(page, None)
        return
    # In a new private folder that is not deleted: the browser may read the file at any time.
    path = Path(mkdtemp(prefix="duologue-")) / f"{session}.html"
    put(page, path)
    webbrowser.open(path.as_uri())
    plain(stdout(), str(path))
