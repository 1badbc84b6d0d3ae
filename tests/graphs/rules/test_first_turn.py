"""The owner of the first turn of the rounds if turns are chosen (Y4, Y6, Y16, Y20)."""

from typing import Any

import pytest

from duologue.graphs import Conversation, converse
from duologue.nodes.testing import ScriptedChatModel

NAMES = ("Ann", "Ben", "Cat")
ORDERS: list[dict[str, Any]] = [{"kind": "moderator"}, {"kind": "function", "name": "forth"}]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order["kind"])
@pytest.mark.parametrize("first", [None, *NAMES])
@pytest.mark.parametrize("opening", ["nothing", "answers", "secret"])
def test_the_first_turn_of_the_rounds_has_its_order_whoever_spoke_in_the_opening(
    opening: str, first: str | None, order: dict[str, Any]
) -> None:
    before = {"nothing": 0, "answers": 3, "secret": 1}
    secret = {"prompt": "Choose a number."} if opening == "secret" else None
    conversation = Conversation.model_validate(
        {
            "task": "Plan a garden",
            "speakers": [
                {"name": name, "task": "Dig", "private_opening": secret if name == "Ben" else None}
                for name in NAMES
            ],
            "opening": {"answers": opening == "answers", "first_speaker": first},
            "turn_order": order,
            "end_chat": {"when": {"kind": "max_messages", "limit": before[opening] + 1}},
        }
    )
    result = converse(
        conversation,
        model=ScriptedChatModel(script=lambda prompt: f"Line {len(prompt)}"),
        orders={"forth": lambda said, names: names[0]},
        store="memory:first-turn",
    )
    assert result.transcript[-1][0] == (first or NAMES[1 if opening == "answers" else 0])
