"""Changes of a session that no run is using: a new message, an end, a reset, another memory.

To change its rules as well, fork the session (`graphs.session.fork`) and change the fork.

A speaker's memory is the messages of the log that the speaker has said or heard. A reset or a
replacement changes no message. `graphs.log.memory` leaves the forgotten messages out of the
speaker's memory.
"""

from collections.abc import Sequence

from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage

from ...nodes.turn.run_input import add_next_step, is_opening, say_as_speaker
from ..build import build_graph
from ..common.content import Content, text_of
from ..common.content_input import ContentInput, load_content
from ..common.errors import SessionError, SpecError
from ..conversation.conversation import Conversation
from ..log.memory import list_private, memory, private_lines
from ..log.messages import make_message, metadata, place_of
from ..log.metadata import NOBODY, MemoryReset, Reflection, Speech
from ..log.state import log_of, update_of
from ..log.viewpoint import memory_messages
from ..prompts import prompts
from ..rules.position import Position
from ..rules.transitions import Node, decide, first_read, position_after_removals
from ..rules.turns import Dialogue
from ..store.errors import damaged_store
from ..store.open import SessionLease, Store
from .checkpoints import settle, write_state
from .fork import insert_message
from .questions import check_still_waits, read_questions
from .session_row import check_speaker, known_session, read_session
from .stored_session import StoredSession


async def restart_session(store: Store, session: str) -> None:
    """Delete everything that a session contains, but keep the session."""
    async with store.lock(session) as held:
        await known_session(store, session)
        # The state is deleted first: a kill before the next line leaves a finished session without
        # a state, which also starts from the beginning.
        await held.checkpointer.adelete_thread(session)
        await held.delete_verdicts()
        await held.reopen()


async def replace_memory(
    store: Store, session: str, speaker: str, messages: Sequence[AnyMessage] = ()
) -> None:
    """Replace a speaker's memory with messages. Without messages, reset it."""
    async with store.lock(session) as held:
        conversation = await known_session(store, session)
        check_speaker(session, conversation, speaker)
        graph = build_graph(checkpointer=held.checkpointer)
        state = await settle(graph, session, conversation)
        if "position" not in state:
            if not messages:
                return
            raise SessionError(
                f"Session {session!r} has not begun, so its speakers have no memory to replace; "
                "resume it first."
            )
        position = Position.model_validate(state["position"])
        log = log_of(state)
        new = _reset_memory(conversation, position, log, speaker, messages)
        written = update_of(new, log) | {"position": state["position"]}
        if decided := state.get("decisions"):
            # The decisions belong to the newest message, whose place may have changed.
            written["decisions"] = {**decided, "message": place_of(new[-1])}
        await write_state(graph, session, written)
        row = await store.get(session)
        if row is not None and row.status == "waiting":
            # The question of the waiting session is asked again.
            await held.reopen()


def _reset_memory(
    conversation: Conversation,
    position: Position,
    log: list[AnyMessage],
    name: str,
    messages: Sequence[AnyMessage],
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
    # The texts of the spec that a speaker knows only from the log, with their restatements.
    speaker = conversation.speaker(name)
    texts = [(str(one.text), str(one.text)) for one in list_private(speaker)]
    if conversation.opening.answers and speaker.task is not None:
        restated = conversation.render_prompt(prompts.RESTATE_TASK, task=speaker.task)
        texts.append((speaker.task, restated))
    missing = [
        HumanMessage(restated)
        for text, restated in texts
        if not any(text in known for known in knows)
    ]
    new += private_lines(conversation, name, missing, stays=True)
    return insert_message(new, position, log)[place:]


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
    before = await read_questions(graph, session)
    async with store.lock(session) as held:
        check_still_waits(session, before, await read_questions(graph, session))
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
        dialogue = Dialogue(conversation, position, log=log)
        following = decide(dialogue)
        if following.node is not Node.END:
            raise SessionError(
                f"Session {session!r} waits for an answer and can't be stopped: a stop alone does "
                "not meet its end_chat.when. Answer the question, or delete the session."
            )
        ended = add_next_step(dialogue, following, {**state, "messages": log}, is_new=True)
        written = position.model_dump(mode="json", exclude_defaults=True)
        await write_state(graph, session, {"position": written, "outcome": ended["outcome"]})
        await held.finish(following.reasons[0].value)
