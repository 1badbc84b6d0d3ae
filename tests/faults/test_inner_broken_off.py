"""An inner conversation resumes within its turn, and repeats at most one model call.

As in `test_broken_off.py`, writing ends at some moment as a kill would end it.
"""

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from duologue import Conversation, DuologueError, Result, aconverse, as_tool
from duologue.nodes.testing import Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.breaking import Breakage

TEAM = Conversation("Think.", [{"name": "Iris"}, {"name": "Jay"}], end_chat={"max_iterations": 2})


class Scene:
    """A speaker that calls a team as a tool, a speaker that is a team, and all their calls."""

    def __init__(self, store: Path) -> None:
        self.calls: list[str] = []
        self._store = store

    async def runs(self, breakage: Breakage) -> Result:
        """Run or resume the conversation."""
        tool = as_tool(TEAM, name="team")
        speakers: list[Any] = [{"name": "Ann", "tools": [tool]}, {"name": "Bob", "replies": [TEAM]}]
        talk = Conversation("Plan.", speakers, end_chat={"max_iterations": 1})
        model = ScriptedChatModel(script=self._answer)
        with breakage.under_way():
            return await aconverse(talk, session="s", store=self._store, model=model)

    def _answer(self, prompt: Prompt) -> str | Reply:
        name = prompt[0]["content"].removeprefix("You are ").partition(",")[0]
        called = f"{name} {len(prompt)} {prompt[0]['content'].rpartition(': ')[2]}"
        self.calls.append(called)
        if name == "Ann" and prompt[-1]["role"] != "tool":
            call = ScriptedToolCall(name="team", args={"task": "Beans."}, id="c1")
            return Reply(tool_calls=[call])
        return f"Answer {called}"


def told(result: Result) -> tuple[tuple[tuple[str, str], ...], list[int], int]:
    """Return the messages, those of the inner sessions, and the number of counted calls."""
    assert result.outcome is not None
    calls = sum(used.calls for used in result.outcome.usage.values())
    inner = [len(one.transcript) for one in result.inner_sessions.values()]
    return tuple(result.transcript), inner, calls


@pytest.mark.exhaustive
@pytest.mark.parametrize("done", [False, True], ids=["before", "behind"])
async def test_broken_off_at_any_write_an_inner_conversation_repeats_at_most_one_call(
    done: bool, tmp_path: Path
) -> None:
    whole, breakage = Scene(tmp_path / "whole.db"), Breakage()
    *expected, used = told(await whole.runs(breakage))
    assert len(whole.calls) == 10
    assert used == 10
    for number in range(breakage.writes):
        at = Scene(tmp_path / f"{number}.db")
        with suppress(DuologueError):
            await at.runs(Breakage(number, done=done))
        *found, again = told(await at.runs(Breakage()))
        assert found == expected, number
        repeated = Counter(at.calls) - Counter(whole.calls)
        assert repeated.total() <= 1, (number, repeated)
        assert again == used, number
