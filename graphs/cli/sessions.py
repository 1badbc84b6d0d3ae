"""What the command line does to sessions without running them: fork, say something, stop."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..common.errors import SpecError
from ..sessions.fork import fork
from ..sessions.listing import stop_session
from ..sessions.say import say
from .terminal.again import Again
from .terminal.events import plain, stderr, stdout


def fork_session(
    session: str, again: Again, *, at: str | None, into: str | None, changes: dict[str, Any]
) -> None:
    """Make a new session out of another one, and say how it goes on.

    Args:
        session: The id of the session to go on from.
        again: Where it is kept.
        at: The id of the last message to keep. None: the newest one.
        into: The new session's id. None: made up.
        changes: What is other in the new one, as `graphs.sessions.fork` takes it.

    Raises:
        DuologueError: As in `graphs.sessions.fork.fork`.
    """
    new = fork(session, at=at, into=into, store=again.store, **changes)
    plain(stdout(), new)
    plain(stderr(), f"Go on with: {again.command('resume', new)}")


def changes_of(
    *,
    mode: str | None,
    max_iterations: int | None,
    task: str | None,
    speakers: Mapping[str, tuple[str, Sequence[str]]],
) -> dict[str, Any]:
    """Give the changes that a command's options stand for.

    Args:
        mode: The end-chat mode, if given.
        max_iterations: The cap, if given.
        task: The task, if given.
        speakers: For each option ``SPEAKER=…`` the field it is about and what was given.

    Returns:
        The changes, as `graphs.sessions.fork` takes them.

    Raises:
        SpecError: An option has no equals sign, or says two things of one speaker.
    """
    given = {"mode": mode, "max_iterations": max_iterations}
    end_chat = {name: value for name, value in given.items() if value is not None}
    changed: dict[str, dict[str, str]] = {}
    for option, (field, pairs) in speakers.items():
        for pair in pairs:
            name, sign, text = pair.partition("=")
            if not sign:
                raise SpecError(f"{option}: must be a speaker's name, = and the text, not {pair!r}")
            fields = changed.setdefault(name.strip(), {})
            if field in fields:
                raise SpecError(f"{option}: is given twice for {name.strip()!r}")
            fields[field] = text
    found = {"end_chat": end_chat or None, "task": task, "speakers": changed or None}
    return {name: value for name, value in found.items() if value is not None}


def stop(session: str, store: str | None) -> None:
    """Ask whoever runs a session to stop, and say so.

    Args:
        session: Its id.
        store: Where it is kept.

    Raises:
        DuologueError: As in `graphs.sessions.listing.stop_session`.
    """
    stop_session(session, store=store)
    plain(stdout(), f"Asked {session} to stop after its current turn.")


def say_as(session: str, speaker: str, text: str, again: Again) -> None:
    """Say something as one of the speakers of a session, and say how it goes on.

    Args:
        session: Its id.
        speaker: Who is to have said it.
        text: What is said.
        again: Where it is kept.

    Raises:
        DuologueError: As in `graphs.sessions.say.say`.
    """
    result = say(session, speaker, text, store=again.store)
    plain(stdout(), f"{speaker} has said it.")
    if result.outcome is not None:
        plain(stderr(), result.outcome.sentence())
    else:
        plain(stderr(), f"Go on with: {again.command('resume', session)}")
