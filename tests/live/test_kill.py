"""Killed at any instant, a session goes on from its id, and asks nothing again that was answered.

The child processes run real clients against the scripted server, whose record is the judge.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool

import children
from duologue.graphs import Result, SessionError, aconverse, aresume, get_session, list_sessions
from duologue.nodes.judge.self_judge import Judgement
from duologue.nodes.prompts import judging
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer

pytestmark = [pytest.mark.live, pytest.mark.process]

Start = Callable[..., Any]
Bodies = list[dict[str, Any]]

SPECS: dict[str, dict[str, Any]] = {
    "structured": {
        "task": "Plan a garden",
        "task_specification": {"word_limit": 10},
        "speakers": [
            {"name": "Owner", "format": {"lines": ["Instruction:"]}, "stops_chat": True},
            {"name": "Gardener", "tools": ["dig"], "stops_chat": True},
        ],
        "end_chat": {"mode": "all_task_must_complete"},
    },
    "two_questions": {
        "task": "Plan a garden",
        "speakers": [
            {"name": "Owner", "stops_chat": True, "keep_reflection": True},
            {"name": "Gardener", "stops_chat": True},
        ],
        "end_chat": {"mode": "one_last_chat_after_first_completion"},
        "judge": {"form": "two_questions"},
    },
    "moderated": {
        "task": "Plan a garden",
        "speakers": [
            {"name": "Ann", "task": "Dig", "private_opening": {"prompt": "Choose a flower."}},
            {"name": "Ben", "task": "Plant", "private_opening": {"lines": ["You hate beans."]}},
            {"name": "Cat", "task": "Water"},
        ],
        "opening": {"answers": True, "reconcile": True},
        "turn_order": {"kind": "moderator"},
        "judge": {"kind": "separate", "criteria": ["They agree."]},
        "end_chat": {"mode": "one_last_group_chat_after_first_completion"},
    },
    "chosen": {
        "task": "Plan a garden",
        "speakers": [{"name": name, "tools": ["dig"]} for name in ("Ann", "Ben", "Cat")],
        "turn_order": {"kind": "function", "name": "backwards"},
        "end_chat": {"when": {"kind": "ending_tool", "tool": "dig", "by": "Ben"}},
    },
    "hooked": {
        "task": "Plan a garden",
        "speakers": [{"name": "Ann", "tools": ["dig"], "hooks": ["brackets"]}, {"name": "Ben"}],
        "end_chat": {"max_iterations": 2},
    },
}
CALLS = {"structured": 12, "two_questions": 10, "moderated": 15, "chosen": 4, "hooked": 5}
REASONS = dict.fromkeys(SPECS, "completed") | {
    "chosen": "ending_tool",
    "hooked": "max_iterations",
}
POINTS = [(name, number) for name, calls in CALLS.items() for number in range(calls)]


def structured(prompt: Prompt) -> Line:
    """Answer by nothing but the prompt: a long task, a draft, a tool call, verdicts."""
    last = str(prompt[-1]["content"])
    turns = sum(
        message["role"] == "assistant" and not message.get("tool_calls") for message in prompt
    )
    if len(prompt) == 1:
        return " ".join(["beans"] * 11)
    if "Say it in at most" in last:
        return "Plan a garden with beans."
    if last == judging.JUDGE_YOURSELF:
        return Judgement(objectives_left=["beans"] if turns == 1 else [], complete=turns > 1)
    if "You are Owner" in prompt[0]["content"]:
        if turns == 0:
            return "Plant bed 0."
        return f"Instruction: plant bed {turns}."
    if turns == 0 and prompt[-1]["role"] == "user":
        return Reply(tool_calls=(ScriptedToolCall(name="dig", args={"depth": 3}, id="call_1"),))
    return f"Bed {turns} is planted."


def two_questions(prompt: Prompt) -> Line:
    """Answer by nothing but the prompt: speeches, what is left, one word."""
    last = str(prompt[-1]["content"])
    own = sum(message["role"] == "assistant" for message in prompt)
    if last == judging.WHAT_IS_LEFT:
        return f"After line {own}: beans."
    if last == judging.IS_COMPLETE:
        return "Yes." if own > 2 else "No."
    return f"My line {own}."


def moderated(prompt: Prompt) -> Line:
    """Answer by nothing but the prompt: secrets, opening answers, findings, who is next."""
    last = str(prompt[-1]["content"])
    if judging.JUDGE_CRITERIA in last:
        return {"criterion_1": "met" if last.count("'s line") > 6 else "not_met"}
    if "Who speaks next" in last:
        return {"next_speaker": re.findall("Ann|Ben|Cat", last)[-1]}
    return say_a_line(prompt)


def say_a_line(prompt: Prompt) -> str:
    name = str(prompt[0]["content"]).removeprefix("You are ")[:3]
    own = sum(message["role"] == "assistant" for message in prompt)
    return f"This is {name}'s line {own}."


def chosen(prompt: Prompt) -> Line:
    """Answer by nothing but the prompt: one calls a tool and speaks, another ends it by a call."""
    if "You are Cat" in prompt[0]["content"] or prompt[-1]["role"] == "tool":
        return say_a_line(prompt)
    return Reply(tool_calls=(ScriptedToolCall(name="dig", args={"depth": 3}, id="call_1"),))


def hooked(prompt: Prompt) -> Line:
    """Answer by nothing but the prompt: words beside a call of a tool, then a line each."""
    if "You are Ann" in prompt[0]["content"] and len(prompt) == 2:
        calls = (ScriptedToolCall(name="dig", args={"depth": 3}, id="call_1"),)
        return Reply(text="Let me see.", tool_calls=calls)
    return say_a_line(prompt)


SCRIPTS: dict[str, Callable[[Prompt], Line]] = {
    "structured": structured,
    "two_questions": two_questions,
    "moderated": moderated,
    "chosen": chosen,
    "hooked": hooked,
}


def environment(server: ScriptedServer) -> dict[str, str]:
    return {"OPENAI_BASE_URL": server.url, "DUOLOGUE_MODEL": "scripted"}


def bodies(server: ScriptedServer) -> Bodies:
    return [call.body for call in server.calls]


def told(result: Result) -> dict[str, Any]:
    """A result as a child process tells it."""
    return {
        "messages": [
            message.model_dump(mode="json", exclude={"id"}) for message in result.messages
        ],
        "outcome": None
        if result.outcome is None
        else result.outcome.model_dump(mode="json", exclude={"seconds"}),
        "specified_task": result.specified_task,
    }


@tool
def dig(depth: int) -> str:
    """Dig a hole."""
    return f"A hole of {depth}."


FUNCTIONS: Any = {
    "tools": [dig],
    "orders": {"backwards": children.backwards},
    "hooks": {"brackets": children.brackets()},
}

Undisturbed = dict[str, tuple[Bodies, dict[str, Any]]]


@pytest.fixture(scope="module")
def undisturbed() -> Undisturbed:
    """What is asked, and what comes out, when nobody kills anything."""
    found: Undisturbed = {}
    for name, spec in SPECS.items():
        with ScriptedServer(SCRIPTS[name]) as server, pytest.MonkeyPatch.context() as patch:
            for variable, value in environment(server).items():
                patch.setenv(variable, value)
            result = asyncio.run(aconverse(spec, store="memory:undisturbed", **FUNCTIONS))
            found[name] = bodies(server), told(result)
    return found


class Scene:
    """A scripted server, a store, and the processes that meet there."""

    def __init__(
        self, name: str, server: ScriptedServer, store: str, start: Start, durability: str = "sync"
    ) -> None:
        self.server = server
        self.store = store
        self._common = {
            "environment": environment(server),
            "store": store,
            "session": "garden",
            "durability": durability,
            "tool": name in ("structured", "chosen", "hooked"),
        }
        self._spec = SPECS[name]
        self._start = start

    def converse(self, **more: Any) -> Any:  # noqa: ANN401
        return self._start(conversation=self._spec, **self._common, **more)

    def resuming(self) -> Any:  # noqa: ANN401
        return self._start(**self._common)

    def resume(self) -> dict[str, Any]:
        """Resume in a new process; give what it says without the count of its writes."""
        said: dict[str, Any] = self.resuming().result()
        said.pop("writes", None)
        return said


@pytest.fixture
def scene(start_child: Start, tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    servers: list[ScriptedServer] = []

    def made(name: str, *, store: str | None = None, **options: str) -> Scene:
        server = ScriptedServer(SCRIPTS[name])
        servers.append(server.__enter__())
        place = f"sqlite:///{tmp_path / f'sessions{len(servers)}.db'}"
        return Scene(name, server, store or place, start_child, **options)

    yield made
    for server in servers:
        server.close()


def killed_in_flight(scene: Scene, number: int) -> None:
    scene.server.hold(number)
    child = scene.converse()
    scene.server.wait_for(number + 1, timeout=60)
    child.kill()
    scene.server.release()


def test_an_undisturbed_run_asks_every_kind_of_question_once(undisturbed: Undisturbed) -> None:
    for name, (asked, result) in undisturbed.items():
        assert len(asked) == CALLS[name]
        assert all(asked.count(body) == 1 for body in asked)
        assert result["outcome"]["reasons"] == [REASONS[name]]
    lines = [
        message["additional_kwargs"]["duologue"]
        for message in undisturbed["structured"][1]["messages"]
    ]
    kinds = {about["kind"] for about in lines}
    assert kinds >= {"specified_task", "draft", "tool_calls", "tool_result", "speech", "reflection"}
    assert {about.get("speaker") for about in lines if about["kind"] == "draft"} == {None, "Owner"}
    moderated = [
        message["additional_kwargs"]["duologue"]
        for message in undisturbed["moderated"][1]["messages"]
    ]
    assert [about["stage"] for about in moderated if "stage" in about] == [
        *("private", "opening", "opening", "opening"),
        *("last_words", "last_words", "last_words"),
    ]
    assert sum(about["kind"] == "choice" for about in moderated) == 2
    hooked = undisturbed["hooked"][1]["messages"]
    assert [message["additional_kwargs"]["duologue"]["kind"] for message in hooked] == [
        *("instruction", "heard", "answer", "tool_calls", "answer", "tool_result"),
        *("answer", "speech", "speech", "heard", "answer", "speech", "speech"),
    ]
    assert hooked[5]["content"] == "<A hole of 6.>"
    chosen = undisturbed["chosen"][1]["messages"]
    assert [message["name"] for message in chosen if message["type"] == "ai"] == [
        *("Ann", "Ann", "Cat", "Ben"),
    ]


@pytest.mark.parametrize(("name", "number"), POINTS)
def test_killed_in_mid_call_repeats_that_call_alone(
    name: str, number: int, scene: Callable[..., Scene], undisturbed: Undisturbed
) -> None:
    asked, result = undisturbed[name]
    at = scene(name)
    killed_in_flight(at, number)
    assert at.resume() == result
    assert bodies(at.server) == asked[: number + 1] + asked[number:]


@pytest.mark.parametrize("attempt", range(2))
def test_killed_before_a_repair_again_and_again_repeats_the_repair_alone(
    attempt: int, scene: Callable[..., Scene], undisturbed: Undisturbed
) -> None:
    asked, result = undisturbed["structured"]
    at = scene("structured")
    killed_in_flight(at, 3)
    assert at.resume() == result
    assert bodies(at.server) == asked[:4] + asked[3:]


def test_killed_at_every_call_of_one_session_repeats_each_once(
    scene: Callable[..., Scene], undisturbed: Undisturbed
) -> None:
    asked, result = undisturbed["two_questions"]
    at = scene("two_questions")
    calls = 0
    for number in range(len(asked)):
        # A process repeats the call that its predecessor died in, and dies in the one after it.
        calls += 1 if number == 0 else 2
        at.server.hold(calls - 1)
        child = at.converse() if number == 0 else at.resuming()
        at.server.wait_for(calls, timeout=60)
        child.kill()
        at.server.release()
    assert at.resume() == result
    twice = [body for body in asked for _ in range(2)]
    assert bodies(at.server) == twice


@pytest.mark.parametrize(("name", "number"), POINTS[2::3])
def test_killed_with_async_durability_repeats_only_the_newest_calls_and_ends_alike(
    name: str, number: int, scene: Callable[..., Scene], undisturbed: Undisturbed
) -> None:
    """How many depends on how far writing is behind: calls here take a millisecond or two."""
    asked, result = undisturbed[name]
    at = scene(name, durability="async")
    killed_in_flight(at, number)
    assert at.resume() == result
    found = bodies(at.server)
    resumed_at = asked.index(found[number + 1])
    assert resumed_at <= number
    assert found == asked[: number + 1] + asked[resumed_at:]


@pytest.mark.parametrize("number", [1, 3, 5])
def test_killed_right_after_an_answer_repeats_at_most_that_call(
    number: int, scene: Callable[..., Scene], undisturbed: Undisturbed
) -> None:
    asked, result = undisturbed["structured"]
    at = scene("structured")
    child = at.converse()
    at.server.wait_for(number + 1, timeout=60)
    while not at.server.calls[number].answered:
        time.sleep(0)
    child.kill()
    before = len(at.server.calls)
    assert at.resume() == result
    assert_repeats_at_most_the_newest(bodies(at.server), before, asked)


def assert_repeats_at_most_the_newest(found: Bodies, before: int, asked: Bodies) -> None:
    assert found[:before] == asked[:before]
    assert found[before:] in (asked[before:], asked[max(0, before - 1) :])


@pytest.mark.parametrize("name", ["structured", "moderated", "chosen", "hooked"])
async def test_killed_at_any_write_to_the_store_repeats_at_most_the_newest_call(
    name: str,
    scene: Callable[..., Scene],
    undisturbed: Undisturbed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """L7: every state that the file can be left in, also between an answer and its hooks."""
    asked, result = undisturbed[name]
    writes = (await asyncio.to_thread(scene(name).converse(die_at=-1).result))["writes"]
    assert writes > len(asked)
    repeated = 0
    # A step writes once, or twice where tools run.
    for number in range(0, writes, 1 if name == "chosen" else 2):
        at = scene(name)
        child = at.converse(die_at=number)
        await asyncio.to_thread(child.wait, -9)
        before = len(at.server.calls)
        for variable, value in environment(at.server).items():
            monkeypatch.setenv(variable, value)
        try:
            resumed = await aresume("garden", store=at.store, **FUNCTIONS)
        except SessionError:
            # Not even listed yet, so there is nothing to resume and nothing was asked.
            assert before == 0, number
            resumed = await aconverse(SPECS[name], session="garden", store=at.store, **FUNCTIONS)
        assert told(resumed) == result, number
        found = bodies(at.server)
        assert_repeats_at_most_the_newest(found, before, asked)
        repeated += len(found) - len(asked)
        at.server.close()
    # One moment for each call: it has been answered, and nothing of it is written yet.
    assert repeated <= len(asked)


def test_a_session_killed_after_its_outcome_gives_it_again_without_a_call(
    scene: Callable[..., Scene], undisturbed: Undisturbed
) -> None:
    asked, result = undisturbed["structured"]
    at = scene("structured")
    at.converse().result()
    assert at.resume() == result
    assert bodies(at.server) == asked


@pytest.mark.parametrize("number", [3, 5])
def test_killed_in_mid_call_on_postgresql_repeats_that_call_alone(
    number: int,
    scene: Callable[..., Scene],
    undisturbed: Undisturbed,
    request: pytest.FixtureRequest,
) -> None:
    asked, result = undisturbed["structured"]
    at = scene("structured", store=request.getfixturevalue("postgres_url"))
    killed_in_flight(at, number)
    assert at.resume() == result
    assert bodies(at.server) == asked[: number + 1] + asked[number:]


@pytest.mark.parametrize(("name", "number"), POINTS)
async def test_cancelled_in_mid_call_repeats_that_call_alone(
    name: str,
    number: int,
    tmp_path: Path,
    undisturbed: Undisturbed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, result = undisturbed[name]
    store = tmp_path / "sessions.db"
    with ScriptedServer(SCRIPTS[name], hold=[number]) as server:
        for variable, value in environment(server).items():
            monkeypatch.setenv(variable, value)
        running = asyncio.create_task(
            aconverse(SPECS[name], session="garden", store=store, **FUNCTIONS)
        )
        await asyncio.to_thread(server.wait_for, number + 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        server.release()
        resumed = await aresume("garden", store=store, **FUNCTIONS)
        assert told(resumed) == result
        assert bodies(server) == asked[: number + 1] + asked[number:]


@pytest.mark.parametrize("number", [0, 3, 7])
def test_interrupted_by_ctrl_c_repeats_the_call_in_flight_alone(
    number: int, scene: Callable[..., Scene], undisturbed: Undisturbed
) -> None:
    asked, result = undisturbed["structured"]
    at = scene("structured")
    at.server.hold(number)
    child = at.converse()
    at.server.wait_for(number + 1, timeout=60)
    child.interrupt()
    assert child.result()["error"].startswith("KeyboardInterrupt")
    at.server.release()
    row, *others = list_sessions(store=at.store)
    assert (row.session, row.status, others) == ("garden", "unfinished", [])
    assert get_session("garden", store=at.store).outcome is None
    assert at.resume() == result
    assert bodies(at.server) == asked[: number + 1] + asked[number:]
