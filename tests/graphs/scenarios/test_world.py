"""Worlds of simulations: what the agent and the user's tools change, and what checks read."""

import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage

from duologue import AgentError, DuologueError, Scenario, SpecError, asimulate, simulate
from duologue.graphs.scenarios import SimulationResult, rerun_simulation, run_suite
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.agents import requesting

GOAL = "You want order 7 refunded."


class Shop:
    """A shop's database."""

    opened = 0

    def __init__(self) -> None:
        type(self).opened += 1
        self.refunds: list[int] = []
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@contextmanager
def managed() -> Iterator[Shop]:
    shop = Shop()
    try:
        yield shop
    finally:
        shop.close()


@asynccontextmanager
async def managed_async() -> AsyncIterator[Shop]:
    shop = Shop()
    yield shop
    shop.close()


def yielded() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.close()


async def yielded_async() -> AsyncIterator[Shop]:
    shop = Shop()
    yield shop
    shop.close()


async def awaited() -> Shop:
    return Shop()


class Managed(Shop):
    def __enter__(self) -> "Managed":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def agent_of(shop: Shop) -> Callable[[Sequence[BaseMessage]], str]:
    def answer(messages: Sequence[BaseMessage]) -> str:
        shop.refunds.append(7)
        return "Order 7 is refunded."

    return answer


def refunds_once(result: SimulationResult) -> None:
    assert not result.world.is_closed
    assert result.world.refunds == [7], f"the shop has the refunds {result.world.refunds}"


def refund(**fields: Any) -> Scenario:
    return Scenario(**{"goal": GOAL, "world": managed, "checks": [refunds_once], **fields})


@pytest.mark.parametrize(
    "world",
    [managed, managed_async, yielded, yielded_async, Managed, awaited, Shop, lambda: Shop()],
)
def test_checks_read_the_world_that_the_agent_changed(world: Callable[[], Any]) -> None:
    result = simulate(refund(world=world), make_agent=agent_of, model=requesting(), store="memory:")
    assert result.passed, result.report()
    assert result.world.refunds == [7]
    assert result.world.is_closed is (world not in (awaited, Shop) and "lambda" not in str(world))


@pytest.mark.parametrize("world", [managed, managed_async, yielded, yielded_async, Managed])
def test_a_world_is_closed_after_a_failure(world: Callable[[], Any]) -> None:
    seen: list[Shop] = []

    def make_agent(shop: Shop) -> Callable[..., str]:
        seen.append(shop)
        return fail

    with pytest.raises(AgentError, match="out of order"):
        simulate(refund(world=world), make_agent=make_agent, model=requesting(), store="memory:")
    (shop,) = seen
    assert shop.is_closed


def fail(messages: Sequence[BaseMessage]) -> str:
    raise ValueError("out of order")


async def test_a_made_agent_may_be_a_graph_and_async() -> None:
    async def make_agent(world: Shop) -> Any:  # noqa: ANN401
        def give_back(number: int) -> str:
            """Refund an order."""
            world.refunds.append(number)
            return "done"

        call = ScriptedToolCall(name="give_back", args={"number": 7}, id="call_1")
        model = ScriptedChatModel([Reply(tool_calls=[call]), "Order 7 is refunded."])
        return create_agent(model, [give_back])

    result = await asimulate(refund(), make_agent=make_agent, model=requesting(), store="memory:")
    assert result.passed, result.report()
    assert result.called("give_back", number=7)


def test_a_failed_check_of_the_world_is_a_verdict_with_its_text() -> None:
    def make_agent() -> Callable[..., str]:
        return lambda messages: "Refunded."

    result = simulate(refund(), make_agent=make_agent, model=requesting(), store="memory:")
    assert not result.passed
    assert result.at_fault == "agent"
    assert "[not met] refunds_once: the shop has the refunds []" in result.report()


