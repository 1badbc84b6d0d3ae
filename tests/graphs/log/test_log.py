"""Metadata of the messages in a log."""

from langchain_core.messages import HumanMessage, ToolMessage

from duologue.graphs.log.messages import (
    KEY,
    PLACE,
    make_message,
    make_tool_message,
    metadata,
    place_of,
    speeches,
)
from duologue.graphs.log.metadata import NOBODY, Draft, Failure, Instruction, Speech, ToolResult
from duologue.graphs.log.reducer import append


def test_what_stands_beside_a_message_survives_the_way_through_plain_values() -> None:
    about = Draft(speaker="Ann", audience=NOBODY, problem="It was empty.")
    message = make_message(7, "hm", about)
    stored = append([], [message.model_dump()])
    assert metadata(message) == about
    assert metadata(stored[0]) == about
    assert place_of(stored[0]) == place_of(message) == "m0007"


def test_a_message_from_elsewhere_is_an_instruction_to_all() -> None:
    assert metadata(HumanMessage("Hello")) == Instruction()
    assert metadata(HumanMessage("Hello")).is_heard_by("Ann")


def test_only_turns_are_speeches() -> None:
    """Y17: the log contains more than the messages of turns."""
    log = [
        make_message(0, "Begin.", Instruction(audience=("Ann",))),
        make_message(1, "x", Draft(speaker="Ann", audience=NOBODY)),
        make_message(2, "Hello", Speech(speaker="Ann")),
        make_tool_message(3, "4", speaker="Ann", call_id="c"),
    ]
    assert [message.text for message in speeches(log)] == ["Hello"]


def test_a_tools_answer_is_heard_by_its_caller_only() -> None:
    message = make_tool_message(3, "no", speaker="Ann", call_id="c9", failure=Failure.TOOL)
    assert metadata(message) == ToolResult(speaker="Ann", audience=("Ann",), failure=Failure.TOOL)
    assert isinstance(message, ToolMessage)
    assert (message.tool_call_id, message.status, place_of(message)) == ("c9", "error", "m0003")
    assert set(message.additional_kwargs) == {KEY, PLACE}
