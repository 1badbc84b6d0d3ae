"""The log's reducer: append, replace by id, and the same log however the writes are batched."""

from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage

from duologue.graphs.log import (
    KEY,
    NOBODY,
    Failure,
    Kind,
    Line,
    append,
    line,
    message_id,
    result,
    said,
    speeches,
)

IDS = st.sampled_from([None, "m1", "m2", "m3", "m4"])
MESSAGES: st.SearchStrategy[AnyMessage] = st.one_of(
    st.builds(lambda text, key: HumanMessage(text, id=key), st.text(max_size=3), IDS),
    st.builds(lambda text, key: AIMessage(text, id=key, name="Ann"), st.text(max_size=3), IDS),
    st.builds(
        lambda text, key: ToolMessage(text, id=key, tool_call_id="c"), st.text(max_size=3), IDS
    ),
)
WRITES = st.lists(st.one_of(MESSAGES, st.lists(MESSAGES, max_size=3)), max_size=6)


def test_new_messages_go_behind_the_old_ones() -> None:
    first, second = HumanMessage("a", id="m0000"), AIMessage("b", id="m0001")
    log = append([first], [[second], HumanMessage("c")])
    assert [message.text for message in log] == ["a", "b", "c"]
    assert log[:2] == [first, second]


def test_a_message_with_a_known_id_takes_the_others_place() -> None:
    log = append([], [[HumanMessage("a", id="m0"), HumanMessage("b", id="m1")]])
    log = append(log, [AIMessage("A", id="m0"), AIMessage("A again", id="m0")])
    assert [(message.type, message.text) for message in log] == [("ai", "A again"), ("human", "b")]


def test_messages_without_an_id_are_never_taken_for_one_another() -> None:
    log = append([HumanMessage("a")], [[HumanMessage("a"), HumanMessage("a")]])
    assert [message.text for message in log] == ["a", "a", "a"]


def test_messages_may_come_as_dicts() -> None:
    dicts: list[Any] = [
        {"role": "user", "content": "a", "id": "m0"},
        {"role": "assistant", "content": "b", "id": "m1"},
    ]
    log = append([], [dicts, {"role": "user", "content": "A", "id": "m0"}])
    assert [(type(message), message.text, message.id) for message in log] == [
        (HumanMessage, "A", "m0"),
        (AIMessage, "b", "m1"),
    ]


@settings(max_examples=300, deadline=None)
@given(log=st.lists(MESSAGES, max_size=4), writes=WRITES, data=st.data())
def test_the_log_does_not_depend_on_how_writes_are_batched(
    log: list[BaseMessage], writes: list[Any], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(writes)), max_size=4), label="cuts"))
    batched = append(log, [])
    for start, stop in zip([0, *cuts], [*cuts, len(writes)], strict=True):
        batched = append(batched, writes[start:stop])
    assert batched == append(log, writes)


@settings(max_examples=100, deadline=None)
@given(log=st.lists(MESSAGES, max_size=4), writes=WRITES)
def test_neither_the_old_log_nor_the_writes_are_changed(
    log: list[BaseMessage], writes: list[Any]
) -> None:
    before = deepcopy((log, writes))
    append(log, writes)
    assert (log, writes) == before


def test_what_stands_beside_a_message_survives_the_way_through_plain_values() -> None:
    about = Line(kind=Kind.DRAFT, speaker="Ann", audience=NOBODY, problem="It was empty.")
    message = said(7, "hm", about)
    stored = append([], [message.model_dump()])
    assert line(message) == about
    assert line(stored[0]) == about
    assert stored[0].id == message_id(7)


def test_a_message_from_elsewhere_is_an_instruction_to_all() -> None:
    assert line(HumanMessage("Hello")) == Line(kind=Kind.INSTRUCTION)
    assert line(HumanMessage("Hello")).heard_by("Ann")


def test_only_turns_are_speeches() -> None:
    """Y17: the log holds more than what was said in turn."""
    log = [
        said(0, "Begin.", Line(kind=Kind.INSTRUCTION, audience=("Ann",))),
        said(1, "x", Line(kind=Kind.DRAFT, speaker="Ann", audience=NOBODY)),
        said(2, "Hello", Line(kind=Kind.SPEECH, speaker="Ann")),
        result(3, "4", speaker="Ann", call_id="c"),
    ]
    assert [message.text for message in speeches(log)] == ["Hello"]


def test_a_tools_answer_is_heard_by_its_caller_only() -> None:
    message = result(3, "no", speaker="Ann", call_id="c9", failure=Failure.TOOL)
    assert line(message) == Line(
        kind=Kind.TOOL_RESULT, speaker="Ann", audience=("Ann",), failure=Failure.TOOL
    )
    assert isinstance(message, ToolMessage)
    assert (message.tool_call_id, message.status, message.id) == ("c9", "error", "m0003")
    assert set(message.additional_kwargs) == {KEY}
