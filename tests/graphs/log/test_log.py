"""Metadata of the messages in a log."""

from langchain_core.messages import HumanMessage, ToolMessage

from support.log import (
    KEY,
    PLACE,
    Failure,
    append,
    fields_of,
    make_line,
    make_metadata,
    make_tool_line,
    of_kind,
    place_of,
)


def test_what_stands_beside_a_message_survives_the_way_through_plain_values() -> None:
    about = make_metadata("draft", speaker="Ann", audience=(), problem="It was empty.")
    message = make_line(7, "hm", about)
    stored = append([], [message.model_dump()])
    assert fields_of(message) == about
    assert fields_of(stored[0]) == about
    assert place_of(stored[0]) == place_of(message) == "m0007"


def test_a_message_from_elsewhere_is_an_instruction_to_all() -> None:
    assert fields_of(HumanMessage("Hello")) == make_metadata("instruction")
    assert fields_of(HumanMessage("Hello")).is_heard_by("Ann")


def test_only_turns_are_speeches() -> None:
    """Y17: the log contains more than the messages of turns."""
    log = [
        make_line(0, "Begin.", "instruction", audience=("Ann",)),
        make_line(1, "x", "draft", speaker="Ann", audience=()),
        make_line(2, "Hello", speaker="Ann"),
        make_tool_line(3, "4", speaker="Ann", call_id="c"),
    ]
    assert [message.text for message in of_kind(log, "speech")] == ["Hello"]


def test_a_tools_answer_is_heard_by_its_caller_only() -> None:
    message = make_tool_line(3, "no", speaker="Ann", call_id="c9", failure=Failure.TOOL)
    assert fields_of(message) == make_metadata(
        "tool_result", speaker="Ann", audience=("Ann",), failure=Failure.TOOL
    )
    assert isinstance(message, ToolMessage)
    assert (message.tool_call_id, message.status, place_of(message)) == ("c9", "error", "m0003")
    assert set(message.additional_kwargs) == {KEY, PLACE}
