"""The row of a session in a store: adding it and reading it."""

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage

from ...nodes.models.model import Models
from ...nodes.turn.node_context import Resources
from ...nodes.turn.prompt import last_prompt
from ...tools.registry.registry import Registry
from ...tools.sandbox import sandbox
from ..build import Graph, build_graph
from ..common.errors import SessionError, SpecError, list_names
from ..conversation.conversation import Conversation, write_conversation
from ..conversation.usage import Usage, add_usage, read_usage
from ..log.state import State
from ..rules.position import Position
from ..store.errors import taken_session, unknown_session
from ..store.open import SessionLease, Store
from ..store.rows import SessionRow, reading_store
from .checkpoints import (
    check_state,
    config_of,
    read_snapshot,
    read_states,
    reading_session,
    stored_conversation,
)
from .questions import find_open_questions
from .stored_session import StoredSession, make_session, read_verdicts

_LONGEST: Final = 128  # maximum length of a session's id, in characters


@asynccontextmanager
async def new_session(
    store: Store,
    session: str,
    conversation: Conversation,
    ended: str | None,
    origin: SessionRow | None = None,
) -> AsyncIterator[SessionLease]:
    """Add a session whose state is written inside the block.

    The row is written last, so the session does not exist for others until the block has ended.
    """
    async with store.lock(session) as held:
        if await store.get(session) is not None:
            raise taken_session(session, store.url)
        # A process that was killed in this block leaves a state and verdicts without a row.
        await held.checkpointer.adelete_thread(session)
        await held.delete_verdicts()
        yield held
        spec = write_conversation(conversation)
        forked = {} if origin is None else {"forked_from": origin.session, "tools": origin.tools}
        await held.add(title=title_of(conversation), spec=spec, **forked)
        if ended is not None:
            await held.finish(ended)


def new_session_id(session: str, word: str) -> str:
    """Return a new id for a session that is made from another one."""
    ending = f"-{word}-{secrets.token_hex(6)}"
    return session[: _LONGEST - len(ending)] + ending


async def known_row(store: Store, session: str) -> SessionRow:
    """Return the row of a session, and raise if the session does not exist."""
    row = await store.get(session)
    if row is None:
        raise unknown_session(session, store.url)
    return row


async def known_session(store: Store, session: str) -> Conversation:
    """Return the spec of a session, and raise if the session does not exist."""
    return stored_conversation(await known_row(store, session), store.url)


def check_speaker(session: str, conversation: Conversation, name: str) -> None:
    """Raise if no speaker of a session has this name."""
    if name not in conversation.names:
        names = list_names(conversation.names)
        raise SpecError(
            f"no speaker in session {session!r} is called {name!r}; choose one of {names}"
        )


async def read_stored_session(store: Store, session: str) -> StoredSession:
    """Read a session, or the inner session with this id, and raise if it does not exist."""
    if (inner := await find_inner_session(store, session)) is not None:
        return inner
    conversation = await known_session(store, session)
    graph = build_graph(checkpointer=store.checkpointer)
    found = await read_session(session, conversation, graph)
    return replace(found, later_verdicts=await read_verdicts(store, session))


async def find_inner_session(store: Store, session: str) -> StoredSession | None:
    """Find the session of an inner conversation in the session that contains it.

    Returns:
        The inner session. None if no session contains one with this id.
    """
    outer, dot, _ = session.rpartition(".")
    if not dot or not outer or await store.get(session) is not None:
        return None
    found = await find_inner_session(store, outer)
    if found is None:
        if await store.get(outer) is None:
            return None
        found = await read_stored_session(store, outer)
    with reading_store(store.url, outer):
        return found.inner_sessions.get(session)


async def read_session(session: str, conversation: Conversation, graph: Graph) -> StoredSession:
    """Read a session from a graph's checkpointer."""
    with reading_session(graph, session):
        state = await read_snapshot(graph, session)
        pending = await find_open_questions(graph, session, state)
        check_state(session, conversation, cast("State", state.values))
        errors = (str(task.error) for task in state.tasks if task.error is not None)
        return make_session(session, conversation, state.values, pending, next(errors, None))


async def _newest_values(store: Store, session: str) -> Mapping[str, Any]:
    """Read the values in a session's newest checkpoint alone, which contains no log."""
    found = await store.checkpointer.aget_tuple(config_of(session))
    return found.checkpoint["channel_values"] if found else {}


async def count_messages(store: Store, session: str) -> int | None:
    """Count a session's messages without reading the log.

    Returns:
        The number of messages since the session began or was reopened. None if no position is
        stored yet.
    """
    position = (await _newest_values(store, session)).get("position")
    if not position:
        return None
    with reading_store(store.url, session):
        return Position.model_validate(position).facts.messages


async def read_total_usage(store: Store, session: str) -> Usage:
    """Return the usage of all calls of a session."""
    values = await _newest_values(store, session)
    with reading_store(store.url, session):
        return add_usage(read_usage(values).values())


async def discard_session(store: Store, session: str) -> None:
    """Delete a session that need not have ended, and close its interpreter."""
    if interpreter := (await _newest_values(store, session)).get("interpreter"):
        await sandbox.close(interpreter["key"])
    with suppress(SessionError):
        await store.delete(session)


def title_of(conversation: Conversation) -> str:
    """Return the title that lists of sessions show: the conversation's title, or else a task."""
    speakers = conversation.speakers
    own = next((speaker.task for speaker in speakers if speaker.task), None)
    first = next((speaker.first_message for speaker in speakers if speaker.first_message), None)
    return conversation.title or conversation.task or own or first or "session"


async def read_prompt(
    store: Store, session: str, speaker: str, registry: Registry
) -> list[BaseMessage]:
    """Rebuild the prompt that was sent to a speaker's model in the speaker's newest turn."""
    conversation = await known_session(store, session)
    check_speaker(session, conversation, speaker)
    states = await read_states(build_graph(checkpointer=store.checkpointer), session)
    resources = Resources(Models(), registry, allow_host=True, allow_paths=True)
    prompt = await last_prompt(states, resources, speaker)
    if prompt is None:
        raise SessionError(f"No model has spoken for {speaker!r} in session {session!r} yet.")
    return prompt
