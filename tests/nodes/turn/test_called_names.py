"""Names of tools, and of tools that hand over, are read as models write them (Y19)."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from duologue import Conversation, chat, converse, load_conversation
from duologue.nodes.testing import Line, Reply, ScriptedChatModel
from support.log import of_kind

NAMES = tomllib.loads(Path(__file__).with_name("called_names.toml").read_text())
MEANT = [(written, case["meant"]) for case in NAMES["tool"] for written in case["written"]]
UNKNOWN = [written for case in NAMES["unknown"] for written in case["written"]]
SPEAKERS = [
    (written, case["to"], case.get("arguments", {}))
    for case in NAMES["hand_over"]
    for written in case["written"]
]
NO_SPEAKER = [written for case in NAMES["no_speaker"] for written in case["written"]]


def calling(name: str, **arguments: object) -> Reply:
    """Return a reply that calls a tool."""
    return Reply(tool_calls=[{"name": name, "args": arguments, "id": "a"}])


def play(name: str, *tools: str) -> tuple[list[str], str]:
    """Return the tools that a call runs, and its result."""
    ran: list[str] = []

    def make(tool: str) -> StructuredTool:
        def run() -> str:
            ran.append(tool)
            return "Done"

        return StructuredTool.from_function(run, name=tool, description=f"Run {tool}.")

    model = ScriptedChatModel(script=[calling(name), "Fine."])
    talk = chat("Go.", assistant="Clerk", tools=[*map(make, tools)], end_chat={"max_iterations": 1})
    converse(talk, model=model, store="memory:")
    return ran, str(model.calls[-1].messages[-1].content)


@pytest.mark.parametrize(("written", "meant"), MEANT)
def test_a_decorated_name_means_the_only_tool_that_fits(written: str, meant: str) -> None:
    assert play(written, "read", "write_file", "files.delete") == ([meant], "Done")


@pytest.mark.parametrize("written", UNKNOWN)
def test_the_name_of_no_tool_is_an_error_for_the_model(written: str) -> None:
    ran, result = play(written, "read", "write_file", "files.delete")
    assert ran == []
    assert "Your tools: read, write_file, files.delete." in result


def test_an_exact_name_comes_first_and_two_tools_that_fit_are_none() -> None:
    assert play("Read", "read", "Read")[0] == ["Read"]
    assert play("functions.read", "read", "functions.read")[0] == ["functions.read"]
    assert play("x.READ", "read", "Read")[0] == []


def test_a_name_that_is_all_decoration_means_the_only_tool() -> None:
    assert play("<|constrain|>json", "read")[0] == ["read"]
    assert play("?", "read")[0] == []


def talk_of(*names: str, tools: tuple[str, ...] = ()) -> Conversation:
    """Return a conversation in which Ann speaks first and hands over."""
    speakers: list[dict[str, Any]] = [{"name": "Ann", "tools": tools}]
    speakers += [{"name": name} for name in names]
    end = {"max_iterations": 1}
    spec = {"task": "Plan.", "speakers": speakers, "turn_order": "handoff", "end_chat": end}
    return load_conversation(spec)


LINES = ["I see.", *(f"This is line {number}." for number in range(30))]
OTHERS = ("Orders agent", "Refund desk", "Bob", "Bobby")


@pytest.mark.parametrize(("written", "to", "arguments"), SPEAKERS)
def test_a_tool_that_transfers_to_a_speaker_hands_over(
    written: str, to: str, arguments: dict[str, str]
) -> None:
    script: list[Line] = [calling(written, **arguments, reason="It is yours."), *LINES]
    model = ScriptedChatModel(script=script)
    result = converse(talk_of(*OTHERS), model=model, store="memory:")
    said = of_kind(result.messages, "speech")
    assert [(one.name, one.text) for one in said[:2]] == [("Ann", "It is yours."), (to, "I see.")]


@pytest.mark.parametrize("written", NO_SPEAKER)
def test_a_transfer_to_no_speaker_names_the_tool_that_hands_over(written: str) -> None:
    model = ScriptedChatModel(script=[calling(written), *LINES])
    converse(talk_of(*OTHERS), model=model, store="memory:")
    result = str(model.calls[1].messages[-1].content)
    assert result == f"There is no tool {written!r}. Your tools: hand_off."


def test_a_speaker_that_can_hand_over_to_one_speaker_does_so_by_a_transfer() -> None:
    model = ScriptedChatModel(script=[calling("transfer_to_bob", message="Over."), *LINES])
    result = converse(talk_of("Bob"), model=model, store="memory:")
    assert result.transcript[:2] == [("Ann", "Over."), ("Bob", "I see.")]


def test_a_tool_of_the_speaker_with_such_a_name_runs() -> None:
    ran: list[str] = []

    def transfer_to_bob() -> str:
        """Send money to Bob."""
        ran.append("sent")
        return "Sent"

    model = ScriptedChatModel(script=[calling("transfer_to_bob"), *LINES])
    talk = talk_of("Bob", "Cid", tools=("transfer_to_bob",))
    converse(talk, model=model, store="memory:", tools=[transfer_to_bob])
    assert ran == ["sent"]


def test_a_written_transfer_hands_over() -> None:
    text = '<tool_call>{"name": "transfer_to_bob", "arguments": {"message": "Over."}}</tool_call>'
    model = ScriptedChatModel(script=[text, *LINES])
    result = converse(talk_of("Cid", "Bob"), model=model, store="memory:")
    assert result.transcript[:2] == [("Ann", "Over."), ("Bob", "I see.")]