def play_user(prompt: Prompt) -> Line:
    """Call the user's tool, say the goal, then the word for the end."""
    if prompt[-1]["role"] == "tool":
        return f"Please refund order 7. {prompt[-1]['content']}"
    if any(one["role"] == "assistant" and not one.get("tool_calls") for one in prompt):
        return "###STOP###"
    return Reply(tool_calls=[ScriptedToolCall(name="look", args={"place": "porch"}, id="call_1")])


def look(place: str, world: Shop) -> str:
    """Look for the parcel."""
    world.refunds.append(0)
    return f"The {place} is empty."


async def look_async(place: str, world: Shop) -> str:
    """Look for the parcel."""
    return look(place, world)


look_async.__name__ = "look"


@pytest.mark.parametrize("tool", [look, look_async])
def test_the_tools_of_the_user_receive_the_world(tool: Callable[..., Any]) -> None:
    def both(result: SimulationResult) -> bool:
        return bool(result.world.refunds == [0, 7])

    model = ScriptedChatModel(play_user)
    scenario = refund(tools=[tool], checks=[both])
    result = simulate(scenario, make_agent=agent_of, model=model, store="memory:")
    assert result.passed, result.report()
    assert "The porch is empty." in result.transcript[0][1]
    (offered,) = model.calls[0].tools
    assert [*offered["function"]["parameters"]["properties"]] == ["place"]


def test_each_simulation_of_a_suite_has_its_own_world(tmp_path: Path) -> None:
    suite = {"scenarios": {"refund": refund(tools=[look])}, "trials": 4}
    before = Shop.opened
    report = run_suite(
        suite, make_agent=agent_of, name="own", model=requesting(), store=f"memory:{tmp_path.name}"
    )
    assert (report.passed, Shop.opened - before) == (4, 4), str(report)


def broken() -> Shop:
    raise ConnectionError("the database is down")


def sticky() -> Iterator[Shop]:
    yield Shop()
    raise ConnectionError("the database is down")


