"""Adding a message to a session that is not running, and ending such a session.

To change its rules as well, fork the session (`graphs.session.fork`) and add the message there.
"""

from collections.abc import Sequence

from ...nodes.turn.run_input import add_next_step, is_opening, say_as_speaker
from ..build import build_graph
from ..common.content import Content, text_of
from ..common.content_input import ContentInput, load_content
from ..common.errors import SessionError, SpecError
from ..conversation.conversation import Conversation
from ..conversation.questions import Question
from ..log.state import log_of
from ..rules.position import Position
from ..rules.transitions import Node, decide, position_after_removals
from ..store.errors import damaged_store
from ..store.open import SessionLease, Store
from .checkpoints import questions_of, settle, write_state
from .session_row import check_speaker, known_session, read_session
from .stored_session import StoredSession


def waits_for(questions: Sequence[Question], *, has_ended: bool = False) -> str:
    """Return a clause that names the questions a session waits for now."""
    if has_ended:
        return "it has ended"
    if not questions:
        return "it does not wait for an answer now"
    return f"it now waits for an answer to {', '.join(repr(one.id) for one in questions)}"


def check_still_waits(session: str, before: Sequence[Question], now: Sequence[Question]) -> None:
    """Raise if questions of a session were answered or asked before the lease was acquired.

    Args:
        session: The session's id.
        before: The questions that were waiting before the lease was acquired.
        now: The questions that are waiting now, while the lease is held.

    Raises:
        SessionError: The questions differ.
    """
    if [one.id for one in before] != [one.id for one in now]:
        raise SessionError(
            f"Session {session!r} has continued since the call, so the message was not added: "
            f"{waits_for(now)}; read its new messages, then try again."
        )


async def add_message(
    store: Store, session: str, speaker: str, text: ContentInput
) -> StoredSession:
    """Add a message of a speaker to a session that no run is using."""
    content = await load_content(text, "text")
    if not text_of(content).strip():
        raise SpecError("text: must be text that is not empty")
    conversation = await known_session(store, session)
    check_speaker(session, conversation, speaker)
    graph = build_graph(checkpointer=store.checkpointer)
    before = await questions_of(graph, session)
    async with store.lock(session) as held:
        check_still_waits(session, before, await questions_of(graph, session))
        return await say_in(held, conversation, speaker, content)


async def say_in(
    held: SessionLease, conversation: Conversation, speaker: str, content: Content
) -> StoredSession:
    """Add a message of a speaker to a session whose lease is held."""
    session, graph = held.session, build_graph(checkpointer=held.checkpointer)
    state = await settle(graph, session, conversation)
    position = Position.model_validate(state["position"]) if "position" in state else None
    if position is None or is_opening(conversation, position):
        if state.get("outcome"):
            raise SessionError(
                f"Session {session!r} ended at its opening; reset it to run it again."
            )
        raise SessionError(f"Session {session!r} is still at its opening; resume it first.")
    new = say_as_speaker(state, conversation, position, speaker, content)
    await write_state(graph, session, new)
    await held.reopen()
    result = await read_session(session, conversation, graph)
    if result.outcome is not None:
        await held.finish(result.outcome.reason.value)
    return result


async def end_waiting(store: Store, session: str) -> None:
    """End a session that waits for a person, as if it had been stopped."""
    conversation = await known_session(store, session)
    async with store.lock(session) as held:
        graph = build_graph(checkpointer=held.checkpointer)
        state = await settle(graph, session, conversation)
        if "position" not in state:
            raise damaged_store(store.url, "it is waiting, but its steps are missing", session)
        log = log_of(state)
        position = position_after_removals(Position.model_validate(state["position"]), log)
        facts = position.facts.model_copy(update={"stop_requested": True})
        position = position.model_copy(update={"facts": facts})
        following = decide(conversation, position)
        if following.node is not Node.END:
            raise SessionError(
                f"Session {session!r} waits for an answer and can't be stopped: a stop alone does "
                "not meet its end_chat.when. Answer the question, or delete the session."
            )
        ended = add_next_step(
            conversation, position, following, {**state, "messages": log}, is_new=True
        )
        written = position.model_dump(mode="json", exclude_defaults=True)
        await write_state(graph, session, {"position": written, "outcome": ended["outcome"]})
        await held.finish(following.reasons[0].value)
