"""When a conversation ends and who speaks next: the pure rules of the end-chat modes.

`decide` says what comes next. It has two callers, the node that has just spoken or judged and the
edge behind it; both give it the same position, so they can't disagree. The other functions make
the position after an event out of the one before it. Nothing here does I/O or knows LangGraph.
"""

from enum import StrEnum

from ..common.data import Data
from ..log.stage import Stage
from ..spec.conversation import Conversation
from ..spec.ends import EndChatMode
from ..spec.judges import SeparateJudge
from ..spec.limits import most_calls, most_messages, most_tool_rounds
from .position import Event, Leaving, Position
from .reasons import Held, Reason, Strength, holding, reasons_of
from .turns import code_waits, in_turn, must_check, must_choose, must_judge, next_turn


class Node(StrEnum):
    """The five nodes of the graph, and its end."""

    TASK_SPECIFICATION = "task_specification"
    USER_AGENT = "user_agent"
    ASSISTANT_AGENT = "assistant_agent"
    TOOL_EXECUTOR = "tool_executor"
    COMPLETION_JUDGE = "completion_judge"
    END = "__end__"


class Decision(Data):
    """What comes next: a node for a speaker, or the end."""

    node: Node
    """Where to go."""
    speaker: str
    """Whose turn it is there; at the end, who spoke last, or would have spoken first."""
    stage: Stage = Stage.ROUNDS
    """The part of the conversation that the turn belongs to."""
    reasons: tuple[Reason, ...] = ()
    """At the end, every reason that holds; the first is the reason."""


_BEFORE_CALLS = {Reason.SAME_TOOL_CALLS, Reason.MAX_CONSECUTIVE_AUTO_REPLY}
"""What ends it before calls of tools are run, beside hard stops."""


def decide(conversation: Conversation, position: Position) -> Decision:
    """Say what comes next.

    Args:
        conversation: The spec.
        position: Where it is.

    Returns:
        The node that comes next and whose turn it is there, or the end and its reasons.
    """
    held = holding(conversation, position)
    speaker = position.speaker or conversation.order[0]
    if _is_over(conversation, position, held):
        return Decision(
            node=Node.END, speaker=speaker, stage=position.stage, reasons=reasons_of(held)
        )
    match position.event:
        case Event.CALLED | Event.RAN:
            return Decision(node=Node.TOOL_EXECUTOR, speaker=speaker, stage=position.stage)
        case (
            Event.PASSED
            | Event.SUMMARISED
            | Event.REJECTED
            | Event.ANSWERED
            | Event.RETURNED
            | Event.GIVEN
        ):
            return _speak(conversation, speaker, position.stage)
        case Event.ASKED:
            return Decision(node=Node.COMPLETION_JUDGE, speaker=speaker, stage=position.stage)
    if any(must(conversation, position) for must in (must_check, must_judge, must_choose)):
        return Decision(node=Node.COMPLETION_JUDGE, speaker=speaker, stage=position.stage)
    return _next_turn(conversation, position)


def _is_over(conversation: Conversation, position: Position, held: list[Held]) -> bool:
    """Whether what holds ends it here; what is weaker has to wait for its moment."""
    # Predicates are asked first: they cost nothing, and may be one more reason.
    if not held or must_check(conversation, position):
        return False
    strongest = held[0].strength
    match position.event:
        case Event.ANSWERED | Event.RAN | Event.GIVEN:
            # What is answered already is said, and heard, before anything ends.
            return False
        case Event.STARTED | Event.PASSED | Event.SUMMARISED | Event.REJECTED | Event.ASKED:
            return strongest is Strength.HARD
        case Event.RETURNED:
            return strongest <= Strength.SAID
        case Event.CALLED:
            # A call made over and over is not run once more, nor one that nobody may run.
            stops = any(one.reasons & _BEFORE_CALLS for one in held)
            return strongest is Strength.HARD or (stops and position.stage is not Stage.LAST_WORDS)
    if strongest is Strength.HARD or position.event is Event.LEFT:
        return True
    if strongest is Strength.SAID:
        if not code_waits(conversation, position):
            return True
        # What stands beside the word that ends it is run first, but for what else ends it.
        held = [one for one in held if one.strength > Strength.SAID]
        if not held:
            return False
    # Promised last words are spoken whatever else holds, and a verdict may change the reason.
    return not position.owed and not must_judge(conversation, position)


