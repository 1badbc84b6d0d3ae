"""Dumping, loading and copying sessions, and resetting or replacing a memory.

A speaker's memory is what it has said and heard in one log. A reset or a replacement changes what
that speaker sees, and no message.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from langchain_core.messages import AnyMessage

from ..build import Graph, build_graph
from ..common.errors import SessionError
from ..conversation.conversation import Conversation
from ..log.messages import place_of
from ..log.state import log_of, update_of
from ..rules.position import Position
from ..store.open import SessionLease, Store
from ..store.rows import check_session_id
from .checkpoints import read_steps, reading_session, settle, write_state, write_steps
from .dump import SessionDump, read_whole_dump, states_of
from .memory_reset import forgetting
from .session_row import check_speaker, known_session, new_session


async def dump_session(store: Store, session: str) -> SessionDump:
    """Read a whole session."""
    conversation = await known_session(store, session)
    graph = build_graph(checkpointer=store.checkpointer)
    states = await read_steps(graph, session)
    with reading_session(graph, session):
        return read_whole_dump(session, conversation, states)


async def load_dump(store: Store, dump: SessionDump, into: str | None) -> str:
    """Write a whole session, and return its id."""
    session = check_session_id(into or dump.session)
    last = dump.steps[-1].outcome if dump.steps else None
    reason = None if last is None else last.reason.value
    async with new_session(store, session, dump.spec, reason) as held:
        await write_steps(build_graph(checkpointer=held.checkpointer), session, states_of(dump))
    return session


async def begin_anew(store: Store, session: str) -> None:
    """Delete what a session holds, but not the session."""
    async with _held(store, session) as held:
        # The state goes first: a kill in between leaves an end without one, which begins anew too.
        await held.writable.checkpointer.adelete_thread(session)
        await held.writable.reopen()


async def replace_memory(
    store: Store, session: str, speaker: str, messages: Sequence[AnyMessage] = ()
) -> None:
    """Replace a speaker's memory by messages, or reset it if there are none."""
    async with _held(store, session) as held:
        check_speaker(session, held.conversation, speaker)
        state = await settle(held.graph, session, held.conversation)
        if "position" not in state:
            if not messages:
                return
            raise SessionError(
                f"Session {session!r} has not begun: nobody in it has a memory to replace yet."
            )
        position = Position.model_validate(state["position"])
        log = log_of(state)
        new = forgetting(held.conversation, position, log, speaker, messages)
        written = update_of(new, log)
        written["position"] = state["position"]
        decided = state.get("decisions")
        if decided:
            # They are of the newest message, whose place may be another one now.
            written["decisions"] = {**decided, "message": place_of(new[-1])}
        await write_state(held.graph, session, written)
        row = await store.get(session)
        if row is not None and row.status == "waiting":
            # Its question is asked anew.
            await held.writable.reopen()


class _Opened(NamedTuple):
    """A session that nobody else runs meanwhile."""

    writable: SessionLease
    graph: Graph
    conversation: Conversation


@asynccontextmanager
async def _held(store: Store, session: str) -> AsyncIterator[_Opened]:
    async with store.lock(session) as held:
        conversation = await known_session(store, session)
        yield _Opened(held, build_graph(checkpointer=held.checkpointer), conversation)
