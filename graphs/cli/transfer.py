"""The commands that fork, dump, load, reset, copy and export sessions.

What they need is imported inside them, as in `graphs.cli.app`.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ..common.errors import SpecError
from ..session.export_formats import FORMATS, ExportFormat
from .options import OutputOption, Session, SpeakerOption, StoreOption, cap_option, mode_option

if TYPE_CHECKING:
    from ..session.session import Session as Handle


def fork(
    session: Session,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="MESSAGE",
            help="The place of the last message to keep, such as m0007. [default: the newest]",
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The new session's id. [default: made from SESSION]"),
    ] = None,
    mode: Annotated[str | None, mode_option("as it was")] = None,
    max_iterations: Annotated[int | None, cap_option("as it was")] = None,
    task: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The task from there on, as it is given.")
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(metavar="SPEAKER=TEXT", help="A speaker's system prompt from there on."),
    ] = None,
    speaker_task: Annotated[
        list[str] | None,
        typer.Option(metavar="SPEAKER=TEXT", help="A speaker's own task from there on."),
    ] = None,
    speaker_model: Annotated[
        list[str] | None,
        typer.Option(metavar="SPEAKER=NAME", help="What speaks for a speaker from there on."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Make a new session that goes on from any message of another one.

    The other one stays as it is. Without options the new one goes on by the same rules.
    """
    from ..session.session import Session as Handle

    end_chat = {"mode": mode, "max_iterations": max_iterations}
    speakers = _by_speaker(
        ("--prompt", "system_prompt", prompt),
        ("--speaker-task", "task", speaker_task),
        ("--speaker-model", "model", speaker_model),
    )
    changes = _given({"end_chat": _given(end_chat), "task": task, "speakers": speakers})
    new = Handle(session, store=store).fork(at=at, into=into, **changes)
    _say_how_to_go_on(new)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value not in (None, {})}


def _by_speaker(*options: tuple[str, str, list[str] | None]) -> dict[str, dict[str, str]]:
    """Read what options say of speakers: for each option its name, the field and the pairs."""
    found: dict[str, dict[str, str]] = {}
    for option, field, pairs in options:
        for pair in pairs or []:
            name, sign, text = pair.partition("=")
            if not sign:
                raise SpecError(f"{option}: must be a speaker's name, = and the text, not {pair!r}")
            fields = found.setdefault(name.strip(), {})
            if field in fields:
                raise SpecError(f"{option}: is given twice for {name.strip()!r}")
            fields[field] = text
    return found


def dump(
    session: Session,
    speaker: SpeakerOption = None,
    output: OutputOption = None,
    store: StoreOption = None,
) -> None:
    """Write a session, or one speaker's memory of it, as JSON."""
    from ..common.sanitize import escape_json
    from ..session.session import Session as Handle
    from ..session.session_row import check_speaker
    from ..speakers.private_messages import write_message

    handle = Handle(session, store=store)
    found: object
    if speaker is None:
        found = handle.dump()
    else:
        state = handle.state()
        check_speaker(session, state.conversation, speaker)
        found = [write_message(one) for one in state.memory(speaker)]
    _put(escape_json(json.dumps(found, ensure_ascii=False, indent=2)) + "\n", output)


def load(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A .json file that `duologue dump` wrote.")
    ],
    into: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The new session's id. [default: the one it had] For a speaker's memory: the "
            "session it goes into.",
        ),
    ] = None,
    speaker: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="SPEAKER",
            help="The speaker whose memory it becomes; needed for a file of --as.",
        ),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Load what `duologue dump` wrote, on this machine or another.

    A whole session becomes a new one, which goes on where it was. A speaker's memory
    replaces a speaker's in another session; only what that speaker sees changes.
    """
    from ..common.files import read_file
    from ..session.loading import load_session
    from ..session.session import Session as Handle
    from ..speakers.private_messages import read_messages

    if speaker is None:
        _say_how_to_go_on(load_session(file, into=into, store=store))
        return
    if into is None:
        raise SpecError("--into: is missing: name the session whose speaker is to remember it")
    messages = read_messages(read_file(file, json.loads), str(file))
    handle = Handle(into, store=store)
    handle.set_memory(speaker, messages)
    _say_how_to_go_on(handle)


def reset(session: Session, speaker: SpeakerOption = None, store: StoreOption = None) -> None:
    """Set a session, or one speaker's memory, back to the beginning.

    A session keeps its id and its conversation. A speaker keeps what it has not answered yet.
    """
    from ..session.session import Session as Handle

    handle = Handle(session, store=store)
    handle.reset(speaker=speaker)
    _say_how_to_go_on(handle)


def copy(
    session: Session,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The copy's id. [default: the same in another store, else made from SESSION] For "
            "a speaker's memory: the session it goes into.",
        ),
    ] = None,
    speaker: SpeakerOption = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The store that the copy goes into. [default: the same]"),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Copy a session, or one speaker's memory.

    The copy goes into the same store, or into another one.
    """
    from ..session.session import Session as Handle

    handle = Handle(session, store=store)
    if speaker is None:
        _say_how_to_go_on(handle.copy(into=into, to=to))
        return
    if into is None:
        raise SpecError("--into: is missing: name the session whose speaker is to remember it")
    receiver = Handle(into, store=to or store)
    receiver.set_memory(speaker, handle.state().memory(speaker))
    _say_how_to_go_on(receiver)


