"""Resetting a session, and resetting or replacing one speaker's memory.

A speaker's memory is the messages of the log that the speaker has said or heard. A reset or a
replacement changes no message. `graphs.log.memory` leaves the forgotten messages out of the
speaker's memory.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage

from ..build import Graph, build_graph
from ..common.errors import SessionError
from ..conversation.conversation import Conversation
from ..log.memory import memory, private_lines, told_privately
from ..log.messages import make_message, metadata, place_of
from ..log.metadata import NOBODY, MemoryReset, Reflection, Speech
from ..log.state import log_of, update_of
from ..log.viewpoint import memory_messages
from ..prompts import prompts
from ..rules.position import Position
from ..rules.transitions import first_read
from ..store.open import SessionLease, Store
from .checkpoints import settle, write_state
from .fork import insert_message
from .session_row import check_speaker, known_session


async def begin_anew(store: Store, session: str) -> None:
    """Delete everything that a session contains, but keep the session."""
    async with _lease_session(store, session) as held:
        # The state is deleted first: a kill before the next line leaves a finished session without
        # a state, which also starts from the beginning.
        await held.writable.checkpointer.adelete_thread(session)
        await held.writable.delete_verdicts()
        await held.writable.reopen()


async def replace_memory(
    store: Store, session: str, speaker: str, messages: Sequence[AnyMessage] = ()
) -> None:
    """Replace a speaker's memory with messages. Without messages, reset it."""
    async with _lease_session(store, session) as held:
        check_speaker(session, held.conversation, speaker)
        state = await settle(held.graph, session, held.conversation)
        if "position" not in state:
            if not messages:
                return
            raise SessionError(
                f"Session {session!r} has not begun, so its speakers have no memory to replace; "
                "resume it first."
            )
        position = Position.model_validate(state["position"])
        log = log_of(state)
        new = _reset_memory(held.conversation, position, log, speaker, messages)
        written = update_of(new, log)
        written["position"] = state["position"]
        decided = state.get("decisions")
        if decided:
            # The decisions belong to the newest message, whose place may have changed.
            written["decisions"] = {**decided, "message": place_of(new[-1])}
        await write_state(held.graph, session, written)
        row = await store.get(session)
        if row is not None and row.status == "waiting":
            # The question of the waiting session is asked again.
            await held.writable.reopen()


class _Opened(NamedTuple):
    """A session under its lease, with its graph and its conversation."""

    writable: SessionLease
    graph: Graph
    conversation: Conversation


@asynccontextmanager
async def _lease_session(store: Store, session: str) -> AsyncIterator[_Opened]:
    async with store.lock(session) as held:
        conversation = await known_session(store, session)
        yield _Opened(held, build_graph(checkpointer=held.checkpointer), conversation)


def _reset_memory(
    conversation: Conversation,
    position: Position,
    log: list[AnyMessage],
    name: str,
    messages: Sequence[AnyMessage] = (),
) -> list[AnyMessage]:
    """Return the new end of the log, which resets a speaker's memory or replaces it with messages.

    The speaker forgets everything up to its latest finished turn, including that turn. It keeps the
    messages that it has heard since, so that it can answer them.
    """
    place = first_read(position.phase, log)
    first = _place_after_turn(log[:place], name)
    since = place_of(log[first]) if first < place else None
    about = MemoryReset(speaker=name, audience=NOBODY, since=since)
    new = [make_message(0, "", about)]
    kept = memory_messages(conversation, log[first:place], name)
    if kept and _texts(messages[-len(kept) :]) == _texts(kept):
        # A memory read from this same session ends with the messages that are kept anyway.
        messages = messages[: -len(kept)]
    new += private_lines(conversation, name, messages, len(log))
    knows = [message.text for message in memory(insert_message(new, position, log), name)]
    told = [
        text
        for given, text in _texts_only_in_log(conversation, name)
        if not any(given in known for known in knows)
    ]
    new += private_lines(conversation, name, map(HumanMessage, told), stays=True)
    changed = insert_message(new, position, log)
    return changed[place:]


def _texts(messages: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    return [(message.type, message.text) for message in messages]


def _place_after_turn(log: Sequence[BaseMessage], name: str) -> int:
    """Return the place after a speaker's latest finished turn, including the turn's reflection."""
    for place in reversed(range(len(log))):
        about = metadata(log[place])
        own = isinstance(about, Speech) and about.speaker == name
        if own or (isinstance(about, Reflection) and about.audience == (name,)):
            return place + 1
    return 0


def _texts_only_in_log(conversation: Conversation, name: str) -> list[tuple[str, str]]:
    """Return each text of the spec that a speaker knows only from the log, and its restatement."""
    speaker = conversation.speaker(name)
    told = [(text, text) for text in map(str, (one.text for one in told_privately(speaker)))]
    if conversation.opening.answers and speaker.task is not None:
        told.append(
            (speaker.task, conversation.render_prompt(prompts.RESTATE_TASK, task=speaker.task))
        )
    return told
