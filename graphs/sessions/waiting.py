"""The questions that a session waits with, compared before and after somebody waits for it."""

from collections.abc import Sequence

from ..common.errors import SessionError
from ..spec.questions import Question


def waits_for(questions: Sequence[Question], *, has_ended: bool = False) -> str:
    """Return the answers that a session waits for now, as the end of a sentence."""
    if has_ended:
        return "it has ended"
    if not questions:
        return "now it waits for no answer"
    return f"now it waits for an answer to {', '.join(repr(one.id) for one in questions)}"


def check_still_waits(session: str, before: Sequence[Question], now: Sequence[Question]) -> None:
    """Refuse to speak for somebody in a session that was answered or has asked meanwhile.

    Args:
        session: The session's id.
        before: The questions that waited at the call.
        now: The questions that wait now, while the session is held.

    Raises:
        SessionError: They are not the same.
    """
    if [one.id for one in before] != [one.id for one in now]:
        raise SessionError(
            f"Session {session!r} has gone on meanwhile, so nothing was said: {waits_for(now)}; "
            "read what it says, then say it again."
        )
