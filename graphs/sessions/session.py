"""One session of a store: adding it, and what it holds."""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

from ..build import Graph, build_graph
from ..common.background import in_background
from ..common.errors import SpecError
from ..common.validation import listing
from ..log.state import State
from ..spec.conversation import Conversation
from ..store.address import Held, Store
from ..store.errors import taken_session, unknown_session
from ..store.rows import check_session_id
from .checkpoints import config_of, still_open
from .listing import known_store
from .result import Result
from .stored_state import check_state, reading_session, stored_conversation

_LONGEST: Final = 128  # the characters of a session's id


@asynccontextmanager
async def new_session(
    store: Store, session: str, conversation: Conversation, ended: str | None
) -> AsyncIterator[Held]:
    """Add a session whose state is written inside the block.

    Nobody knows of it until the block has ended: the row goes last.
    """
    async with store.lock(session) as held:
        if await store.get(session) is not None:
            raise taken_session(session, store.url)
        # What was killed half-way leaves a state that no row knows.
        await held.checkpointer.adelete_thread(session)
        yield held
        spec = json.dumps(conversation.stored(), ensure_ascii=False)
        await held.add(title=title_of(conversation), spec=spec)
        if ended is not None:
            await held.finish(ended)


def made_up_id(session: str, word: str) -> str:
    """Make up the id of a session that comes from another one."""
    ending = f"-{word}-{secrets.token_hex(3)}"
    return session[: _LONGEST - len(ending)] + ending


async def known_session(store: Store, session: str) -> Conversation:
    """Read the spec of a session that must be there."""
    row = await store.get(session)
    if row is None:
        raise unknown_session(session, store.url)
    return stored_conversation(row, store.url)


def check_speaker(session: str, conversation: Conversation, name: str) -> None:
    """Refuse a name that nobody in a session has."""
    if name not in conversation.names:
        names = listing(conversation.names)
        raise SpecError(f"nobody in session {session!r} is called {name!r}; there are {names}")


async def aget_session(session: str, *, store: str | Path | None = None) -> Result:
    """Read what a session holds, without running it.

    Args:
        session: The session's id.
        store: Where sessions are kept. None: the setting, else the user's data folder.

    Returns:
        The session as it stands; its outcome is None while it has not ended.

    Raises:
        SessionError: There is no such session.
        StoreError: The store can't be opened or read.
    """
    check_session_id(session)
    async with known_store(store) as opened:
        conversation = await known_session(opened, session)
        graph = build_graph(checkpointer=opened.checkpointer)
        return await read_session(session, conversation, graph)


get_session = in_background(aget_session)


async def read_session(session: str, conversation: Conversation, graph: Graph) -> Result:
    """Read what a graph's checkpointer holds of a session."""
    with reading_session(graph, session):
        state = await graph.aget_state(config_of(session))
        pending = await still_open(graph, config_of(session), state)
        check_state(session, conversation, cast("State", state.values))
        return Result.of(session, conversation, state.values, pending)


def title_of(conversation: Conversation) -> str:
    """Give what lists of sessions show of a conversation: its title, else a task."""
    speakers = conversation.speakers
    own = next((speaker.task for speaker in speakers if speaker.task), None)
    first = next((speaker.first_message for speaker in speakers if speaker.first_message), None)
    return conversation.title or conversation.task or own or first or "session"
