"""What `graphs.sessions.transfer` does with a store: sessions and memories, read and written."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from ..build import Graph, build_graph
from ..common.errors import SessionError
from ..common.settings import load_settings
from ..log.channels import log_of, update_of
from ..log.messages import place_of
from ..log.remembered import memory, remembered_by
from ..rules.position import Position
from ..spec.conversation import Conversation
from ..store.address import Held, Store, open_store
from ..store.rows import check_session_id
from .checkpoints import read_steps, settle, write_state, write_steps
from .dumps.dump import DUMP_VERSION, MemoryDump, SessionDump, states_of, whole
from .forgetting import forgetting
from .listing import known_store
from .session import aget_session, check_speaker, known_session, new_session
from .stored_state import reading_session


async def dumped(
    session: str, speaker: str | None, store: str | Path | None
) -> SessionDump | MemoryDump:
    """Read a session, or what one speaker remembers of it."""
    check_session_id(session)
    if speaker is not None:
        result = await aget_session(session, store=store)
        check_speaker(session, result.conversation, speaker)
        lines = (remembered_by(speaker, one) for one in memory(result.messages, speaker))
        return MemoryDump(
            format="duologue.memory",
            version=DUMP_VERSION,
            session=session,
            speaker=speaker,
            lines=tuple(lines),
        )
    async with known_store(store) as opened:
        conversation = await known_session(opened, session)
        graph = build_graph(checkpointer=opened.checkpointer)
        states = await read_steps(graph, session)
        with reading_session(graph, session):
            return whole(session, conversation, states)


async def load_whole(dump: SessionDump, session: str, store: str | Path | None) -> str:
    """Write a whole session."""
    target = store or (await asyncio.to_thread(load_settings)).store
    last = dump.steps[-1].outcome if dump.steps else None
    async with open_store(target) as opened:
        reason = None if last is None else last.reason.value
        async with new_session(opened, session, dump.spec, reason) as held:
            await write_steps(build_graph(checkpointer=held.checkpointer), session, states_of(dump))
    return session


async def begin_anew(session: str, store: str | Path | None) -> None:
    """Delete what a session holds, but not the session."""
    async with _held(session, store) as held:
        # The state goes first: a kill in between leaves an end without one, which begins anew too.
        await held.writable.checkpointer.adelete_thread(session)
        await held.writable.reopen()


async def replace_memory(
    session: str, speaker: str, store: str | Path | None, dump: MemoryDump | None
) -> None:
    """Replace a speaker's memory, or reset it."""
    async with _held(session, store) as held:
        check_speaker(session, held.conversation, speaker)
        state = await settle(held.graph, session, held.conversation)
        if "position" not in state:
            if dump is None:
                return
            raise SessionError(
                f"Session {session!r} has not begun: nobody in it has a memory to replace yet."
            )
        position = Position.model_validate(state["position"])
        log = log_of(state)
        new = forgetting(held.conversation, position, log, speaker, dump)
        written = update_of(new, log)
        written["position"] = state["position"]
        decided = state.get("decisions")
        if decided:
            # They are of the newest message, whose place may be another one now.
            written["decisions"] = {**decided, "message": place_of(new[-1])}
        await write_state(held.graph, session, written)
        row = await held.store.get(session)
        if row is not None and row.status == "waiting":
            # Its question is asked anew.
            await held.writable.reopen()


class _Opened(NamedTuple):
    """A session that nobody else runs meanwhile."""

    store: Store
    writable: Held
    graph: Graph
    conversation: Conversation


@asynccontextmanager
async def _held(session: str, store: str | Path | None) -> AsyncIterator[_Opened]:
    check_session_id(session)
    async with known_store(store) as opened, opened.lock(session) as held:
        conversation = await known_session(opened, session)
        yield _Opened(opened, held, build_graph(checkpointer=held.checkpointer), conversation)
