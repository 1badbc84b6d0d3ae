"""Taking over a session that is not running: saying something as a speaker, or ending it.

To change its rules, too, say it in a fork (`graphs.sessions.fork`).
"""

from pathlib import Path

from ...nodes.step.saying import going_on, is_opening, spoken
from ..build import build_graph
from ..common.background import in_background
from ..common.errors import SessionError, SpecError
from ..log.channels import log_of
from ..rules.end_chat import Node, decide
from ..rules.position import Position
from ..rules.removal import standing
from ..spec.conversation import Conversation
from ..store.address import Held, Store
from ..store.errors import damaged_store
from ..store.rows import check_session_id
from .checkpoints import questions_of, settle, write_state
from .listing import known_store
from .result import Result
from .session import check_speaker, known_session, read_session
from .waiting import check_still_waits


async def asay(session: str, speaker: str, text: str, *, store: str | Path | None = None) -> Result:
    """Say something as one of the speakers of a session that is not running.

    It counts as a turn of that speaker, whosever turn it was: who comes after it speaks next, and
    what ends the conversation is looked for in it; it is said as it is, ``exit`` too. What was
    under way, such as a question to a person, is dropped; calls of tools that wait get a result
    that says so. `resume` goes on.

    A session that has ended goes on with it: caps, guards, verdicts and what else ends it count
    anew from this message; budgets of money, tokens, calls and seconds do not.

    Args:
        session: The session's id.
        speaker: The speaker who says it.
        text: What is said.
        store: Where sessions are kept. None: the setting, else the user's data folder.

    Returns:
        The session as it stands; with an outcome, where it is over by its rules.

    Raises:
        SpecError: Nobody has that name, or the text is blank.
        SessionError: There is no such session, somebody runs it, its opening is not over, or it
            has asked or was answered since the call.
        StoreError: The store can't be opened, read or written.

    Example:
        >>> from duologue.graphs import chat, converse, say
        >>> result = converse(chat(), session="one", store="memory:say-docs")
        >>> say("one", "User", "Good morning.", store="memory:say-docs").speeches
        [('User', 'Good morning.')]
    """
    check_session_id(session)
    if not isinstance(text, str) or not text.strip():
        raise SpecError("text: must be text that is not empty")
    async with known_store(store) as opened:
        conversation = await known_session(opened, session)
        check_speaker(session, conversation, speaker)
        graph = build_graph(checkpointer=opened.checkpointer)
        before = await questions_of(graph, session)
        async with opened.lock(session) as held:
            check_still_waits(session, before, await questions_of(graph, session))
            return await say_in(held, conversation, speaker, text)


say = in_background(asay)


async def say_in(held: Held, conversation: Conversation, speaker: str, text: str) -> Result:
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