def _list_formats() -> str:
    return "; ".join(f"{name}, {row.purpose}" for name, row in FORMATS.items())


def export(
    session: Annotated[
        str | None, typer.Argument(metavar="SESSION", help="The session's id.")
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(metavar="BATCH", help="All sessions of this batch, into one file."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help=f"Of a session: {_list_formats()}. Of a batch: jsonl, one object a session, or "
            "openai or sharegpt. [default: markdown; of a batch: jsonl]",
        ),
    ] = None,
    speaker: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="SPEAKER",
            help="What this speaker remembers or sees only. [default: the whole session; openai "
            "and sharegpt: each speaker for whom a model speaks]",
        ),
    ] = None,
    reason: Annotated[
        list[str] | None,
        typer.Option(metavar="REASON", help="Of a batch: only what ended so; repeatable."),
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS",
            help="Of a batch: only sessions that are finished, failed, paused, waiting or running, "
            "or any. [default: finished]",
        ),
    ] = None,
    score: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMPARISON",
            help="Of a batch: only sessions with such a score, as in 'won>=0.5'; repeatable.",
        ),
    ] = None,
    trial: Annotated[
        int | None,
        typer.Option(metavar="N", help="Of a batch: only this trial of each combination."),
    ] = None,
    no_metadata: Annotated[
        bool,
        typer.Option(
            "--no-metadata",
            help="In openai and sharegpt: only what the format itself has, as OpenAI's own service "
            "wants it.",
        ),
    ] = False,
    output: OutputOption = None,
    store: StoreOption = None,
) -> None:
    """Write out a session, or a batch as a data set.

    Beside the file of a batch stands its manifest: what is in it, its hash, what was left out.
    """
    chosen = _given({"reason": reason, "score": score, "trial": trial, "status": status})
    options: dict[str, Any] = {"speaker": speaker, "metadata": not no_metadata}
    if batch is not None and session is None:
        from .export_batch import export_to

        export_to(batch, store, output, format=form or "jsonl", **options, **chosen)
        return
    if batch is not None or session is None:
        raise SpecError("give either SESSION or --batch BATCH")
    if chosen:
        raise SpecError(f"--{next(iter(chosen))} is for --batch: leave it out")
    from ..session.session import Session as Handle

    one = cast(ExportFormat, form or "markdown")
    _put(Handle(session, store=store).export(one, **options), output)


def show_page(session: str, speaker: str | None, store: str | None) -> None:
    """Show a session in the browser, or write its page to a pipe or a file."""
    import webbrowser
    from tempfile import mkdtemp

    from ..session.session import Session as Handle
    from .terminal.console import on_screen, plain, stdout

    page = Handle(session, store=store).export("html", speaker=speaker)
    if not on_screen(stdout()):
        _put(page, None)
        return
    # In a folder of the user's own, where it stays: the browser may read it at any time.
    path = Path(mkdtemp(prefix="duologue-")) / f"{session}.html"
    _put(page, path)
    webbrowser.open(path.as_uri())
    plain(stdout(), str(path))


def _say_how_to_go_on(session: "Handle") -> None:
    from .terminal.console import plain, stderr, stdout
    from .terminal.follow_up import FollowUp

    plain(stdout(), session.id)
    store = None if session.store is None else str(session.store)
    if session.state().outcome is None:
        plain(stderr(), FollowUp(store).hint(session.id))
    else:
        # A fork of it at its end, by the same rules, would have ended, too.
        say = FollowUp(store).command("say", session.id, arguments=("SPEAKER", "TEXT"))
        plain(stderr(), f"It has ended; go on with: {say}")


def _put(text: str, output: Path | None) -> None:
    from ..common.sanitize import clean
    from .terminal.console import on_screen, stdout

    if output is not None:
        try:
            output.write_bytes(text.encode())
        except OSError as error:
            raise SpecError(f"{output}: can't be written: {error.strerror or error}") from error
    elif on_screen(stdout()):
        typer.echo(clean(text), nl=False)
    else:
        # In UTF-8 like a file, whatever the terminal's encoding is.
        typer.echo(text.encode(), nl=False)
