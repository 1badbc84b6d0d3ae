"""Calls that need approval: code, tools of MCP servers, registered names."""

import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolRuntime
from langgraph.types import interrupt

from duologue.nodes.testing import ScriptedToolCall
from support.log import Failure, fields_of

from .approval_help import APPROVE, ASKS, END, MAIL, REJECT, Saver, Talk, call, calls, edited

# Calls that need approval


async def test_tools_that_run_code_are_asked_about_and_their_variables_stay(saver: Saver) -> None:
    made = calls(
        call("python", "c1", code="x = 1"),
        call("python", "c2", code="x = 100"),
        call("python", "c3", code="print(x + 1)"),
    )
    fields = {"sandbox": {"level": "monty"}}
    rules = {"python": True}
    talk = Talk(saver, [made, *END], tools=["python"], interrupt_on=rules, fields=fields)
    (asked,) = await talk.start()
    assert [one["args"]["code"] for one in asked.value["action_requests"]] == [
        "x = 1",
        "x = 100",
        "print(x + 1)",
    ]
    assert await talk.decide(APPROVE, REJECT, edited("python", code="print(x + 2)")) == []
    first, second, third = await talk.results()
    assert [fields_of(one).decision for one in (first, second, third)] == [
        "approve",
        "reject",
        "edit",
    ]
    assert third.text.endswith("Result:\n3\n")
    assert 'to python with {"code": "print(x + 2)"}' in third.text


async def test_a_command_is_asked_about_before_a_shell_runs_it(
    saver: Saver, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    made = calls(
        call("shell", "c1", code=f"echo refused >> {note}"),
        call("shell", "c2", code=f"echo made >> {note}"),
    )
    talk = Talk(
        saver,
        [made, *END],
        tools=["shell"],
        interrupt_on={"shell": True},
        fields={"sandbox": {"level": "host"}},
        more={"allow_host": True},
    )
    await talk.start()
    assert await talk.decide(REJECT, edited("shell", code=f"echo changed >> {note}")) == []
    assert note.read_text() == "changed\n"


async def test_code_that_is_heard_is_no_call_of_the_tool_of_that_name(saver: Saver) -> None:
    """A7: the blocks of a code reply have the names of their languages, and so has the tool."""
    fields = {
        "sandbox": {"level": "monty"},
        "speakers": [
            {"name": "Bob"},
            {
                "name": "Ann",
                "replies": ["code", "model"],
                "tools": ["python"],
                "interrupt_on": {"python": True},
            },
        ],
    }
    talk = Talk(saver, ["```python\nprint(6 * 7)\n```"], fields=fields)
    assert await talk.start() == []
    assert "42" in (await talk.said())[-1]


async def test_a_tool_is_asked_about_by_its_registered_name(saver: Saver) -> None:
    sent: list[str] = []

    @tool("post.send now")
    def send(to: str) -> str:
        """Sends."""
        sent.append(to)
        return "Sent."

    rules = {"post.send now": True}
    more = {"tools": [send]}
    talk = Talk(
        saver,
        [calls(call("post_send_now", "c1", to="Bob")), *END],
        tools=["post.send now"],
        interrupt_on=rules,
        more=more,
    )
    (asked,) = await talk.start()
    assert asked.value["action_requests"][0]["name"] == "post.send now"
    (again,) = await talk.decide(edited("post_send_now", to="Zoe"))
    assert "'post_send_now' is not one of the speaker's tools" in again.value["problem"]
    assert await talk.decide(edited("post.send now", to="Zoe")) == []
    assert sent == ["Zoe"]


@pytest.mark.exhaustive
async def test_tools_of_an_mcp_server_are_asked_about(tmp_path: Path) -> None:
    served = str(Path(__file__).with_name("served.py"))
    servers = {"served": {"command": sys.executable, "args": [served, str(tmp_path)]}}
    made = calls(call("served.note", "c1", number=1), call("served.note", "c2", number=2))
    talk = Talk(
        InMemorySaver(),
        [made, *END],
        tools=["served.note"],
        interrupt_on={"served.note": {"allowed_decisions": ["edit", "reject"]}},
        more={"mcp_servers": servers},
    )
    (asked,) = await talk.start()
    (review, _) = asked.value["review_configs"]
    assert review["action_name"] == "served.note"
    assert review["args_schema"]["properties"]["number"]["type"] == "integer"
    assert not (tmp_path / "notes").exists()
    assert await talk.decide(REJECT, edited("served.note", number=7)) == []
    assert (tmp_path / "notes").read_text() == "7\n"
    _, second = await talk.results()
    assert second.text.endswith("Result:\n8")


async def test_a_call_of_no_tool_is_told_to_the_speaker_and_asked_about_by_nobody(
    saver: Saver,
) -> None:
    made = calls(call("post", "c1", to="Bob"), MAIL.model_copy(update={"id": "c2"}))
    made = calls(*made.tool_calls, ScriptedToolCall(name="mail", args="{to: Bob", id="c3"))
    talk = Talk(saver, [made, *END], **ASKS)
    (asked,) = await talk.start()
    assert len(asked.value["action_requests"]) == 1
    assert await talk.decide(REJECT) == []
    failures = [fields_of(one).failure for one in await talk.results()]
    assert failures == [Failure.CALL, Failure.PERSON, Failure.CALL]


async def test_tools_that_run_code_wait_behind_one_that_asks(saver: Saver) -> None:
    """Tools that run no code finish; later code would find the interpreter in a wrong state."""
    ran: list[str] = []

    def coding(name: str, *, asks: bool) -> BaseTool:
        async def work(runtime: ToolRuntime[Any, Any]) -> str:
            ran.append(name)
            size = f" {interrupt(name)}" if asks else ""
            ran.append(f"{name}!")
            return f"{name}{size}"

        made: BaseTool = tool(name, description="Runs code.")(work)
        made.metadata = {"sandbox": ["python"]}
        return made

    tools = [coding("one", asks=False), coding("two", asks=True), coding("three", asks=False)]
    names = [one.name for one in tools]

    @tool
    def free() -> str:
        """Runs in parallel with them."""
        ran.append("free!")
        return "free"

    talk = Talk(
        saver,
        [calls(*(call(name, f"c_{name}") for name in (*names, "free"))), *END],
        tools=[*names, "free"],
        fields={"sandbox": {"level": "monty"}},
        more={"tools": [*tools, free]},
    )
    (asked,) = await talk.start()
    assert asked.value == "two"
    assert sorted(one for one in ran if one.endswith("!")) == ["free!", "one!"]
    assert await talk.answer("large") == []
    assert sorted(one for one in ran if one.endswith("!")) == ["free!", "one!", "three!", "two!"]
    assert [one.text for one in await talk.results()] == ["one", "two large", "three", "free"]
