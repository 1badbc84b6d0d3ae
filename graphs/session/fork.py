"""Forks, which continue from a message of another session, and copies of whole sessions.

The fork's state is the state after the step that wrote the message, under the new rules. The steps
before it are copied, so a fork can itself be forked from any message. The original session is only
read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage, RemoveMessage

from ...nodes.turn.node_context import instruct_before_turn
from ...nodes.turn.run_input import add_next_step, select_other_facts
from ..build import build_graph
from ..common.errors import SpecError
from ..common.hints import suggest_name
from ..conversation.conversation import Conversation, restore_conversation
from ..conversation.conversation_options import require_fields
from ..conversation.judges import SeparateJudge
from ..conversation.sandbox import Kept, new_key
from ..conversation.served import FIXED, FIXED_OF_SPEAKERS
from ..ends.end_chat import Reason
from ..log.memory import list_known, pending_answers
from ..log.messages import PLACE, make_message, metadata
from ..log.metadata import Instruction, Speech, Stage, verdict_of
from ..log.state import State, append, log_of, mark_removed, take_back, update_of
from ..prompts import prompts
from ..rules.log_counter import facts_of
from ..rules.met_ends import met_ends, reasons_of
from ..rules.outcome import Outcome
from ..rules.position import Position
from ..rules.transitions import decide, first_read, position_after_removals
from ..rules.turns import Dialogue, last_words
from ..store.open import Store
from ..store.rows import SessionRow, check_session_id
from .checkpoints import (
    StoredStep,
    common_length,
    find_step,
    read_steps,
    reading_session,
    stored_conversation,
    write_past,
    write_state,
    write_steps,
)
from .dump import SessionDump, read_whole_dump, states_of
from .options import MessageLike
from .session_row import known_row, known_session, new_session, new_session_id
from .stored_session import read_verdicts, write_verdict


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


def fork_state(found: State, new: Conversation) -> State:
    """Return the state from which a fork continues. Its messages are the whole log."""
    # The state's own spec, not that of the row: messages from before an earlier fork followed an
    # older spec.
    old = restore_conversation(found["spec"])
    log = log_of(found)
    if new != old:
        # Models that were asked under the old rules are asked again.
        waiting = pending_answers(old, log)
        log = [mark_removed(one) if one in waiting else one for one in log]
    state: State = {
        "conversation": new.stored(),
        "spec": new.stored(),
        "specified_task": found.get("specified_task", ""),
        "messages": log,
        "usage": found.get("usage", {}),
    }
    if found.get("interpreter"):
        state["interpreter"] = found["interpreter"]
    if new.task != old.task:
        state["specified_task"] = new.task or ""
    if "position" in found:
        before = position_after_removals(
            Position.model_validate(found["position"]), state["messages"]
        )
        position = carry_over(old, new, before, state["messages"])
        was_next, told_new = decide(Dialogue(old, before)), _new_tasks(old, new)
    elif new.task != old.task or new.task_specification is None:
        # The task was still being specified; now it is used as given.
        state["specified_task"] = new.task or ""
        before = position = Position()
        was_next, told_new = None, list_known(new, 0)
    else:
        return state
    state["position"] = position.model_dump(mode="json")
    following = decide(Dialogue(new, position))
    if was_next is not None and following != was_next:
        told = instruct_before_turn(Dialogue(old, before, log=state["messages"]), was_next)
        state["messages"] = _remove_cues(told, state["messages"])
    state["messages"] = insert_message(told_new, position, state["messages"])
    dialogue = Dialogue(new, position, log=state["messages"])
    return add_next_step(dialogue, following, state, is_new=following != was_next)


def carry_over(
    old: Conversation, new: Conversation, position: Position, log: Sequence[BaseMessage]
) -> Position:
    """Return the position, which counts the turns and facts so far, under the new rules.

    Facts are counted again, and a speaker whose task has changed has not completed it. Last words
    are the turns that follow a completed task. Under another end-chat mode, they are granted again
    if the newest turn completed the task, otherwise they are cancelled. If the conversation is not
    over under the new rules, last words that were said count as turns.
    """
    before = position.facts
    kept = select_other_facts(before)
    # A predicate function cannot be called here, but its result for this same log remains valid.
    kept["predicates"] = tuple(name for name in before.predicates if name in new.predicates)
    carries = position.model_copy(
        update={
            "facts": facts_of(new, log).model_copy(update=kept),
            "completed": _keep_completed(old, new, position.completed),
        }
    )
    same_mode = new.end_chat.mode is old.end_chat.mode
    if same_mode and carries.completed == position.completed:
        return carries
    is_completed = Reason.COMPLETED in reasons_of(met_ends(Dialogue(new, carries)))
    if not (same_mode and is_completed):
        is_new = is_completed and _has_just_completed(carries, log)
        owed = last_words(new, carries.speaker or "") if is_new else ()
        carries = carries.model_copy(update={"owed": owed})
    if is_completed or position.stage is not Stage.LAST_WORDS:
        return carries
    spoken = len(last_words(old, position.speaker or "")) - len(position.owed)
    return carries.model_copy(update={"stage": Stage.ROUNDS, "turns": position.turns + spoken})


def _keep_completed(
    old: Conversation, new: Conversation, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the given speakers, without those whose completed task has changed."""
    if _criteria(old) != _criteria(new):
        return ()
    kept = tuple(name for name in names if _task_of(old, name) == _task_of(new, name))
    # A separate judge judges all tasks together.
    return names if kept == names else () if isinstance(new.judge, SeparateJudge) else kept


