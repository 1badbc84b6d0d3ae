"""R: an agent's graph resumes within its turn and repeats at most one step.

As in `test_broken_off.py`, writing ends at some moment as a kill would end it.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from duologue import DuologueError, Result, aconverse
from duologue.nodes.testing import Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.breaking import Breakage

TALK: dict[str, Any] = {
    "task": "Plan a garden.",
    "speakers": [
        {"name": "Ann", "replies": [{"kind": "agent", "name": "researcher"}]},
        {"name": "Bob", "replies": [{"kind": "agent", "name": "plain"}]},
    ],
    "end_chat": {"max_iterations": 2},
}


class Scene:
    """Two agents that talk, and the record of all their steps."""

    def __init__(self, store: Path | str) -> None:
        self.ran: list[str] = []
        self.before: dict[int, Callable[[], object]] = {}
        """Functions to call before a step, by the step's number."""
        self._store = store

    async def runs(self, breakage: Breakage) -> Result:
        """Run or resume the conversation."""
        agents = {"researcher": self._researcher(), "plain": self._plain()}
        options: Any = {"store": self._store, "agents": agents}
        with breakage.under_way():
            return await aconverse(TALK, session="garden", **options)

    def _note(self, what: str) -> None:
        self.ran.append(what)
        self.before.get(len(self.ran) - 1, lambda: None)()

    def _researcher(self) -> Any:  # noqa: ANN401
        def search(query: str) -> str:
            """Search the web."""
            self._note(f"tool {query}")
            return f"found {query}"

        def answer(prompt: Prompt) -> str | Reply:
            turn = sum(message["role"] == "user" for message in prompt)
            # The results of earlier turns come before the newest message of the user.
            found = int(prompt[-1]["role"] == "tool")
            self._note(f"model {turn} {found}")
            if found:
                return f"Beans {turn}."
            args = {"query": f"beans {turn}"}
            return Reply(tool_calls=[ScriptedToolCall(name="search", args=args, id=f"c{turn}")])

        return create_agent(ScriptedChatModel(script=answer), [search], name="researcher")

    def _plain(self) -> Any:  # noqa: ANN401
        def node(name: str) -> Callable[[MessagesState], dict[str, Any]]:
            def run(state: MessagesState) -> dict[str, Any]:
                turn = sum(message.type == "human" for message in state["messages"])
                self._note(f"{name} {turn}")
                return {"messages": [AIMessage(f"{name} {turn}.")]}

            return run

        builder: Any = StateGraph(MessagesState)
        builder.add_sequence([("first", node("first")), ("second", node("second"))])
        builder.add_edge(START, "first")
        builder.add_edge("second", END)
        return builder.compile(name="plain")


STEPS = ("model {} 0", "tool beans {}", "model {} 1", "first {}", "second {}")
WHOLE = [step.format(turn) for turn in (1, 2) for step in STEPS]


def told(result: Result) -> tuple[tuple[tuple[str, str], ...], str, int]:
    """Return the messages, the outcome, and the number of model calls that count."""
    assert result.outcome is not None
    calls = sum(used.calls for used in result.outcome.usage.values())
    return tuple(result.transcript), result.outcome.reason, calls


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=[pytest.mark.live, pytest.mark.exhaustive])]
)
async def test_broken_off_in_each_step_it_repeats_that_step_alone(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """R: earlier usage counts once; here the session is interrupted in every step."""
    server = kind == "postgresql"
    store = str(request.getfixturevalue("postgres_url")) if server else tmp_path / "all.db"
    whole = Scene(tmp_path / "whole.db")
    expected = told(await whole.runs(Breakage()))
    assert whole.ran == WHOLE
    at = Scene(store)
    for number in range(len(WHOLE)):
        breakage = Breakage()
        # The interrupted step runs again, followed by the next one.
        at.before = {len(at.ran) + (number > 0): breakage.now}
        with pytest.raises(DuologueError):
            await at.runs(breakage)
    assert told(await at.runs(Breakage())) == expected
    assert at.ran == [one for one in WHOLE for _ in range(2)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("done", [False, True], ids=["before", "behind"])
async def test_broken_off_at_any_write_it_repeats_only_what_is_not_written(
    done: bool, tmp_path: Path
) -> None:
    """R."""
    whole, breakage = Scene(tmp_path / "whole.db"), Breakage()
    *expected, used = told(await whole.runs(breakage))
    for number in range(breakage.writes):
        at = Scene(tmp_path / f"{number}.db")
        with suppress(DuologueError):
            await at.runs(Breakage(number, done=done))
        *found, again = told(await at.runs(Breakage()))
        assert found == expected, number
        repeated = Counter(at.ran) - Counter(WHOLE)
        assert repeated.total() <= 1, (number, repeated)
        assert not Counter(WHOLE) - Counter(at.ran)
        # A call whose answer arrived but was not stored is made twice, and may count twice.
        more = sum(one.startswith("model") for one in repeated)
        assert 0 <= again - used <= more, number
