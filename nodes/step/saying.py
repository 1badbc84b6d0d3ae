"""Saying something as a speaker, whosever turn it is. Pure functions.

It counts as a turn of that speaker, and a conversation that has ended goes on with it.
"""

from collections.abc import Sequence
from typing import Any, Final

from langchain_core.messages import AnyMessage, ToolMessage

from ...graphs.ends.facts import Facts
from ...graphs.log.channels import log_of, update_of
from ...graphs.log.messages import make_message, make_tool_message, metadata, newest_calls
from ...graphs.log.metadata import (
    NOBODY,
    CallOutcome,
    CodeCalls,
    EarlierEnd,
    Failure,
    Instruction,
    Source,
    Speech,
)
from ...graphs.log.reducer import take_back
from ...graphs.log.stage import Stage
from ...graphs.log.state import State
from ...graphs.rules.end_chat import Decision, Node, decide
from ...graphs.rules.facts import counter_of, facts_of
from ...graphs.rules.moves import TURN_ENDS
from ...graphs.rules.outcome import Outcome, outcome
from ...graphs.rules.position import Phase, Position
from ...graphs.rules.removal import standing
from ...graphs.rules.transitions import after_turn, reopened
from ...graphs.rules.turns import next_turn
from ...graphs.spec.conversation import Conversation
from ...graphs.spec.usage import used_so_far
from .handover import lines_before

_NOT_IN_THE_LOG: Final = ("calls", "tokens", "cost", "seconds")
"""Facts that are not counted from the log."""


def is_opening(conversation: Conversation, position: Position) -> bool:
    """Whether speakers still prepare themselves, or answer their tasks alone."""
    within = position.stage in (Stage.PRIVATE, Stage.OPENING) and position.phase not in TURN_ENDS
    comes = next_turn(conversation, position).stage
    return within or comes in (Stage.PRIVATE, Stage.OPENING)


def spoken(
    state: State,
    conversation: Conversation,
    position: Position,
    speaker: str,
    text: str,
    message_id: str | None = None,
) -> State:
    """Give what is written to a session's state when something is said as a speaker."""
    log = log_of(state)
    position = standing(position, log)
    about = metadata(log[-1]) if log else None
    taken_back: list[AnyMessage] = []
    if about and isinstance(about, Instruction) and position.phase in TURN_ENDS:
        # It told somebody that it was their turn; where it was another's, it is taken back.
        taken_back = [] if about.audience == (speaker,) else [log.pop()]
    known = len(log)
    log += _dropped(log, position, speaker)
    if ended := state.get("outcome"):
        end = EarlierEnd(audience=NOBODY, outcome=ended)
        log.append(make_message(len(log), str(Outcome.model_validate(ended)), end))
        position = reopened(position)
    stage = Stage.LAST_WORDS if position.owed[:1] == (speaker,) else Stage.ROUNDS
    about = Speech(
        speaker=speaker,
        audience=conversation.speaker(speaker).speaks_to,
        source=Source.HUMAN,
        stage=stage,
    )
    log.append(make_message(len(log), text, about, id=message_id))
    facts = facts_of(conversation, log).model_copy(update=not_in_the_log(position.facts))
    after = after_turn(conversation, position, speaker, stage).model_copy(update={"facts": facts})
    following = decide(conversation, after)
    gone_on = going_on(conversation, after, following, {**state, "messages": log}, is_new=True)
    new = [*(take_back(str(one.id)) for one in taken_back), *gone_on["messages"][known:]]
    written = update_of(new, log)
    written["position"] = after.model_dump(mode="json", exclude_defaults=True)
    if ended or following.node is Node.END:
        # An empty one is none.
        written["outcome"] = gone_on["outcome"] if following.node is Node.END else {}
    return written


def _dropped(log: Sequence[AnyMessage], position: Position, speaker: str) -> list[AnyMessage]:
    """What is told of calls that wait, for whoever has made them."""
    if position.phase not in (Phase.CALLED, Phase.RAN):
        return []
    called = newest_calls(log)
    if isinstance(metadata(called), CodeCalls):
        return []
    # What hooks have not seen yet has come back all the same.
    came = {
        one.tool_call_id: (one.text, _failure_of(one))
        for one in log
        if isinstance(one, ToolMessage)
    }
    unknown = (f"Result unknown: {speaker} sent a message instead.", Failure.PERSON)
    ids = [str(call["id"]) for call in (*called.tool_calls, *called.invalid_tool_calls)]
    results = [came.get(call_id, unknown) for call_id in ids]
    return [
        make_tool_message(
            len(log) + place,
            text,
            speaker=position.speaker or "",
            call_id=call_id,
            failure=failure,
        )
        for place, (call_id, (text, failure)) in enumerate(zip(ids, results, strict=True))
    ]


def _failure_of(result: ToolMessage) -> Failure | None:
    about = metadata(result)
    return about.failure if isinstance(about, CallOutcome) else None


def not_in_the_log(facts: Facts) -> dict[str, Any]:
    """Give the facts that are counted beside the log, and go on from any message, by name."""
    return {name: getattr(facts, name) for name in _NOT_IN_THE_LOG}


def going_on(
    new: Conversation, position: Position, following: Decision, state: State, *, is_new: bool
) -> State:
    """Add what a step writes once it is known what comes next."""
    log = state["messages"]
    if following.node is Node.END:
        usage, tallies = used_so_far(state), counter_of(new, log).tallies
        ended = outcome(new, position, following.reasons, log, usage, tallies)
        state["outcome"] = ended.model_dump(mode="json")
    elif is_new:
        state["messages"] = [*log, *lines_before(new, position, following, log)]
    return state
