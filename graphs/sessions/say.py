"""Taking over a session that is not running: saying something as a speaker, or ending it.

To change its rules, too, say it in a fork (`graphs.sessions.fork`).
"""

from ...nodes.step.saying import going_on, is_opening, spoken
from ..build import build_graph
from ..common.errors import SessionError, SpecError
from ..log.channels import log_of
from ..rules.end_chat import Node, decide
from ..rules.position import Position
from ..rules.removal import standing
from ..spec.conversation import Conversation
from ..store.address import Held, Store
from ..store.errors import damaged_store
from .checkpoints import questions_of, settle, write_state
from .session import check_speaker, known_session, read_session
from .stored_session import StoredSession
from .waiting import check_still_waits


async def add_message(store: Store, session: str, speaker: str, text: str) -> StoredSession:
    """Add a message of a speaker to a session that nobody runs."""
    if not isinstance(text, str) or not text.strip():
        raise SpecError("text: must be text that is not empty")
    conversation = await known_session(store, session)
    check_speaker(session, conversation, speaker)
    graph = build_graph(checkpointer=store.checkpointer)
    before = await questions_of(graph, session)
    async with store.lock(session) as held:
        check_still_waits(session, before, await questions_of(graph, session))
        return await say_in(held, conversation, speaker, text)


async def say_in(held: Held, conversation: Conversation, speaker: str, text: str) -> StoredSession:
    """Say something in a session that is held."""
    session, graph = held.session, build_graph(checkpointer=held.checkpointer)
    state = await settle(graph, session, conversation)
    position = Position.model_validate(state["position"]) if "position" in state else None
    if position is None or is_opening(conversation, position):
        if state.get("outcome"):
            raise SessionError(f"Session {session!r} ended at its opening: run it anew.")
        raise SessionError(f"Session {session!r} is still at its opening: resume it first.")
    new = spoken(state, conversation, position, speaker, text)
    await write_state(graph, session, new)
    await held.reopen()
    result = await read_session(session, conversation, graph)
    if result.outcome is not None:
        await held.finish(result.outcome.reason.value)
    return result


async def end_waiting(store: Store, session: str) -> None:
    """End a session that waits for a person, as a stop does."""
    conversation = await known_session(store, session)
    async with store.lock(session) as held:
        graph = build_graph(checkpointer=held.checkpointer)
        state = await settle(graph, session, conversation)
        if "position" not in state:
            raise damaged_store(store.url, "it waits, and its steps are missing", session)
        log = log_of(state)
        position = standing(Position.model_validate(state["position"]), log)
        facts = position.facts.model_copy(update={"stop_requested": True})
        position = position.model_copy(update={"facts": facts})
        following = decide(conversation, position)
        if following.node is not Node.END:
            raise SessionError(
                f"Session {session!r} waits for an answer, and by its end_chat.when a stop alone "
                "does not end it: answer it, or delete it."
            )
        ended = going_on(conversation, position, following, {**state, "messages": log}, is_new=True)
        written = position.model_dump(mode="json", exclude_defaults=True)
        await write_state(graph, session, {"position": written, "outcome": ended["outcome"]})
        await held.finish(following.reasons[0].value)
