"""With a seed the embedded model says the same again (U7).

The same applies in another process, also if the first is interrupted in the middle and the other
continues. No check depends on the answers' content. The other process executes this file, too.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from duologue import Conversation, Session, SpecError, converse
from duologue.graphs.prompts import prompts
from duologue.tools import Turn

pytestmark = [pytest.mark.live, pytest.mark.process]

AGENDA = ("Cook", "Gardener", "Cook", "Gardener", "Guest")


def judged() -> Conversation:
    """Return a conversation with a summary before the function that may fail, and with a judge."""
    return Conversation.model_validate(
        {
            "task": "Plan a garden",
            "seed": 7,
            "speakers": [
                {"name": "Cook", "replies": [{"kind": "function", "name": "beds"}]},
                {
                    "name": "Gardener",
                    "replies": [{"kind": "function", "name": "first"}, "model"],
                    "model_settings": {"max_tokens": 12, "temperature": 1.0},
                    "context": {"kind": "summary", "limit": 190, "words": 4, "temperature": 1.0},
                },
                {
                    "name": "Guest",
                    "replies": [{"kind": "function", "name": "fails"}],
                    "checks_completion": True,
                },
            ],
            "turn_order": {"kind": "function", "name": "agenda"},
            "judge": {"kind": "separate", "criteria": ["They grow beans."], "temperature": 1.0},
            "end_chat": {
                "mode": "end_chat_after_first_completion",
                "when": {"kind": "max_messages", "limit": len(AGENDA)},
                "guards": {
                    "blank_replies": 0,
                    "same_replies": 0,
                    "farewells": 0,
                    "standstill": 0,
                },
            },
        }
    )


def beds(turn: Turn) -> str:
    return " ".join(f"Bed {number} takes {number * 7} seeds." for number in range(9))


def first(turn: Turn) -> str | None:
    """Leave all turns except the first to the model, which is slow on a small machine."""
    told = prompts.SUMMARY_HEADING.partition("{")[0]
    return None if any(told in message.text for message in turn.messages) else "I see."


def agenda(messages: Sequence[BaseMessage], names: Sequence[str]) -> str:
    return AGENDA[len(messages)]


def registered(*, fails: bool = False) -> dict[str, Any]:
    """Return the objects that the conversation names; the function `fails` may raise an error."""

    def function(turn: Turn) -> str:
        if fails:
            raise ValueError("not now")
        return "Beans are cheap."

    return {
        "functions": {"beds": beds, "first": first, "fails": function},
        "orders": {"agenda": agenda},
    }


def record(session: str, store: str) -> list[dict[str, Any]]:
    """Return all data of a session except its duration."""
    lines = Session(session, store=store).export(format="jsonl").splitlines()
    outcome = Session(session, store=store).state().outcome
    assert outcome is not None
    return [*map(json.loads, lines), outcome.model_dump(mode="json", exclude={"seconds"})]


def test_the_same_seed_gives_the_same_log_wherever_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "DUOLOGUE_MODEL"):
        monkeypatch.delenv(variable, raising=False)
    store = str(tmp_path / "sessions.db")
    conversation = judged()
    converse(conversation, session="first", store=store, **registered())
    first = record("first", store)
    kinds = {line.get("kind") for line in first}
    assert {"summary", "speech", "reflection"} <= kinds

    with pytest.raises(SpecError, match="not now"):
        converse(conversation, session="left", store=store, **registered(fails=True))
    # Data of another conversation in the model's memory must not count.
    converse(conversation, session="second", store=store, **registered())
    assert record("second", store) == first

    # One half runs in this process, the other half in another one.
    subprocess.run([sys.executable, __file__, store], check=True)
    assert record("left", store) == first


def in_another_process(store: str) -> None:
    """Continue the interrupted conversation."""
    Session("left", store=store).resume(**registered())


if __name__ == "__main__":
    in_another_process(*sys.argv[1:])
