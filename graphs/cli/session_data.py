"""The commands of `duologue session`: dump, load, copy and reset a session or a speaker's memory.

Each command imports its modules inside its function, as in `graphs.cli.app`.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..common.errors import SpecError
from .options import add_commands

if TYPE_CHECKING:
    from ..session.session import Session as Handle


app = typer.Typer(
    help="Dump, load, copy or reset a session, or a speaker's memory.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


def dump(
    session: str,
    speaker: str | None = None,
    output: Path | None = None,
    store: str | None = None,
) -> None:
    """Write a session, or one speaker's memory of it, as JSON.

    Examples:
        duologue session dump garden --output garden.json
    """
    from .sessions import open_session, put

    handle = open_session(session, store)
    from ..common.sanitize import escape_json
    from ..session.session_row import check_speaker
    from ..speakers.reply_parts import write_message

    found: object
    if speaker is None:
        found = handle.dump()
    else:
        state = handle.state()
        check_speaker(session, state.conversation, speaker)
        found = [write_message(one) for one in state.memory(speaker)]
    put(escape_json(json.dumps(found, ensure_ascii=False, indent=2)) + "\n", output)


def load(
    file: Path,
    into: str | None = None,
    speaker: str | None = None,
    store: str | None = None,
) -> None:
    """Load a session or a memory that `duologue session dump` wrote.

    A session becomes a new session, which can be resumed. A memory replaces the memory of one
    speaker in a session; the other speakers' memories do not change.

    Options:
        file (FILE): A .json file that `duologue session dump` wrote.
        into (--into ID): [default: the id in the file]
        speaker (--as SPEAKER): The speaker that gets the memory. Required for a file that `dump
            --as` wrote.

    Examples:
        duologue session load garden.json --into copy-of-garden
    """
    from .sessions import print_next_command

    if speaker is None:
        from ..session.converse import load_session

        print_next_command(load_session(file, into=into, store=store))
        return
    receiver = _open_receiver(into, store)
    from ..common.files import read_file
    from ..speakers.reply_parts import read_messages

    receiver.set_memory(speaker, read_messages(read_file(file, json.loads), str(file)))
    print_next_command(receiver)


def _open_receiver(into: str | None, store: str | None) -> "Handle":
    """Return the handle of the session that --into names, whose speaker gets a memory."""
    if into is None:
        raise SpecError(
            "--into is missing; with --as, name the session whose speaker gets the memory"
        )
    from .sessions import open_session

    return open_session(into, store)


def reset(session: str, speaker: str | None = None, store: str | None = None) -> None:
    """Reset a session, or one speaker's memory, to the beginning.

    A session keeps its id and its rules. A speaker keeps the messages that it has not answered yet.

    Examples:
        duologue session reset garden
    """
    from .sessions import open_session, print_next_command

    handle = open_session(session, store)
    handle.reset(speaker=speaker)
    print_next_command(handle)


def copy(
    session: str,
    into: str | None = None,
    speaker: str | None = None,
    to: str | None = None,
    store: str | None = None,
) -> None:
    """Copy a session, or one speaker's memory.

    The copy is in the same store, or in another one with --to.

    Options:
        into (--into ID): [default: a new id; with --to: the same id]
        to (--to URL): The store of the copy. [default: the same store]

    Examples:
        duologue session copy garden --to sqlite:///backup.db
    """
    from .sessions import open_session, print_next_command

    handle = open_session(session, store)
    if speaker is None:
        print_next_command(handle.copy(into=into, to=to))
        return
    receiver = _open_receiver(into, to or store)
    receiver.set_memory(speaker, handle.state().memory(speaker))
    print_next_command(receiver)


add_commands(app, "", dump, load, copy, reset)
