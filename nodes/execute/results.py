"""Recording of the results of calls, after the hooks, for the speaker alone or for all.

Handoffs that a speaker calls together with tools take effect after the tools succeed.
"""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.messages.tool import ToolCall

from ...graphs.conversation.judges import HAND_OFF
from ...graphs.log.heard_text import describe_handoffs
from ...graphs.log.messages import make_message, make_tool_message, metadata
from ...graphs.log.metadata import CodeCalls, Failure, Source, Speech
from ...graphs.prompts.prompts import HAND_OFF_UNDONE, NOT_RUN
from ...graphs.rules.position import Phase
from ...graphs.rules.transitions import after_pause, after_reply
from ...graphs.speakers.speaker import Speaker
from ..models.tool_binding import read_hand_over_calls
from ..turn.hooks import Hooks, after_tool, turn_of
from ..turn.interrupt import Interruption
from ..turn.log_writer import returns_directly
from ..turn.node_context import NodeContext
from .approval import edit_told
from .call import CallResult, inner_lines, read_new_result, read_result, usage_with_calls

Answers = Mapping[str, CallResult]
"""The result of each call by its id, in the order of the calls."""


async def run_result_hooks(
    context: NodeContext, speaker: Speaker, hooks: Hooks, message: AIMessage
) -> Answers:
    """Run the hooks after the tools, and return the final result of each call."""
    turn = turn_of(context, speaker, context.log)
    calls: Mapping[str | None, ToolCall] = {call["id"]: call for call in message.tool_calls}
    answers: dict[str, CallResult] = {}
    handoffs = answer_handoffs(context, speaker, message)
    for found in context.log[context.log.index(message) + 1 :]:
        if not isinstance(found, ToolMessage):
            # A message that somebody sent meanwhile.
            continue
        answer, call = read_result(found), calls.get(found.tool_call_id)
        is_tool = call is not None and found.tool_call_id not in handoffs
        if call is not None and is_tool and answer.failure is not Failure.PERSON:
            run = ToolCall(
                name=answer.tool or call["name"],
                args=call["args"] if answer.arguments is None else answer.arguments,
                id=call["id"],
                type="tool_call",
            )
            seen = ToolMessage(
                found.content,
                tool_call_id=found.tool_call_id,
                name=run["name"],
                status=found.status,
                artifact=found.artifact,
            )
            made = read_new_result(await after_tool(hooks, turn, run, seen), run["name"])
            answer = answer._replace(
                text=made.text,
                files=made.files,
                failure=made.failure and (answer.failure or made.failure),
                artifact=made.artifact,
                # A hook that adds no artifact does not change why there is none.
                artifact_problem=made.artifact_problem
                or (answer.artifact_problem if made.artifact is None else None),
            )
        # Otherwise no tool was called: a person refused the call, or its arguments were invalid.
        answers[found.tool_call_id] = answer
    return answers


async def return_results(
    context: NodeContext, speaker: Speaker, message: AIMessage, answers: Answers
) -> dict[str, Any]:
    """Record the results of the calls, for the speaker to use or as the speaker's message."""
    usage = usage_with_calls(context.usage, answers.values())
    is_code = isinstance(metadata(message), CodeCalls)
    handoffs = answer_handoffs(context, speaker, message)
    others = {call_id: one for call_id, one in answers.items() if call_id not in handoffs}
    undone = settle_handoffs(context, handoffs, others)
    # A person's refusal is not an error, so the calls count as a round here. Otherwise a turn could
    # continue forever.
    counts = (None, Failure.PERSON)
    succeeded = not is_code and any(answer.failure in counts for answer in others.values())
    is_direct = not (is_code or handoffs) and _is_direct(context, speaker, message, answers)
    is_said = is_code or is_direct or (bool(handoffs) and undone is None)
    told = {**answers, **(undone or {})}
    phase = Phase.GIVEN if is_said else Phase.RETURNED
    position = after_pause(context.position, context.turn, phase, succeeded=succeeded)
    tool_round = position.tool_rounds if succeeded and not is_said else None
    if not is_said:
        # A result that becomes the message gets no note about a person's changes.
        for call in message.tool_calls:
            answer = told[str(call["id"])]
            told[str(call["id"])] = answer._replace(text=edit_told(call, answer))
    lines = result_lines(context, speaker, told, final=not is_code, tool_round=tool_round)
    return await context.step(position, lines, usage)


