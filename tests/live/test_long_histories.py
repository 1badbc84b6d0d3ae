"""Conversations of 400 messages end on a model with a small context, with every policy.

The embedded model speaks for one of the two at the end of each, with the longest history; a
function says everything else, and a scripted model summarizes, since a small machine is slow.
"""

from typing import Any

import pytest

from duologue.graphs import Conversation, Reason, Session, astream
from duologue.nodes.testing import ScriptedChatModel
from duologue.tools import Turn
from support.log import kind_of
from support.results import outcome_of

pytestmark = [pytest.mark.live, pytest.mark.exhaustive]

ROOMY, TIGHT = 2048, 512
"""Tokens of context. Reading dominates the run time, and a small context reaches its limit as well.
"""

MESSAGES = 400
BY_THE_MODEL = 4

POLICIES: list[tuple[dict[str, Any], int]] = [
    ({"kind": "all"}, ROOMY),
    ({"kind": "last", "limit": 30}, ROOMY),
    ({"kind": "tokens", "limit": 430}, TIGHT),
    ({"kind": "summary", "limit": 430, "words": 12, "model": "cheap"}, TIGHT),
]


def talk(policy: dict[str, Any]) -> Conversation:
    early = {"kind": "function", "name": "early"}
    speakers = [
        {
            "name": "Cook",
            "context": policy,
            "replies": [early, "model"],
            "model_settings": {"max_tokens": 8},
        },
        {"name": "Gardener", "replies": [early, {"kind": "text", "text": "And then?"}]},
    ]
    # A model this small repeats itself, and no check depends on its answers.
    quiet = {"same_replies": 0, "farewells": 0, "standstill": 0, "blank_replies": 0}
    end_chat = {"max_iterations": MESSAGES // 2, "guards": quiet}
    return Conversation.model_validate(
        {"task": "Plan a kitchen garden", "speakers": speakers, "end_chat": end_chat}
    )


class Early:
    """A function that speaks until the last messages, which it leaves to the model."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, turn: Turn) -> str | None:
        self.asked += 1
        if self.asked > MESSAGES - BY_THE_MODEL:
            return None
        return f"Bed {self.asked}: {self.asked * 7 % 90} seeds."


@pytest.mark.parametrize(
    ("policy", "context"), POLICIES, ids=[f"{policy['kind']}-{size}" for policy, size in POLICIES]
)
async def test_400_messages_end_on_a_small_context(
    policy: dict[str, Any], context: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U5: an overflowing context is handled, not surfaced."""
    monkeypatch.setenv("DUOLOGUE_EMBEDDED_CONTEXT", str(context))
    store = f"memory:long-{policy['kind']}"
    notices: list[str] = []
    async for event in astream(
        talk(policy),
        session="long",
        store=store,
        functions={"early": Early()},
        models={"cheap": ScriptedChatModel(script=lambda prompt: "Many beds were sown.")},
    ):
        if event.event == "notice":
            notices.append(event.text)
    result = Session("long", store=store).state()
    assert outcome_of(result).reason is Reason.MAX_ITERATIONS
    assert outcome_of(result).messages == MESSAGES
    spoken = [usage for name, usage in outcome_of(result).usage.items() if name != "cheap"]
    assert [usage.calls for usage in spoken] == [BY_THE_MODEL // 2]

    kinds = [kind_of(message) for message in result.messages]
    cuts = kinds.count("summary")
    too_long = [text for text in notices if "too long" in text]
    if policy["kind"] == "all":
        # Only the model's refusal shortens the history, and the stream reports each time.
        assert 0 < cuts == len(too_long)
    elif policy["kind"] == "summary":
        # Summaries are made in steps, far less often than once per turn.
        assert 2 <= cuts <= MESSAGES // 5
        assert not too_long
    else:
        assert not cuts
        assert not too_long
