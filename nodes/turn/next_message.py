"""Instructions before a turn, and messages sent as a speaker. Pure functions.

An instruction is stored in the log before the turn, so that the next prompt begins with the same
messages. A message sent as a speaker counts as its turn, and reopens a conversation that has ended.
"""

from collections.abc import Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage

from ...graphs.common.content import Block, Content, files_of
from ...graphs.conversation.conversation import Conversation
from ...graphs.conversation.fields import Opening
from ...graphs.conversation.judges import Concurrent, RoundRobin
from ...graphs.conversation.usage import read_usage
from ...graphs.ends.facts import Facts
from ...graphs.log.messages import (
    make_message,
    make_tool_message,
    metadata,
    newest_calls,
    place_of,
)
from ...graphs.log.metadata import (
    NOBODY,
    CallOutcome,
    CodeCalls,
    EarlierEnd,
    Failure,
    Instruction,
    MessageMetadata,
    OpeningAnswer,
    Source,
    Speech,
    Stage,
)
from ...graphs.log.reducer import take_back
from ...graphs.log.state import State, log_of, update_of
from ...graphs.prompts import prompts
from ...graphs.rules.log_counter import counter_of, facts_of
from ...graphs.rules.outcome import Outcome, outcome
from ...graphs.rules.position import BETWEEN_TURNS, TURN_ENDS, Phase, Position
from ...graphs.rules.questions import needing_approval
from ...graphs.rules.transitions import (
    Decision,
    Node,
    after_reopening,
    after_turn,
    decide,
    position_after_removals,
)
from ...graphs.rules.turns import asking_of_calls, is_in_round, next_turn
from ...graphs.speakers.speaker import Speaker


def lines_before(
    conversation: Conversation,
    position: Position,
    decision: Decision,
    log: Sequence[BaseMessage],
) -> list[AnyMessage]:
    """Return the instructions to add to the log before the next turn."""
    speaks = decision.node in (Node.USER_AGENT, Node.ASSISTANT_AGENT)
    if position.phase not in BETWEEN_TURNS or not speaks:
        return []
    new = _before(conversation, position, decision, log)
    first = len(log)
    return [make_message(first + place, one, about) for place, (one, about) in enumerate(new)]


def _before(
    conversation: Conversation,
    position: Position,
    decision: Decision,
    log: Sequence[BaseMessage],
) -> Sequence[tuple[Content, MessageMetadata]]:
    name = decision.speaker
    speaker = conversation.speaker(name)
    if decision.stage is Stage.PRIVATE:
        prompt = speaker.private_opening.prompt if speaker.private_opening else None
        return [(prompt or "", _to(name))]
    if decision.stage is Stage.OPENING:
        heard_by_all = conversation.opening.reconcile
        about = Instruction(to=name, audience=None if heard_by_all else (name,))
        return [(speaker.task or "", about)]
    if decision.stage is Stage.ROUNDS and isinstance(conversation.turn_order, Concurrent):
        return _before_round(conversation, position)
    if decision.stage is Stage.ROUNDS and position.turns == 0:
        if _begins_by_itself(speaker) and conversation.opening == Opening():
            return []
        return [_shift(conversation, name, log)]
    if speaker.human is not None and not speaker.has_model:
        # A person's question names the speaker already.
        return []
    if not conversation.is_pair or not isinstance(conversation.turn_order, RoundRobin):
        return [(conversation.render_prompt(prompts.YOUR_TURN, name=name), _to(name))]
    return []


def _before_round(
    conversation: Conversation, position: Position
) -> list[tuple[str, MessageMetadata]]:
    """Return the instruction to all speakers of a round that speak at once."""
    if is_in_round(conversation, position):
        return []
    opening = conversation.opening
    if position.turns == 0 and opening.first_line is not None:
        return [(opening.first_line, Instruction())]
    return [(conversation.render_prompt(prompts.ALL_SPEAK), Instruction())]


def _begins_by_itself(speaker: Speaker) -> bool:
    """Return whether a speaker needs no instruction before its first message."""
    is_given = speaker.first_message is not None or speaker.human is not None
    # Many models refuse a prompt that begins with an assistant message.
    return is_given and not speaker.has_model


def _shift(
    conversation: Conversation, owner: str, log: Sequence[BaseMessage]
) -> tuple[Content, MessageMetadata]:
    """Return the first instruction of the rounds (Yacana's shift message)."""
    opening = conversation.opening
    if opening.first_line is not None:
        return opening.first_line, _to(owner)
    if opening.reconcile:
        # Every speaker knows all answers, so none is passed on.
        return conversation.render_prompt(prompts.CONTINUE_CONVERSATION), _to(owner)
    if not opening.answers:
        return conversation.render_prompt(prompts.BEGIN), _to(owner)
    before = conversation.order[-1]
    said_before = (
        message.content
        for message in reversed(log)
        if isinstance(metadata(message), Speech) and metadata(message).speaker == before
    )
    answer = next(said_before, None)
    if answer is None:
        # The answer was removed.
        return conversation.render_prompt(prompts.BEGIN), _to(owner)
    return answer, OpeningAnswer(speaker=before, audience=(owner,))


def _to(name: str) -> MessageMetadata:
    return Instruction(audience=(name,))


_NOT_IN_THE_LOG: Final = (
    *("calls", "tokens", "cost", "calls_by", "tokens_by", "cost_by"),
    "seconds",
)
"""The facts that are not counted from the log."""


