"""What stands beside the messages of a log."""

from langchain_core.messages import HumanMessage, ToolMessage

from duologue.graphs.log.kinds import Kind
from duologue.graphs.log.messages import (
    KEY,
    NOBODY,
    PLACE,
    About,
    Failure,
    line,
    place_of,
    result,
    said,
    speeches,
)
from duologue.graphs.log.reducer import append


def test_what_stands_beside_a_message_survives_the_way_through_plain_values() -> None:
    about = About(kind=Kind.DRAFT, speaker="Ann", audience=NOBODY, problem="It was empty.")
    message = said(7, "hm", about)
    stored = append([], [message.model_dump()])
    assert line(message) == about
    assert line(stored[0]) == about
    assert place_of(stored[0]) == place_of(message) == "m0007"


def test_a_message_from_elsewhere_is_an_instruction_to_all() -> None:
    assert line(HumanMessage("Hello")) == About(kind=Kind.INSTRUCTION)
    assert line(HumanMessage("Hello")).heard_by("Ann")


def test_only_turns_are_speeches() -> None:
    """Y17: the log holds more than what was said in turn."""
    log = [
        said(0, "Begin.", About(kind=Kind.INSTRUCTION, audience=("Ann",))),
        said(1, "x", About(kind=Kind.DRAFT, speaker="Ann", audience=NOBODY)),
        said(2, "Hello", About(kind=Kind.SPEECH, speaker="Ann")),
        result(3, "4", speaker="Ann", call_id="c"),
    ]
    assert [message.text for message in speeches(log)] == ["Hello"]


def test_a_tools_answer_is_heard_by_its_caller_only() -> None:
    message = result(3, "no", speaker="Ann", call_id="c9", failure=Failure.TOOL)
    assert line(message) == About(
        kind=Kind.TOOL_RESULT, speaker="Ann", audience=("Ann",), failure=Failure.TOOL
    )
    assert isinstance(message, ToolMessage)
    assert (message.tool_call_id, message.status, place_of(message)) == ("c9", "error", "m0003")
    assert set(message.additional_kwargs) == {KEY, PLACE}
