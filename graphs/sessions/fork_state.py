"""What a fork carries over: a session's state as other rules have it. Pure functions.

Finding the state, and storing the new one, is in `graphs.sessions.fork`.
"""

from collections.abc import Sequence

from langchain_core.messages import AnyMessage, BaseMessage

from ...nodes.prompts import speaking as prompts
from ...nodes.step.handover import lines_before
from ...nodes.step.saying import going_on, not_in_the_log
from ..ends.all_ends import Reason
from ..log.channels import log_of
from ..log.messages import PLACE, make_message, metadata
from ..log.metadata import Instruction, Speech, verdict_of
from ..log.remembered import known_before
from ..log.stage import Stage
from ..log.state import State
from ..rules.end_chat import decide
from ..rules.ends.met_ends import met_ends, reasons_of
from ..rules.facts import facts_of
from ..rules.position import Position
from ..rules.removal import first_read, standing
from ..rules.turns import last_words
from ..spec.conversation import Conversation
from ..spec.judges import SeparateJudge
from ..spec.versions import restored


def forked(found: State, new: Conversation) -> State:
    """Give the state that a new session goes on from, with the whole log as its messages."""
    # Not the spec that is listed: messages from before a fork followed the older one.
    old = restored(found["spec"])
    state: State = {
        "conversation": new.stored(),
        "spec": new.stored(),
        "specified_task": found.get("specified_task", ""),
        "messages": log_of(found),
        "usage": found.get("usage", {}),
    }
    if found.get("interpreter"):
        state["interpreter"] = found["interpreter"]
    if new.task != old.task:
        state["specified_task"] = new.task or ""
    if "position" in found:
        before = standing(Position.model_validate(found["position"]), state["messages"])
        position = carried(old, new, before, state["messages"])
        was_next, told_new = decide(old, before), _new_tasks(old, new)
    elif new.task != old.task or new.task_specification is None:
        # It was being rewritten; now it stands as given.
        state["specified_task"] = new.task or ""
        before = position = Position()
        was_next, told_new = None, known_before(new, 0)
    else:
        return state
    state["position"] = position.model_dump(mode="json")
    following = decide(new, position)
    if was_next is not None and following != was_next:
        told = lines_before(old, before, was_next, state["messages"])
        state["messages"] = _without(told, state["messages"])
    state["messages"] = put_in(told_new, position, state["messages"])
    return going_on(new, position, following, state, is_new=following != was_next)


def carried(
    old: Conversation, new: Conversation, position: Position, log: Sequence[BaseMessage]
) -> Position:
    """Give the position as the new rules would have it.

    Facts are counted again, and who completed a task that has changed has not completed it. With
    another end-chat mode, last words are promised again, by the newest completion or not at all. If
    the conversation is not over by the new rules, its last words count as turns.
    """
    before = position.facts
    kept = not_in_the_log(before)
    # A function can't be asked here; what it said of this very log still stands.
    kept["predicates"] = tuple(name for name in before.predicates if name in new.predicates)
    carries = position.model_copy(
        update={
            "facts": facts_of(new, log).model_copy(update=kept),
            "completed": _completed(old, new, position.completed),
        }
    )
    same_mode = new.end_chat.mode is old.end_chat.mode
    if same_mode and carries.completed == position.completed:
        return carries
    is_completed = Reason.COMPLETED in reasons_of(met_ends(new, carries))
    if not (same_mode and is_completed):
        is_new = is_completed and _has_just_completed(carries, log)
        owed = last_words(new, carries.speaker or "") if is_new else ()
        carries = carries.model_copy(update={"owed": owed})
    if is_completed or position.stage is not Stage.LAST_WORDS:
        return carries
    spoken = len(last_words(old, position.speaker or "")) - len(position.owed)
    return carries.model_copy(update={"stage": Stage.ROUNDS, "turns": position.turns + spoken})


def _completed(old: Conversation, new: Conversation, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the names whose task is still the one that was judged complete."""
    if _criteria(old) != _criteria(new):
        return ()
    kept = tuple(name for name in names if _task_of(old, name) == _task_of(new, name))
    # A separate judge judges all at once.
    return names if kept == names else () if isinstance(new.judge, SeparateJudge) else kept


def _criteria(conversation: Conversation) -> tuple[str, ...] | None:
    judge = conversation.judge
    return judge.criteria if isinstance(judge, SeparateJudge) else None


def _task_of(conversation: Conversation, name: str) -> str | None:
    return conversation.speaker(name).task or conversation.task


def _has_just_completed(position: Position, log: Sequence[BaseMessage]) -> bool:
    """Whether the turn before was judged complete, and nobody has spoken since."""
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
    """Tell speakers of their new tasks, where those stand in the log and not in system prompts."""
    return [
        make_message(
            0,
            new.render_prompt(prompts.NEW_TASK, task=speaker.task),
            Instruction(audience=(speaker.name,)),
        )
        for before, speaker in zip(old.speakers, new.speakers, strict=True)
        if new.opening.answers and speaker.task != before.task
    ]


def _without(told: Sequence[BaseMessage], log: list[AnyMessage]) -> list[AnyMessage]:
    """Take back what was told before a turn that does not come."""
    first = len(log)
    while first > 0 and metadata(log[first - 1]).is_cue:
        first -= 1
    gone = [(message.text, metadata(message)) for message in told]
    kept = [message for message in log[first:] if (message.text, metadata(message)) not in gone]
    return [*log[:first], *_numbered(kept, first)]


def put_in(told: list[AnyMessage], position: Position, log: list[AnyMessage]) -> list[AnyMessage]:
    """Put what is told into a log, before the lines that the next node reads by their place."""
    place = first_read(position.phase, log)
    return [*log[:place], *_numbered([*told, *log[place:]], place)]


def _numbered(lines: list[AnyMessage], first: int) -> list[AnyMessage]:
    return [
        message.model_copy(
            update={"additional_kwargs": {**message.additional_kwargs, PLACE: number}}
        )
        for number, message in enumerate(lines, start=first)
    ]