async def interrupt_calls(
    context: NodeContext, speaker: Speaker, message: AIMessage, person: Interruption
) -> dict[str, Any]:
    """Record that each call was interrupted, and then the person's message."""
    text = f"Not run: {person.speaker} sent a message instead."
    calls = (*message.tool_calls, *message.invalid_tool_calls)
    answers = {str(call["id"]): CallResult(text, Failure.PERSON) for call in calls}
    about = Speech(
        speaker=person.speaker,
        audience=context.conversation.speaker(person.speaker).speaks_to,
        stage=context.turn.stage,
        source=Source.HUMAN,
        interrupts=True,
    )
    # The interruption counts as a round. Otherwise a turn could continue forever.
    position = after_pause(context.position, context.turn, Phase.RETURNED, succeeded=True)
    tool_round = position.tool_rounds
    lines = result_lines(context, speaker, answers, final=True, tool_round=tool_round)
    brought = context.brought(person.speaker)
    message_id = None if brought is None else brought.id
    spoken = make_message(len(context.log) + len(lines), person.content, about, id=message_id)
    return await context.step(position, [*lines, spoken])


async def return_turn(context: NodeContext, speaker: Speaker, message: AIMessage) -> dict[str, Any]:
    """End a turn without running its calls when a guard passes the turn to a person."""
    calls = (*message.tool_calls, *message.invalid_tool_calls)
    answers = {str(call["id"]): CallResult(NOT_RUN, Failure.PERSON) for call in calls}
    position = after_reply(context.conversation, context.position, context.turn)
    return await context.step(position, result_lines(context, speaker, answers, final=True))


def _is_direct(
    context: NodeContext, speaker: Speaker, message: AIMessage, answers: Answers
) -> bool:
    """Return whether results become the speaker's message (Yacana; LangChain's return_direct)."""
    by_person = ("reject", "respond")
    if any(answer.failure or answer.decision in by_person for answer in answers.values()):
        return False
    ran = [answers[str(call["id"])].tool or call["name"] for call in message.tool_calls]
    return returns_directly(context, speaker, ran)


def result_lines(
    context: NodeContext,
    speaker: Speaker,
    answers: Answers,
    *,
    final: bool,
    tool_round: int | None = None,
) -> list[AnyMessage]:
    """Return the log lines of results; see `make_tool_message` for `final`."""
    lines = inner_lines(answers.values(), len(context.log))
    # The results follow without a gap, because the next step reads the newest messages.
    first = len(context.log) + len(lines)
    last = len(answers) - 1
    return lines + [
        make_tool_message(
            first + place,
            speaker=speaker.name,
            call_id=call_id,
            tool_round=tool_round if place == last else None,
            final=final,
            **{name: one for name, one in answer._asdict().items() if name != "inner"},
        )
        for place, (call_id, answer) in enumerate(answers.items())
    ]


def answer_handoffs(
    context: NodeContext, speaker: Speaker, message: AIMessage
) -> dict[str, CallResult]:
    """Return the result of each handoff of a message by its id, as if the other calls succeeded.

    It is empty if the speaker may not hand over.
    """
    given = read_hand_over_calls(message).to
    results = describe_handoffs(context.conversation, speaker.name, given)
    failure = None if any(name for name, _ in results) else Failure.CALL
    ids = (str(call["id"]) for call in message.tool_calls if call["name"] == HAND_OFF)
    return {
        call_id: CallResult(text, failure) for call_id, (_, text) in zip(ids, results, strict=False)
    }


def settle_handoffs(
    context: NodeContext, handoffs: Mapping[str, CallResult], others: Mapping[str, CallResult]
) -> dict[str, CallResult] | None:
    """Return the results of handoffs that do not take effect, or None if they do.

    They take effect if all other calls ran as the speaker made them, and succeeded.
    """
    by_speaker = (None, "approve")
    worked = all(not one.failure and one.decision in by_speaker for one in others.values())
    if worked and not any(one.failure for one in handoffs.values()):
        return None
    undone = CallResult(context.conversation.render_prompt(HAND_OFF_UNDONE))
    return {call_id: one if one.failure else undone for call_id, one in handoffs.items()}
