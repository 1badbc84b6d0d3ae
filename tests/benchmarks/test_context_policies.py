"""Cost of each context policy on the embedded model: prompt tokens, and cached ones.

Prints for each policy the tokens of the prompt at turns 10 and 40, with the number that the server
found cached, as counted by the model; then the prompt tokens per turn, and the maximum of all 40
turns, by duologue's estimate, because the model is called in four turns only.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.outputs import LLMResult

from duologue.graphs import Conversation, aconverse
from duologue.graphs.text.words import tokens_of_message
from duologue.nodes.testing import ScriptedChatModel
from duologue.tools import Turn

pytestmark = [pytest.mark.live, pytest.mark.exhaustive]

TURNS = 40
MEASURED = (9, 10, 39, 40)
"""The model's turns: each measured turn and the one before it, whose prompt may be cached."""

LIMIT = 300

POLICIES: dict[str, dict[str, Any]] = {
    "all": {"kind": "all"},
    "last": {"kind": "last", "limit": 16},
    "tokens": {"kind": "tokens", "limit": LIMIT},
    "summary": {"kind": "summary", "limit": LIMIT, "words": 12, "model": "cheap"},
}


class Prompt(NamedTuple):
    """The tokens of one prompt."""

    tokens: int
    cached: int


class Meter(AsyncCallbackHandler):
    """A callback that records the tokens of each prompt in the model's own turns."""

    def __init__(self) -> None:
        self.turns: list[Prompt] = []
        self._speaks: set[Any] = set()

    async def on_chat_model_start(self, *given: Any, **about: Any) -> None:
        if (about.get("metadata") or {}).get("purpose") == "speech":
            self._speaks.add(about["run_id"])

    async def on_llm_end(self, response: LLMResult, **about: Any) -> None:
        message = getattr(response.generations[0][0], "message", None)
        if about["run_id"] in self._speaks and isinstance(message, AIMessage):
            used = message.usage_metadata
            assert used is not None
            cached = used.get("input_token_details", {}).get("cache_read", 0)
            self.turns.append(Prompt(used["input_tokens"], cached))


class Garden:
    """The replies of both speakers: always the farmer's, and the cook's in unmeasured turns."""

    def __init__(self) -> None:
        self.turns = 0
        self.estimates: list[int] = []
        """Tokens of the cook's view, turn by turn."""

    def cook(self, turn: Turn) -> str | None:
        self.turns += 1
        self.estimates.append(sum(map(tokens_of_message, turn.messages)))
        if self.turns in MEASURED:
            return None
        return f"Put {self.turns * 7 % 29} beans there."

    def farmer(self, turn: Turn) -> str:
        room = self.turns * 11 % 83
        return f"Bed {self.turns} has room for {room} plants."


async def measured(policy: dict[str, Any]) -> tuple[dict[int, Prompt], list[int]]:
    """Return the prompts of the model by turn, and the estimates of all turns."""
    meter, garden = Meter(), Garden()
    speaker = {
        "name": "Cook",
        "context": policy,
        "replies": [{"kind": "function", "name": "cook"}, "model"],
        "model_settings": {"max_tokens": 8},
    }
    talk = Conversation.model_validate(
        {
            "task": "Plan a kitchen garden",
            "speakers": [
                speaker,
                {"name": "Farmer", "replies": [{"kind": "function", "name": "farmer"}]},
            ],
            "end_chat": {
                "max_iterations": TURNS,
                "guards": {"same_replies": 0, "farewells": 0, "standstill": 0},
            },
            "model": "embedded",
        }
    )
    functions = {"farmer": garden.farmer, "cook": garden.cook}
    # The cost of summaries is not measured, only the later prompts.
    cheap = ScriptedChatModel(script=lambda prompt: "Many beans were put into many beds.")
    result = await aconverse(
        talk,
        store="memory:",
        functions=functions,
        models={"cheap": cheap},
        callbacks=[meter],
    )
    assert result.outcome is not None
    return dict(zip(MEASURED, meter.turns, strict=True)), garden.estimates


async def test_prompts_are_bounded_and_mostly_cached() -> None:
    both = {name: await measured(policy) for name, policy in POLICIES.items()}
    found = {name: prompts for name, (prompts, _) in both.items()}
    turns = (10, 40)
    print("\nprompt tokens (of them cached)")  # noqa: T201
    titles = [*(f"turn {turn}" for turn in turns), "per turn", "most"]
    print(f"{'context':10}", *(f"{title:>13}" for title in titles))  # noqa: T201
    for name, (prompts, estimates) in both.items():
        shown = [f"{prompts[turn].tokens} ({prompts[turn].cached})" for turn in turns]
        shown += [f"~{sum(estimates) // TURNS}", f"~{max(estimates)}"]
        print(f"{name:10}", *(f"{text:>13}" for text in shown))  # noqa: T201
    last = {name: prompts[TURNS].tokens for name, prompts in found.items()}
    # A history that is kept as a whole has no bound.
    assert all(before < after for before, after in pairwise(both["all"][1]))
    assert last["all"] > 2.5 * found["all"][10].tokens
    for name, prompts in found.items():
        most = max(prompt.tokens for prompt in prompts.values())
        if name != "all":
            assert most < 0.6 * last["all"]
            assert most <= LIMIT
            assert max(both[name][1]) < 0.6 * max(both["all"][1])
        if name in ("tokens", "summary"):
            assert max(both[name][1]) <= LIMIT
        # Cuts rarely move: each prompt begins with a cached one, except after a move.
        warm = [turn for turn in turns if prompts[turn].cached > prompts[turn].tokens / 2]
        assert len(warm) >= len(turns) - 1, name
