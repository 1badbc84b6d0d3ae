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
    """Make a new session out of another one, and say how it goes on."""
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
    """Give the changes that a command's options stand for."""
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
    """Ask whoever runs a session to stop, and say so."""
    stop_session(session, store=store)
    plain(stdout(), f"Asked {session} to stop after its current turn.")


def say_as(session: str, speaker: str, text: str, again: Again) -> None:
    """Say something as one of the speakers of a session, and say how it goes on."""
    result = say(session, speaker, text, store=again.store)
    plain(stdout(), f"{speaker} has said it.")
    if result.outcome is not None:
        plain(stderr(), result.outcome.sentence())
    else:
        plain(stderr(), f"Go on with: {again.command('resume', session)}")
