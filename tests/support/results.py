"""How conversations ended."""

from duologue.graphs import Outcome
from duologue.graphs.session.stored_session import (
    StoredSession as StoredSession,
    make_session as make_session,
)


def outcome_of(result: StoredSession) -> Outcome:
    """Return the outcome of a conversation that has ended."""
    assert result.outcome is not None
    return result.outcome


def reason_of(result: StoredSession) -> str:
    """Return the name of the reason for which a conversation has ended."""
    return outcome_of(result).reason.value