def is_opening(conversation: Conversation, position: Position) -> bool:
    """Return whether the private or opening prompts are still being answered."""
    within = position.stage in (Stage.PRIVATE, Stage.OPENING) and position.phase not in TURN_ENDS
    comes = next_turn(conversation, position).stage
    return within or comes in (Stage.PRIVATE, Stage.OPENING)


def say_as_speaker(
    state: State,
    conversation: Conversation,
    position: Position,
    speaker: str,
    content: Content,
    message_id: str | None = None,
) -> State:
    """Return the update of a session's state for a message that is sent as a speaker.

    A message from a client, as the input of a run, has an id.
    """
    log = log_of(state)
    position = position_after_removals(position, log)
    about = metadata(log[-1]) if log else None
    taken_back: list[AnyMessage] = []
    if about and isinstance(about, Instruction) and position.phase in TURN_ENDS:
        # The newest instruction announces a turn. It is removed if the turn was another speaker's.
        taken_back = [] if about.audience == (speaker,) else [log.pop()]
    known = len(log)
    log += _dropped(state, conversation, log, position, speaker)
    if ended := state.get("outcome"):
        end = EarlierEnd(audience=NOBODY, outcome=ended)
        log.append(make_message(len(log), str(Outcome.model_validate(ended)), end))
        position = after_reopening(position)
    stage = Stage.LAST_WORDS if position.owed[:1] == (speaker,) else Stage.ROUNDS
    about = Speech(
        speaker=speaker,
        audience=conversation.speaker(speaker).speaks_to,
        source=Source.HUMAN,
        stage=stage,
        from_client=message_id is not None,
    )
    log.append(make_message(len(log), content, about, id=message_id))
    facts = facts_of(conversation, log).model_copy(update=not_in_the_log(position.facts))
    after = after_turn(conversation, position, speaker, stage).model_copy(update={"facts": facts})
    following = decide(conversation, after)
    gone_on = with_next_step(
        conversation, after, following, {**state, "messages": log}, is_new=True
    )
    new = [*(take_back(str(one.id)) for one in taken_back), *gone_on["messages"][known:]]
    written = update_of(new, log)
    written["position"] = after.model_dump(mode="json", exclude_defaults=True)
    if ended or following.node is Node.END:
        # An empty outcome means that there is none.
        written["outcome"] = gone_on["outcome"] if following.node is Node.END else {}
    return written


def _dropped(
    state: State,
    conversation: Conversation,
    log: Sequence[AnyMessage],
    position: Position,
    speaker: str,
) -> list[AnyMessage]:
    """Return a result for each waiting call, so that providers accept the caller's history."""
    if position.phase not in (Phase.CALLED, Phase.RAN):
        return []
    called = newest_calls(log)
    if isinstance(metadata(called), CodeCalls):
        return []
    # A result that no hook has seen yet counts as well.
    came = {
        one.tool_call_id: (one.text, files_of(one.content), _failure_of(one))
        for one in log
        if isinstance(one, ToolMessage)
    }
    nothing: list[Block] = []
    caller = conversation.speaker(position.speaker or "")
    is_shown = asking_of_calls(conversation, position, caller.name) is not None
    begun = _find_begun(state, caller, called, is_shown=is_shown)
    ids = [str(call["id"]) for call in (*called.tool_calls, *called.invalid_tool_calls)]
    results = [
        came.get(call_id)
        or (
            f"{'Result unknown' if call_id in begun else 'Not run'}: {speaker} sent a message "
            "instead.",
            nothing,
            Failure.PERSON,
        )
        for call_id in ids
    ]
    return [
        make_tool_message(
            len(log) + place,
            text,
            files=files,
            speaker=position.speaker or "",
            call_id=call_id,
            failure=failure,
        )
        for place, (call_id, (text, files, failure)) in enumerate(zip(ids, results, strict=True))
    ]


def _find_begun(state: State, caller: Speaker, message: AIMessage, *, is_shown: bool) -> set[str]:
    """Return the ids of the calls of a message that may have begun to run.

    No call runs before a person has seen all of them, or has decided on those that need approval.
    """
    kept = state.get("decisions") or {}
    if kept.get("message") != place_of(message):
        kept = {}
    is_asked = bool(needing_approval(caller, message.tool_calls)) and "decisions" not in kept
    if is_asked or (is_shown and not kept):
        return set()
    decided = {call_id: one["type"] for call_id, one in (kept.get("decisions") or {}).items()}
    ids = {str(call["id"]) for call in message.tool_calls if call["name"] in caller.tools}
    return {one for one in ids if decided.get(one) not in ("reject", "respond")}


def _failure_of(result: ToolMessage) -> Failure | None:
    about = metadata(result)
    return about.failure if isinstance(about, CallOutcome) else None


def not_in_the_log(facts: Facts) -> dict[str, Any]:
    """Return the facts that are not counted from the log, by name."""
    return {name: getattr(facts, name) for name in _NOT_IN_THE_LOG}


def with_next_step(
    new: Conversation, position: Position, following: Decision, state: State, *, is_new: bool
) -> State:
    """Add the outcome if the conversation ends, or the instructions if the next turn is new."""
    log = state["messages"]
    if following.node is Node.END:
        usage, tallies = read_usage(state), counter_of(new, log).tallies
        ended = outcome(new, position, following.reasons, log, usage, tallies)
        state["outcome"] = ended.model_dump(mode="json")
    elif is_new:
        state["messages"] = [*log, *lines_before(new, position, following, log)]
    return state
