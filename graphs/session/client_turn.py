"""The question of a session that waits for a client's message without an interrupt.

The run of a client that sends a person's messages as inputs ends before the person's next turn.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import TypeAdapter

from ..conversation.conversation import restore_conversation
from ..conversation.questions import MessageQuestion, Question, schema_of
from ..log.messages import place_name
from ..log.state import log_of
from ..rules.position import Position
from ..rules.questions import question_payload
from ..rules.transitions import decide
from ..rules.turns import NextTurn, asking, ends_run

_BEFORE_PLACE: Final = "before-"
"""The first characters of the question's id. The place of the next message follows them."""


def client_question(state: Mapping[str, Any]) -> MessageQuestion | None:
    """Return the question that a session waits for without an interrupt, or None."""
    if not state.get("position") or state.get("outcome"):
        return None
    conversation = restore_conversation(state["spec"])
    position, log = Position.model_validate(state["position"]), log_of(state)
    decision = decide(conversation, position)
    turn = NextTurn(decision.speaker, decision.stage)
    asked = asking(conversation, position, turn)
    if asked is None or not ends_run(conversation, position, turn, log):
        return None
    task = state.get("specified_task") or None
    return MessageQuestion(
        id=f"{_BEFORE_PLACE}{place_name(len(log))}",
        response_schema=TypeAdapter(schema_of(asked.empty)).json_schema(),
        **question_payload(conversation, position, log, task, asked),
    )


def has_no_interrupt(questions: Sequence[Question]) -> bool:
    """Return whether there is exactly one question, and no interrupt has asked it."""
    return [one.id.startswith(_BEFORE_PLACE) for one in questions] == [True]