@pytest.mark.parametrize("world", [broken, sticky])
def test_an_error_of_a_world_is_one_of_the_run(world: Callable[[], Any], tmp_path: Path) -> None:
    given: dict[str, Any] = {"make_agent": agent_of, "model": requesting()}
    text = f"the world {world.__name__!r} failed: ConnectionError: the database is down"
    with pytest.raises(DuologueError) as caught:
        simulate(refund(world=world), **given, store="memory:")
    assert str(caught.value) == text
    assert not isinstance(caught.value, SpecError), "the network is at fault"
    suite = {"scenarios": {"refund": refund(world=world)}}
    report = run_suite(suite, **given, name="broken", store=f"memory:{tmp_path.name}")
    (row,) = report.simulations
    assert (row.outcome, row.at_fault, row.error) == ("error", "run", text)
    assert bool(given["model"].calls) == (world is sticky)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({}, TypeError, "agent: pass either the agent, or make_agent"),
        ({"agent": fail, "make_agent": agent_of}, TypeError, "agent: pass either the agent"),
        ({"make_agent": "absent:agent"}, SpecError, "make_agent: 'absent:agent' can't be imported"),
        ({"make_agent": "http://x"}, SpecError, "make_agent: must be a function, or its name as"),
        ({"make_agent": lambda: None}, SpecError, "'<lambda>' returned None; return the agent"),
        ({"make_agent": lambda: 3}, TypeError, "agent: must be a Runnable"),
        ({"make_agent": lambda: 1 / 0}, SpecError, "the function '<lambda>' failed: ZeroDivision"),
    ],
)
def test_bad_agents_are_refused(options: Mapping[str, Any], kind: type, text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        simulate(refund(), **options, model=requesting(), store="memory:")


def test_a_scenario_without_a_world_has_none_to_pass() -> None:
    text = "make_agent: 'agent_of' needs a world, but {} has none; set its field world"
    suite = {"scenarios": {"refund": {"goal": GOAL}}}
    with pytest.raises(SpecError, match=text.format("the scenario")):
        simulate(Scenario(GOAL), make_agent=agent_of, store="memory:")
    with pytest.raises(SpecError, match=text.format("scenario 'refund'")):
        run_suite(suite, make_agent=agent_of, name="none", store="memory:")


def test_a_rerun_in_the_middle_has_no_world() -> None:
    result = simulate(refund(), make_agent=agent_of, model=requesting(), store="memory:middle")
    with pytest.raises(SpecError, match=r"scenario\.world: a new world does not contain"):
        rerun_simulation(result.session, refund(), make_agent=agent_of, at=2)


FILES = {
    "shop.py": """
import os, sqlite3

def open_shop():
    shop = sqlite3.connect(":memory:", check_same_thread=False)
    shop.execute("create table refunds (number)")
    yield shop
    shop.close()

def make_agent(shop):
    def agent(messages):
        shop.execute("insert into refunds values (7)")
        if os.environ.get("DIE") == "reply":
            os.kill(os.getpid(), 9)
        return "Order 7 is refunded."
    return agent

def count(result):
    if os.environ.get("DIE") == "check":
        os.kill(os.getpid(), 9)
    found = result.world.execute("select * from refunds").fetchall()
    assert found == [(7,)], f"the shop has the refunds {found}"
""",
    "scenarios.toml": """
[shared]
world = "shop:open_shop"
checks = ["shop:count"]

[scenarios.refund]
goal = "You want order 7 refunded."
""",
    "graph.py": """
import os
from langgraph.graph import START, MessagesState, StateGraph

class State(MessagesState):
    refunds: list[int]

def reply(state):
    return {"messages": [("ai", "Refunded.")], "refunds": [7]}

agent = StateGraph(State).add_node(reply).add_edge(START, "reply").compile()

def count(result):
    if os.environ.get("DIE") == "check":
        os.kill(os.getpid(), 9)
    assert result.agent_state["refunds"] == [7]
""",
    "graph.toml": """
[scenarios.refund]
goal = "You want order 7 refunded."
checks = ["graph:count"]
""",
    "user.py": """
from duologue.graphs.scenarios import run_suite
from duologue.nodes.testing import ScriptedChatModel

def write(prompt):
    is_first = not any(one["role"] == "assistant" for one in prompt)
    return "Refund order 7." if is_first else "###STOP###"

def run(file, **agent):
    report = run_suite(file, **agent, model=ScriptedChatModel(write), store="runs.db")
    (row,) = report.simulations
    print(row.outcome, row.messages, row.verdicts, row.error)
""",
}
SHOP = "user.run('scenarios.toml', make_agent='shop:make_agent')"
GRAPH = "user.run('graph.toml', agent='graph:agent')"


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "at", "lost"),
    [
        (SHOP, "reply", "its world"),
        (SHOP, "check", "its world"),
        (GRAPH, "check", "the agent's state"),
    ],
)
def test_a_killed_simulation_runs_again_and_says_so(
    program: str, at: str, lost: str, tmp_path: Path
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)

    def run(die: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", f"import user; {program}"]
        environment = {**os.environ, "DIE": die, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    assert run(at).returncode == -signal.SIGKILL
    done = run("")
    assert done.stdout.startswith("passed 3 ("), done.stdout + done.stderr
    says = f"runs again from its first message: {lost} was lost with the process that ran it"
    assert says in done.stderr
    again = run("")
    assert again.stdout == done.stdout
    assert "runs again" not in again.stderr


def test_a_finished_run_makes_no_world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given: dict[str, Any] = {
        "make_agent": agent_of,
        "name": "kept",
        "store": f"memory:{tmp_path.name}",
    }
    suite = {"scenarios": {"refund": refund()}}
    run_suite(suite, **given, model=requesting())
    before = Shop.opened
    with caplog.at_level(logging.WARNING, "duologue"):
        assert run_suite(suite, **given, model=requesting()).passed == 1
    assert (Shop.opened, caplog.text) == (before, "")
