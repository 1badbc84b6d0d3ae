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
from duologue.tools import Turn

pytestmark = [pytest.mark.live, pytest.mark.process]

AGENDA = ("Cook", "Gardener", "Cook", "Gardener", "Guest")


def beds(turn: Turn) -> str:
    return " ".join(f"Bed {number} takes {number * 7} seeds." for number in range(9))


def first(turn: Turn) -> str | None:
    """Leave all turns except the first to the model, which is slow on a small machine."""
    told = any("Summary of the conversation so far:" in one.text for one in turn.messages)
    return None if told else "I see."


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
    from support.tables import read_rows  # not in the other process

    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "DUOLOGUE_MODEL"):
        monkeypatch.delenv(variable, raising=False)
    store = str(tmp_path / "sessions.db")
    # It has a summary before the function that may fail, and a judge.
    conversation = Conversation.model_validate(read_rows(__file__, "judged"))
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
