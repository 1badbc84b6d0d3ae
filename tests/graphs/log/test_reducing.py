"""The log's reducer: append, replace by id, remove; the grouping of writes does not matter."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import ormsgpack
import pytest
from hypothesis import given, strategies as st
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer, _msgpack_ext_hook_to_json
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from duologue.graphs import build_graph
from support.cases import drawn_cases
from support.log import (
    KEY,
    Stage,
    append,
    fields_of,
    kind_of,
    log_of,
    make_line,
    make_metadata,
    make_tool_line,
    place_of,
)

IDS = st.sampled_from([None, "m1", "m2", "m3", "m4"])
CALL_IDS = st.sampled_from(["c1", "c2"])
MESSAGES: st.SearchStrategy[AnyMessage] = st.one_of(
    st.builds(lambda text, key: HumanMessage(text, id=key), st.text(max_size=3), IDS),
    st.builds(lambda text, key: AIMessage(text, id=key, name="Ann"), st.text(max_size=3), IDS),
    st.builds(
        lambda call, key: AIMessage(
            "", id=key, tool_calls=[tool_call(name="add", args={}, id=call)]
        ),
        CALL_IDS,
        IDS,
    ),
    st.builds(
        lambda text, key, call: ToolMessage(text, id=key, tool_call_id=call),
        st.text(max_size=3),
        IDS,
        CALL_IDS,
    ),
    st.builds(
        lambda text, key: make_line(0, text, speaker="Ann", id=key),
        st.text(max_size=1),
        st.sampled_from(["m1", "m2"]),
    ),
    st.builds(
        lambda key, heard: make_line(0, "as a hook made it", heard).model_copy(update={"id": key}),
        IDS,
        st.builds(
            lambda one: make_metadata("hook_version", audience=("Ann",), instead_of=(one,)),
            st.sampled_from(["m1", "m2"]),
        ),
    ),
    st.builds(
        lambda text, key: HumanMessage(text, id=key, additional_kwargs={KEY: {"kind": "input"}}),
        st.text(max_size=1),
        IDS,
    ),
)
REMOVALS = st.builds(
    lambda key: RemoveMessage(id=key), st.sampled_from(["m1", "m2", "m9", REMOVE_ALL_MESSAGES])
)
WRITTEN = st.one_of(MESSAGES, REMOVALS)
WRITES = st.lists(st.one_of(WRITTEN, st.lists(WRITTEN, max_size=3)), max_size=6)


def as_the_server_reads(value: Any) -> Any:  # noqa: ANN401
    """Return a value as LangGraph's dev server reads it from its store: messages as dicts."""
    _, stored = JsonPlusSerializer().dumps_typed(value)
    options = ormsgpack.OPT_NON_STR_KEYS
    return ormsgpack.unpackb(stored, ext_hook=_msgpack_ext_hook_to_json, option=options)


APPENDED: dict[str, tuple[list[AnyMessage], list[Any], list[AnyMessage]]] = {
    "new messages come last": (
        [HumanMessage("a", id="m0")],
        [[AIMessage("b", id="m1")], HumanMessage("c", id="m2")],
        [HumanMessage("a", id="m0"), AIMessage("b", id="m1"), HumanMessage("c", id="m2")],
    ),
    "a known id takes the other's place": (
        [HumanMessage("a", id="m0"), HumanMessage("b", id="m1")],
        [AIMessage("A", id="m0"), AIMessage("A again", id="m0")],
        [AIMessage("A again", id="m0"), HumanMessage("b", id="m1")],
    ),
    "dicts": (
        [],
        [
            [{"role": "user", "content": "a", "id": "m0"}],
            {"role": "assistant", "content": "b", "id": "m1"},
            {"role": "user", "content": "A", "id": "m0"},
        ],
        [HumanMessage("A", id="m0"), AIMessage("b", id="m1")],
    ),
}


@pytest.mark.parametrize(("log", "writes", "expected"), APPENDED.values(), ids=APPENDED)
def test_messages_are_appended_or_replace_those_with_the_same_id(
    log: list[AnyMessage], writes: list[Any], expected: list[AnyMessage]
) -> None:
    assert append(log, writes) == expected


def test_messages_without_an_id_are_never_taken_for_one_another() -> None:
    log = append([HumanMessage("a")], [[HumanMessage("a"), HumanMessage("a")]])
    assert [message.text for message in log] == ["a", "a", "a"]


@drawn_cases(20, 600, log=st.lists(MESSAGES, max_size=4), writes=WRITES, data=st.data())
def test_the_log_does_not_depend_on_how_writes_are_batched(
    log: list[BaseMessage], writes: list[Any], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(writes)), max_size=4), label="cuts"))
    batched = append(log, [])
    for start, stop in zip([0, *cuts], [*cuts, len(writes)], strict=True):
        batched = append(batched, writes[start:stop])
    assert batched == append(log, writes)


@drawn_cases(20, 300, log=st.lists(MESSAGES, max_size=4), writes=WRITES)
def test_neither_the_old_log_nor_the_writes_are_changed(
    log: list[BaseMessage], writes: list[Any]
) -> None:
    before = deepcopy((log, writes))
    append(log, writes)
    assert (log, writes) == before


LOG: list[AnyMessage] = [
    make_line(0, "Begin.", "instruction", audience=("Ann",)),
    make_line(
        1,
        "I add.",
        "tool_calls",
        speaker="Ann",
        tool_calls=[tool_call(name="add", args={"a": [1, {"b": None}]}, id="c1")],
        invalid_tool_calls=[invalid_tool_call(name="add", args="{", id="c2", error="no JSON")],
    ),
    make_tool_line(2, "4", speaker="Ann", call_id="c1"),
    make_tool_line(3, "no JSON", speaker="Ann", call_id="c2"),
    make_line(4, "It is 4.", speaker="Ann"),
    make_line(5, "It is FOUR.", "hook_version", audience=("Ben",), instead_of=("m0004",)),
]


