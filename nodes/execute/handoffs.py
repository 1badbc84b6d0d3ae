"""Handoffs that a speaker calls together with tools. They take effect after the tools succeed."""

from collections.abc import Mapping

from langchain_core.messages import AIMessage

from ...graphs.conversation.judges import HAND_OFF
from ...graphs.log.heard_text import describe_handoffs
from ...graphs.log.metadata import Failure
from ...graphs.prompts.prompts import HAND_OFF_UNDONE
from ...graphs.speakers.speaker import Speaker
from ..models.tool_binding import read_hand_over_calls
from ..turn.node_context import NodeContext
from .call import CallResult


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
