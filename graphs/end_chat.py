"""When a conversation ends and who speaks next: the pure rules of the end-chat modes.

`decide` says what comes next. It has two callers, the node that has just spoken or judged and the
edge behind it; both give it the same position, so they can't disagree. The other functions make
the position after an event out of the one before it. Nothing here does I/O or knows LangGraph.
"""

from enum import StrEnum

from pydantic import Field, NonNegativeInt

from duologue.graphs.spec import Conversation, Data, EndChatMode


class Node(StrEnum):
    """The five nodes of the graph, and its end."""

    TASK_SPECIFICATION = "task_specification"
    USER_AGENT = "user_agent"
    ASSISTANT_AGENT = "assistant_agent"
    TOOL_EXECUTOR = "tool_executor"
    COMPLETION_JUDGE = "completion_judge"
    END = "__end__"


class Reason(StrEnum):
    """Why a conversation ended, in order of precedence."""

    DONE_TOKEN = "done_token"  # noqa: S105
    """A speaker said the done token."""
    COMPLETED = "completed"
    """The tasks are complete that the end-chat mode asks for."""
    ROLE_FLIPS = "role_flips"
    """A speaker kept speaking another's part."""
    MAX_ITERATIONS = "max_iterations"
    """The round cap is reached."""


class Stage(StrEnum):
    """The part of the conversation that a turn belongs to."""

    OPENING = "opening"
    ROUNDS = "rounds"
    LAST_WORDS = "last_words"


class Event(StrEnum):
    """What has just happened."""

    STARTED = "started"
    """The task stands; nobody has spoken."""
    SPOKEN = "spoken"
    """The speaker's turn is over."""
    REJECTED = "rejected"
    """The speaker's reply broke a rule; it is asked for once more."""
    CALLED = "called"
    """The speaker called tools, which have not run yet."""
    RETURNED = "returned"
    """The tools it called have answered."""
    ASKED = "asked"
    """The speaker has said what is left to do, not yet whether it is done."""
    JUDGED = "judged"
    """The speaker's task is judged."""


class Position(Data):
    """Where a conversation is, after the latest event."""

    event: Event = Event.STARTED
    """What has just happened."""
    stage: Stage = Stage.ROUNDS
    """The part it happened in."""
    speaker: str | None = None
    """Whose turn it was, or still is. None before anyone has spoken."""
    turns: NonNegativeInt = 0
    """Turns finished in the rounds; opening answers and last words do not count."""
    opened: NonNegativeInt = 0
    """Opening answers given."""
    completed: tuple[str, ...] = ()
    """Who has completed its task, in the order it happened."""
    owed: tuple[str, ...] = ()
    """Who still has last words to say, in order."""
    said_done: bool = False
    """Whether the latest turn said the done token."""
    role_flips: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """How often each speaker spoke another's part, even when asked again."""
    tool_rounds: NonNegativeInt = 0
    """Rounds of tool calls in this turn."""
    asked_again: bool = False
    """Whether a reply of this turn was rejected already; it is asked for again once."""

    def rounds(self, conversation: Conversation) -> int:
        """How many rounds are complete."""
        return self.turns // len(conversation.speakers)


class Decision(Data):
    """What comes next: a node for a speaker, or the end."""

    node: Node
    """Where to go."""
    speaker: str
    """Whose turn it is there; at the end, who spoke last."""
    stage: Stage = Stage.ROUNDS
    """The part of the conversation that the turn belongs to."""
    reasons: tuple[Reason, ...] = ()
    """At the end, every reason that holds; the first is the reason."""


def decide(conversation: Conversation, position: Position) -> Decision:
    """Say what comes next.

    Args:
        conversation: The spec.
        position: Where it is.

    Returns:
        The node that comes next and whose turn it is there, or the end and its reasons.
    """
    speaker = position.speaker
    if speaker is None:
        return _next_turn(conversation, position)
    if position.event is Event.CALLED:
        return Decision(node=Node.TOOL_EXECUTOR, speaker=speaker, stage=position.stage)
    if position.event in (Event.REJECTED, Event.RETURNED):
        return _speak(conversation, speaker, position.stage)
    if position.event is Event.ASKED or must_judge(conversation, position):
        return Decision(node=Node.COMPLETION_JUDGE, speaker=speaker, stage=position.stage)
    # Promised last words are spoken whatever else holds; only a done token is never answered.
    if position.said_done or not (position.owed or position.stage is Stage.OPENING):
        reasons = held(conversation, position)
        if reasons:
            return Decision(node=Node.END, speaker=speaker, stage=position.stage, reasons=reasons)
    return _next_turn(conversation, position)


def must_judge(conversation: Conversation, position: Position) -> bool:
    """Whether the speaker who has just finished a turn is to be asked if it is done.

    Only stoppers are, after their turns in the rounds, until they have completed their task; on
    the cap's turn too, since the answer changes the reason and the last words. A done token makes
    the question idle.
    """
    return (
        position.event is Event.SPOKEN
        and position.stage is Stage.ROUNDS
        and conversation.end_chat.mode is not EndChatMode.MAX_ITERATIONS_ONLY
        and not position.said_done
        and position.speaker is not None
        and position.speaker not in position.completed
        and conversation.speaker(position.speaker).stops_chat
    )