def _speak(conversation: Conversation, speaker: str, stage: Stage) -> Decision:
    first = speaker == conversation.names[0]
    return Decision(
        node=Node.USER_AGENT if first else Node.ASSISTANT_AGENT, speaker=speaker, stage=stage
    )


def _next_turn(conversation: Conversation, position: Position) -> Decision:
    following = next_turn(conversation, position)
    return _speak(conversation, following.speaker, following.stage)


def spoke(conversation: Conversation, position: Position) -> Position:
    """Give the position after the speaker whose turn it is has finished that turn."""
    turn = decide(conversation, position)
    return after_turn(position, turn.speaker, turn.stage)


def after_turn(position: Position, speaker: str, stage: Stage) -> Position:
    """Give the position after a turn of any speaker, in any part."""
    return position.model_copy(
        update={
            "event": Event.SPOKEN,
            "stage": stage,
            "speaker": speaker,
            "turns": position.turns + (stage is Stage.ROUNDS),
            "prepared": position.prepared + (stage is Stage.PRIVATE),
            "opened": position.opened + (stage is Stage.OPENING),
            "owed": position.owed[1:] if stage is Stage.LAST_WORDS else position.owed,
            "chosen": None,
            "tool_rounds": 0,
            "asked_again": False,
        }
    )


def paused(
    conversation: Conversation, position: Position, event: Event, *, succeeded: bool = False
) -> Position:
    """Give the position after something within the turn of the speaker whose turn it is."""
    turn = decide(conversation, position)
    return position.model_copy(
        update={
            "event": event,
            "stage": turn.stage,
            "speaker": turn.speaker,
            "tool_rounds": position.tool_rounds + succeeded,
            "asked_again": position.asked_again or event is Event.REJECTED,
        }
    )


def left(conversation: Conversation, position: Position, leaving: Leaving) -> Position:
    """Give the position after a person has ended it instead of speaking."""
    return paused(conversation, position, Event.LEFT).model_copy(update={"left": leaving})


def checked(position: Position) -> Position:
    """Give the position after the predicates were asked."""
    return position.model_copy(update={"event": Event.CHECKED})


def asked(position: Position) -> Position:
    """Give the position after the first of the judge's two questions."""
    return position.model_copy(update={"event": Event.ASKED})


def judged(conversation: Conversation, position: Position, *, complete: bool) -> Position:
    """Give the position after it was judged whether a task is complete."""
    if not complete or position.speaker is None:
        return position.model_copy(update={"event": Event.JUDGED})
    separate = isinstance(conversation.judge, SeparateJudge)
    done = conversation.stoppers if separate else (position.speaker,)
    return position.model_copy(
        update={
            "event": Event.JUDGED,
            "completed": tuple(dict.fromkeys((*position.completed, *done))),
            "owed": last_words(conversation, position.speaker),
        }
    )


def last_words(conversation: Conversation, speaker: str) -> tuple[str, ...]:
    """Give who has last words, and in which order, once a task is complete after a turn."""
    order = conversation.order
    after = order.index(speaker) + 1
    following = order[after:] + order[:after]
    match conversation.end_chat.mode:
        case EndChatMode.ONE_LAST_CHAT_AFTER_FIRST_COMPLETION:
            return following[:1]
        case EndChatMode.ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION:
            return following
        case _:
            return ()


def chose(conversation: Conversation, position: Position, name: str | None) -> Position:
    """Give the position after it was chosen who speaks next."""
    chosen = name or in_turn(conversation, position)
    return position.model_copy(update={"event": Event.CHOSEN, "chosen": chosen})


def max_steps(conversation: Conversation) -> int:
    """Bound the number of graph steps that a conversation can take.

    Each model call is a step, and so is each run of tools, of predicates and of hooks.
    """
    speakers = conversation.speakers
    asks = any(speaker.interrupt_on for speaker in speakers)
    sees = any(speaker.human and speaker.human.sees_calls for speaker in speakers)
    # What is seen and decided, the run, and the hooks behind the call and behind the results.
    tools = sees + asks + 1 + 2
    has_people = any(speaker.human for speaker in speakers)
    # A person may leave each reply to what stands behind, and then the whole conversation.
    per_turn = most_tool_rounds(conversation) * tools + 2 + has_people
    return most_calls(conversation) + most_messages(conversation) * per_turn + has_people