def _criteria(conversation: Conversation) -> tuple[str, ...] | None:
    judge = conversation.judge
    return judge.criteria if isinstance(judge, SeparateJudge) else None


def _task_of(conversation: Conversation, name: str) -> str | None:
    return conversation.speaker(name).task or conversation.task


def _has_just_completed(position: Position, log: Sequence[BaseMessage]) -> bool:
    """Return whether the last turn was judged complete, and no message has followed it."""
    if position.stage is not Stage.ROUNDS:
        return False
    for message in reversed(log):
        about = metadata(message)
        if isinstance(about, Speech):
            return False
        if (verdict := verdict_of(about)) is not None:
            return verdict.complete and not verdict.final and verdict.speaker == position.speaker
    return False


def _new_tasks(old: Conversation, new: Conversation) -> list[AnyMessage]:
    """Return messages about changed tasks, for speakers whose task is in no system prompt."""
    return [
        make_message(
            0,
            new.render_prompt(prompts.NEW_TASK, task=speaker.task),
            Instruction(audience=(speaker.name,)),
        )
        for before, speaker in zip(old.speakers, new.speakers, strict=True)
        if new.opening.answers and speaker.task != before.task
    ]


def _remove_cues(told: Sequence[BaseMessage], log: list[AnyMessage]) -> list[AnyMessage]:
    """Remove the cues (instructions for the next speaker) of a turn that will not happen."""
    first = len(log)
    while first > 0 and metadata(log[first - 1]).is_cue:
        first -= 1
    gone = [(message.text, metadata(message)) for message in told]
    kept = [message for message in log[first:] if (message.text, metadata(message)) not in gone]
    return [*log[:first], *_renumber(kept, first)]


def insert_message(
    told: list[AnyMessage], position: Position, log: list[AnyMessage]
) -> list[AnyMessage]:
    """Insert messages into a log, in front of those that the next node must find at the end."""
    place = first_read(position.phase, log)
    return [*log[:place], *_renumber([*told, *log[place:]], place)]


def _renumber(lines: list[AnyMessage], first: int) -> list[AnyMessage]:
    return [
        message.model_copy(
            update={"additional_kwargs": {**message.additional_kwargs, PLACE: number}}
        )
        for number, message in enumerate(lines, start=first)
    ]


async def fork_session(
    store: Store,
    session: str,
    at: MessageLike | None,
    into: str | None,
    changes: Mapping[str, object],
) -> str:
    """Fork a session at a message, with changes, and return the new session's id."""
    new = new_session_id(session, "fork") if into is None else check_session_id(into)
    origin = await known_row(store, session)
    conversation = apply_changes(stored_conversation(origin, store.url), changes)
    step = await find_step(build_graph(checkpointer=store.checkpointer), session, at)
    await _write(store, new, conversation, step, origin)
    return new


def apply_changes(conversation: Conversation, changes: Mapping[str, object]) -> Conversation:
    """Return a conversation with changed rules and the same speakers."""
    for field in changes:
        if remedy := suggest_name(field, ["into"]):
            raise SpecError(f"{field}: is not a field of a conversation{remedy}")
        if field in ("version", *FIXED):
            raise SpecError(f"{field}: can't be changed in a fork; leave it out")
    of_speakers = require_fields(
        changes.get("speakers", {}), "speakers", "from speakers' names to changes"
    )
    for name, fields in of_speakers.items():
        for field in FIXED_OF_SPEAKERS:
            if isinstance(fields, Mapping) and field in fields:
                raise SpecError(
                    f"speakers.{name}.{field}: can't be changed in a fork; leave it out"
                )
    given: dict[str, Any] = {**changes}
    found = conversation.replace(**given)
    for name, own in found.prompts.items():
        if own.text is None:
            raise SpecError(f"prompts.{name}: pass the text itself; a fork has no registered texts")
    return found


async def _write(
    store: Store, session: str, conversation: Conversation, step: StoredStep, origin: SessionRow
) -> None:
    """Store a new session. Its row is written last, so until then the session does not exist."""
    # Messages that were removed later stay removed, even if the fork starts before the removal.
    log = append(log_of(step.state), [RemoveMessage(id=one) for one in step.removed])
    state = fork_state({**step.state, "messages": log, "unspoken": []}, conversation)
    if state.get("interpreter"):
        # The other session may still be using its interpreter.
        kept = Kept.model_validate(state["interpreter"])
        state["interpreter"] = kept.under(new_key())
    ended = state.get("outcome")
    reason = Outcome.model_validate(ended).reason.value if ended else None
    async with new_session(store, session, conversation, reason, origin) as held:
        graph = build_graph(checkpointer=held.checkpointer)
        await write_past(graph, session, step.before)
        # An outcome in the copied steps is not the fork's outcome.
        if "outcome" in step.state:
            state = {"outcome": {}, **state}
        # Turn the log of the copied steps into the fork's log.
        log, known = state.pop("messages"), step.log_before
        stay = {message.id for message in log}
        gone = [take_back(str(message.id)) for message in known if message.id not in stay]
        written = [*gone, *log[common_length(known, log) :]]
        await write_state(graph, session, {**state, **update_of(written, log)})
