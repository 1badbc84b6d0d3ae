"""Dumping and loading whole sessions. Copying a session does both."""

from ..build import build_graph
from ..store.open import Store
from ..store.rows import check_session_id
from .checkpoints import read_steps, reading_session, write_steps
from .dump import SessionDump, read_whole_dump, states_of
from .later_verdicts import read_verdicts, write_verdict
from .session_row import known_session, new_session


async def dump_session(store: Store, session: str) -> SessionDump:
    """Return the dump of a session."""
    conversation = await known_session(store, session)
    graph = build_graph(checkpointer=store.checkpointer)
    states = await read_steps(graph, session)
    verdicts = await read_verdicts(store, session)
    with reading_session(graph, session):
        return read_whole_dump(session, conversation, states, verdicts)


async def load_dump(store: Store, dump: SessionDump, into: str | None) -> str:
    """Write a dumped session to a store, and return its id."""
    session = check_session_id(into or dump.session)
    last = dump.steps[-1].outcome if dump.steps else None
    reason = None if last is None else last.reason.value
    async with new_session(store, session, dump.spec, reason) as held:
        await write_steps(build_graph(checkpointer=held.checkpointer), session, states_of(dump))
        for number, verdict in enumerate(dump.later_verdicts, 1):
            await write_verdict(held, number, verdict)
    return session
