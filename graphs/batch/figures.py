"""What a cell's row tells of its session, read from the session's newest state."""

from datetime import UTC, datetime
from typing import Any, cast

from ..build import build_graph
from ..log.state import State
from ..rules.outcome import Outcome
from ..rules.position import Position
from ..sessions.checkpoints import config_of, still_open
from ..sessions.stored_session import StoredSession
from ..sessions.stored_state import reading_session, stored_conversation
from ..spec.conversation import Conversation
from ..spec.usage import Usage, total, used_so_far
from ..store.address import Store
from ..store.batches import CellRow, CellStatus
from .cells import Cell


def new_row(batch: str, cell: Cell) -> CellRow:
    """Make the row of a cell that begins now."""
    return CellRow(
        batch=batch,
        number=cell.number,
        session=cell.session,
        trial=cell.trial,
        varied=dict(cell.varied),
        updated_at=datetime.now(UTC),
    )


async def read_result(store: Store, session: str) -> tuple[StoredSession, dict[str, Any]] | None:
    """Read a session and its figures; None where there is no such session."""
    row = await store.get(session)
    if row is None:
        return None
    conversation = stored_conversation(row, store.url)
    graph = build_graph(checkpointer=store.checkpointer)
    with reading_session(graph, session):
        state = await graph.aget_state(config_of(session))
        pending = await still_open(graph, config_of(session), state)
        result = StoredSession.of(session, conversation, state.values, pending)
        if result.outcome is not None:
            return result, figures_of(result.outcome)
        return result, _so_far(conversation, cast("State", state.values))


def figures_of(outcome: Outcome) -> dict[str, Any]:
    """Give the figures of a session that has ended: its outcome holds them all."""
    return {
        "reason": outcome.reason.value,
        "complete": outcome.complete,
        "rounds": outcome.rounds,
        "messages": outcome.messages,
        "seconds": outcome.seconds,
        **_used(outcome.total),
    }


def _so_far(conversation: Conversation, state: State) -> dict[str, Any]:
    position = Position.model_validate(state.get("position") or {})
    return {
        "rounds": position.rounds(conversation),
        "messages": position.facts.messages,
        "seconds": position.facts.seconds,
        **_used(total(used_so_far(state).values())),
    }


def _used(used: Usage) -> dict[str, Any]:
    return used.model_dump(include={"calls", "input_tokens", "output_tokens", "cost"})


def status_of(result: StoredSession) -> CellStatus:
    """Tell from a session that was run whether it has ended, or what it waits for."""
    if result.outcome is not None:
        return "finished"
    return "waiting" if result.pending else "paused"