def kinds(log: list[AnyMessage]) -> list[str]:
    return [kind_of(message) for message in log]


@pytest.mark.parametrize(
    ("place", "text", "is_edited"),
    [(4, "It is 5.", True), (4, "It is 4.", False), (1, "I sum.", True), (0, "Go.", False)],
)
def test_an_edited_message_keeps_its_place_its_speaker_and_what_it_is(
    place: int, text: str, is_edited: bool
) -> None:
    """An edited message keeps its place, speaker and kind; a reply with new text is marked."""
    old = LOG[place]
    edits: list[AnyMessage] = [
        AIMessage(text, id=old.id),
        old.model_copy(update={"content": text, "additional_kwargs": {"shown": True}}),
    ]
    for new in edits:
        log = append(LOG, [new])
        assert [one.id for one in log] == [one.id for one in LOG]
        assert (log[place].text, log[place].name) == (text, old.name)
        assert place_of(log[place]) == place_of(old)
        assert fields_of(log[place]) == fields_of(old).model_copy(update={"edited": is_edited})
    damaged = old.model_copy(update={"additional_kwargs": {KEY: {"kind": 7, "audience": "?"}}})
    assert append([damaged], [edits[0]])[0].text == text


def removed(wanted: int, log: Sequence[AnyMessage] = LOG) -> list[str]:
    """Return the ids of the messages marked as removed after this one is removed."""
    messages = append(log, [RemoveMessage(id=str(log[wanted].id))])
    found = log_of({"messages": messages})
    return [place_of(message) for message in found if kind_of(message) == "removed"]


@drawn_cases(20, 400, log=st.lists(MESSAGES, max_size=4), writes=WRITES)
def test_writes_that_come_as_dicts_are_the_same(log: list[AnyMessage], writes: list[Any]) -> None:
    assert append(log, as_the_server_reads(writes)) == append(log, writes)


def test_nothing_of_a_message_is_lost_where_it_comes_as_a_dict() -> None:
    assert append([], as_the_server_reads(LOG)) == LOG


def test_a_snapshot_of_dicts_is_read_as_messages_where_nothing_was_written_since() -> None:
    channel: Any = build_graph().channels["messages"]
    read = channel.from_checkpoint(_DeltaSnapshot(as_the_server_reads(LOG)))
    assert read.get() == LOG


def test_a_removed_message_keeps_its_place_its_text_and_what_it_was() -> None:
    log = append(LOG, [RemoveMessage(id=str(LOG[0].id))])
    assert [message.id for message in log] == [message.id for message in LOG]
    assert log[0].text == "Begin."
    was = make_metadata("instruction", audience=("Ann",))
    assert fields_of(log[0]) == make_metadata("removed", audience=(), was=was)
    assert log[1:] == LOG[1:]


def test_results_go_with_the_calls_that_they_belong_to() -> None:
    assert removed(1) == ["m0001", "m0002", "m0003"]
    assert removed(2) == ["m0002"]


def test_what_a_hook_made_of_a_message_goes_with_it() -> None:
    assert removed(4) == ["m0004", "m0005"]
    # The speaker then hears the original message.
    assert removed(5) == ["m0005"]


def test_an_opening_answer_that_was_handed_on_goes_with_it() -> None:
    opening = make_metadata("speech", speaker="Ann", audience=("Ann",), stage=Stage.OPENING)
    log = [
        make_line(0, "Roses.", opening),
        make_line(1, "Roses.", "opening_answer", speaker="Ann", audience=("Ben",)),
        make_line(2, "Roses.", speaker="Ann"),
    ]
    assert removed(0, log) == ["m0000", "m0001"]
    assert removed(2, log) == ["m0002"]


def test_all_can_be_removed_at_once_but_what_is_written_behind_that() -> None:
    new = HumanMessage("Anew.", id="m0006")
    log = append(LOG, [[RemoveMessage(id=REMOVE_ALL_MESSAGES), new]])
    assert kinds(log) == ["removed"] * 6 + ["instruction"]


def test_removing_what_is_not_there_or_twice_changes_nothing() -> None:
    assert append(LOG, [RemoveMessage(id="m9999")]) == LOG
    twice = RemoveMessage(id=str(LOG[4].id))
    once = append(LOG, [twice])
    assert append(once, [twice]) == once


def test_a_message_from_elsewhere_can_be_removed() -> None:
    log = append(
        [HumanMessage("Hi", id="x"), AIMessage("?")], [{"type": "remove", "id": "x", "content": ""}]
    )
    assert fields_of(log[0]) == make_metadata("removed", audience=())
    assert log[0].additional_kwargs == {KEY: {"kind": "removed", "audience": []}}
    assert kind_of(log[1]) == "instruction"


LINES = st.lists(st.integers(0, 8), unique=True, max_size=6).map(
    lambda places: [make_line(place, f"{place}", speaker="A") for place in places]
)


@given(messages=LINES)
def test_the_log_is_in_the_order_of_places(messages: list[AnyMessage]) -> None:
    found = log_of({"messages": messages})
    assert [place_of(one) for one in found] == sorted(place_of(one) for one in messages)


def test_a_message_from_elsewhere_stands_behind_the_one_before_it() -> None:
    from_elsewhere = HumanMessage("And?", id="x")
    found = log_of({"messages": [*LOG[:2], from_elsewhere, *LOG[2:]]})
    assert [place_of(one) for one in found[1:4]] == ["m0001", "x", "m0002"]
