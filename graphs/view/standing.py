"""Where a session stands, as its page shows it beside what was said."""

from typing import Literal

from ..common.data import Data
from ..page.gather import Session
from ..spec.questions import Question
from ..store.address import Store
from ..store.rows import SessionRow

Status = Literal["running", "waiting", "unfinished", "finished"]


class Standing(Data):
    """Where a session stands, and what can be done about it."""

    session: str
    """Its id."""
    status: Status
    """Whether somebody runs it, or how it was left."""
    reason: str = ""
    """Why it ended."""
    is_stopping: bool = False
    """Whether it was asked to stop and still runs."""
    questions: tuple[Question, ...] = ()
    """What it waits for, where it can be answered here."""
    problem: str = ""
    """What went wrong with what was asked of it here."""

    @property
    def can_stop(self) -> bool:
        """Whether there is something to stop."""
        return self.status in ("running", "waiting") and not self.is_stopping


async def status_of(store: Store, row: SessionRow) -> Status:
    """Say whether somebody runs a session, or how it was left."""
    return "running" if await store.is_locked(row.session) else row.status


def standing_of(row: SessionRow, status: Status, session: Session, problem: str) -> Standing:
    """Put together where a session stands."""
    is_running = status == "running"
    return Standing(
        session=row.session,
        status=status,
        reason=row.reason or "",
        is_stopping=is_running and row.stop_requested,
        # Whoever runs it is asked there.
        questions=() if is_running else tuple(session.pending),
        problem=problem,
    )