def held(conversation: Conversation, position: Position) -> tuple[Reason, ...]:
    """Give every reason to end that holds now, the strongest first."""
    end_chat = conversation.end_chat
    holds = {
        Reason.DONE_TOKEN: position.said_done,
        Reason.COMPLETED: _completion_holds(conversation, position.completed),
        Reason.ROLE_FLIPS: any(
            count >= end_chat.max_role_flips for count in position.role_flips.values()
        ),
        Reason.MAX_ITERATIONS: position.rounds(conversation) >= end_chat.max_iterations,
    }
    return tuple(reason for reason in Reason if holds[reason])


def _completion_holds(conversation: Conversation, completed: tuple[str, ...]) -> bool:
    match conversation.end_chat.mode:
        case EndChatMode.MAX_ITERATIONS_ONLY:
            return False
        case EndChatMode.ALL_TASK_MUST_COMPLETE:
            stoppers = {speaker.name for speaker in conversation.speakers if speaker.stops_chat}
            return stoppers <= set(completed)
        case _:
            return bool(completed)


def _speak(conversation: Conversation, speaker: str, stage: Stage) -> Decision:
    first = speaker == conversation.names[0]
    return Decision(
        node=Node.USER_AGENT if first else Node.ASSISTANT_AGENT, speaker=speaker, stage=stage
    )


def _next_turn(conversation: Conversation, position: Position) -> Decision:
    if position.owed:
        return _speak(conversation, position.owed[0], Stage.LAST_WORDS)
    if conversation.opening.answers and position.opened < len(conversation.names):
        return _speak(conversation, conversation.names[position.opened], Stage.OPENING)
    order = conversation.order
    return _speak(conversation, order[position.turns % len(order)], Stage.ROUNDS)


def spoke(
    conversation: Conversation,
    position: Position,
    *,
    said_done: bool = False,
    flipped_role: bool = False,
) -> Position:
    """Give the position after the speaker whose turn it is has finished that turn.

    Args:
        conversation: The spec.
        position: Where it was.
        said_done: Whether the message says the done token.
        flipped_role: Whether the message speaks another's part.

    Returns:
        The new position.
    """
    turn = decide(conversation, position)
    flips = dict(position.role_flips)
    # Opening answers are heard by nobody, so neither a flipped role nor a done token there ends
    # anything: the end would fall on a later message that is innocent of it.
    heard = turn.stage is not Stage.OPENING
    if flipped_role and heard:
        flips[turn.speaker] = flips.get(turn.speaker, 0) + 1
    return position.model_copy(
        update={
            "event": Event.SPOKEN,
            "stage": turn.stage,
            "speaker": turn.speaker,
            "turns": position.turns + (turn.stage is Stage.ROUNDS),
            "opened": position.opened + (turn.stage is Stage.OPENING),
            "owed": position.owed[1:] if turn.stage is Stage.LAST_WORDS else position.owed,
            "said_done": said_done and heard,
            "role_flips": flips,
            "tool_rounds": 0,
            "asked_again": False,
        }
    )


def paused(conversation: Conversation, position: Position, event: Event) -> Position:
    """Give the position after something within the turn of the speaker whose turn it is.

    Args:
        conversation: The spec.
        position: Where it was.
        event: `Event.REJECTED`, `Event.CALLED` or `Event.RETURNED`.

    Returns:
        The new position.
    """
    turn = decide(conversation, position)
    return position.model_copy(
        update={
            "event": event,
            "stage": turn.stage,
            "speaker": turn.speaker,
            "tool_rounds": position.tool_rounds + (event is Event.RETURNED),
            "asked_again": position.asked_again or event is Event.REJECTED,
        }
    )


def asked(position: Position) -> Position:
    """Give the position after the first of the judge's two questions."""
    return position.model_copy(update={"event": Event.ASKED})


def judged(conversation: Conversation, position: Position, *, complete: bool) -> Position:
    """Give the position after the speaker's task was judged.

    Args:
        conversation: The spec.
        position: Where it was; its speaker is the one judged.
        complete: Whether the speaker's task is complete.

    Returns:
        The new position, with the last words that a completion promises.
    """
    if not complete or position.speaker is None:
        return position.model_copy(update={"event": Event.JUDGED})
    order = conversation.order
    after = order.index(position.speaker) + 1
    following = order[after:] + order[:after]
    owed: tuple[str, ...] = ()
    if conversation.end_chat.mode is EndChatMode.ONE_LAST_CHAT_AFTER_FIRST_COMPLETION:
        owed = following[:1]
    elif conversation.end_chat.mode is EndChatMode.ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION:
        owed = following
    return position.model_copy(
        update={
            "event": Event.JUDGED,
            "completed": (*position.completed, position.speaker),
            "owed": owed,
        }
    )


def max_steps(conversation: Conversation) -> int:
    """Bound the number of graph steps that a conversation can take.

    Each turn is at most a call and a run of tools for each of its rounds, a reply, one more where
    that is rejected, and the judge's two questions.

    Returns:
        The bound, in LangGraph's steps.
    """
    speakers = len(conversation.speakers)
    opening = speakers if conversation.opening.answers else 0
    turns = opening + speakers * (conversation.end_chat.max_iterations + 1)
    per_turn = 2 * conversation.max_tool_rounds + 2 + 2
    return 2 + turns * per_turn
