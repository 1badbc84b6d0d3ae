"""Tests of tool calls as servers send them, with broken JSON among them (Y19)."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, strategies as st
from langchain_core.messages import AIMessage, InvalidToolCall
from langchain_core.messages.tool import ToolCall
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import ValidationError

from duologue.nodes.models.answers import RAW
from duologue.nodes.models.tool_calls import (
    normalise_calls,
    read_call,
    read_calls,
    recover_answer,
    wire_names,
)
from support.tables import read_rows

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1])
    | st.floats()
    | st.text(st.characters(codec=None)),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.text(st.characters(codec=None), max_size=5), inside, max_size=3)
    ),
    max_leaves=12,
)

SAVER = JsonPlusSerializer()


def nested(levels: int) -> str:
    return '{"a": ' + "[" * levels + "]" * levels + "}"


def check_stored(message: AIMessage) -> None:
    """Check that a checkpoint, a file and a prompt can store the message."""
    kind, data = SAVER.dumps_typed(message)
    back = SAVER.loads_typed((kind, data))
    assert (back.tool_calls, back.invalid_tool_calls) == (
        message.tool_calls,
        message.invalid_tool_calls,
    )
    again = AIMessage.model_validate_json(message.model_dump_json())
    assert (again.tool_calls, again.invalid_tool_calls) == (
        message.tool_calls,
        message.invalid_tool_calls,
    )
    calls = json.dumps(deepcopy(message.tool_calls), allow_nan=False, ensure_ascii=False)
    calls.encode()


def logged(call: ToolCall | InvalidToolCall) -> AIMessage:
    good = [call] if call["type"] == "tool_call" else []
    broken = [call] if call["type"] == "invalid_tool_call" else []
    return AIMessage("", tool_calls=good, invalid_tool_calls=broken)


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("  \n", {}),
        (None, {}),
        ("null", {}),
        ("{}", {}),
        ({"a": [1]}, {"a": [1]}),
        ('{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        ('{"a": 18446744073709551615, "b": -9223372036854775808}', {"a": 2**64 - 1, "b": -(2**63)}),
        (nested(90), json.loads(nested(90))),
    ],
)
def test_what_can_be_stored_is_kept_exactly(arguments: object, read: dict[str, Any]) -> None:
    call = read_call("add", arguments, "c1")
    assert call == {"type": "tool_call", "name": "add", "args": read, "id": "c1"}
    check_stored(logged(call))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        *read_rows(__file__, "what_can_not_is_a_broken_call_that_says_why_and_keeps_its_text"),
        ('{"a": ' + "1" * 5000 + "}", "a whole number has more than 64 bits; write it as text"),
        ('{"a": "\ud800"}', "at a, a text contains half a surrogate"),
        (nested(101), "nested more than 100 levels deep"),
        (nested(100_000), "nested more than 100 levels deep"),
        ({"a": (1,)}, "at a, a tuple is not JSON"),
        ({1: 2}, "a key is not text"),
        ({"a": float("nan")}, "a number is not finite"),
        (7, "must be a JSON object, not a number."),
    ],
)
def test_what_can_not_is_a_broken_call_that_says_why_and_keeps_its_text(
    arguments: object, why: str
) -> None:
    call = read_call("add", arguments, "c1")
    assert call["type"] == "invalid_tool_call"
    assert (call["name"], call["id"]) == ("add", "c1")
    assert why in str(call["error"])
    if isinstance(arguments, str) and arguments.isascii():
        assert call["args"] == arguments
    check_stored(logged(call))


@given(JSON, st.booleans())
def test_any_arguments_are_kept_exactly_or_make_a_broken_call(value: object, as_text: bool) -> None:
    sent = json.dumps(value) if as_text else value
    call = read_call("add", sent, "c1")
    check_stored(logged(call))
    if call["type"] == "tool_call":
        plain = value.strip() if isinstance(value, str) else value
        # An object may be encoded twice.
        assert call["args"] == ({} if plain in (None, "", "{}") else value)
    else:
        assert call["error"]


@given(st.text(st.characters(codec=None)) | st.text('{}[]":,0a\\ud8', max_size=30))
def test_any_text_for_arguments_is_read(text: str) -> None:
    check_stored(logged(read_call("add", text, "c1")))


@pytest.mark.parametrize("name", [None, "", 7, []])
def test_a_call_without_a_name_is_broken(name: object) -> None:
    call = read_call(name, "{}", None)
    assert call == {
        "type": "invalid_tool_call",
        "name": "",
        "args": "{}",
        "id": None,
        "error": "The call has no tool name.",
    }


def test_names_and_ids_are_such_as_can_be_stored() -> None:
    call = read_call("a\ud800", "{}", 7)
    assert (call["name"], call["id"]) == ("a?", "7")


@pytest.mark.parametrize("arguments", ['{"a": 1', "", '{"a": "b'])
def test_the_last_call_of_an_answer_that_was_cut_off_is_not_run(arguments: str) -> None:
    raw = [
        {"id": "c1", "name": "add", "arguments": '{"a": 1}'},
        {"id": "c2", "name": "add", "arguments": arguments},
    ]
    good, broken = read_calls([raw], cut_off=True)
    assert [call["id"] for call in good] == ["c1"]
    assert [(call["id"], call["args"]) for call in broken] == [("c2", arguments)]
    assert "cut off" in str(broken[0]["error"])
    whole = [raw[0], {**raw[1], "arguments": '{"a": 2}'}]
    assert len(read_calls([whole], cut_off=True)[0]) == 2


# A whole answer


def test_the_calls_of_any_model_get_registered_names_and_reasons() -> None:
    names = wire_names(["math.add", "höchster Wert"])
    answer = AIMessage(
        "Let me see.",
        tool_calls=[
            {"name": "math_add", "args": {"a": 1}, "id": "c1"},
            {"name": "höchster Wert", "args": {"a": 2**70}, "id": "c2"},
            {"name": "teleport", "args": {}, "id": None},
        ],
        invalid_tool_calls=[
            {"name": "math_add", "args": "{a", "id": "c3", "error": None},
            {"name": "hochster_Wert", "args": "{}", "id": "c4", "error": "too odd"},
            {"name": None, "args": None, "id": None, "error": None},
        ],
    )
    read = normalise_calls(answer, names)
    assert read.text == "Let me see."
    assert [(call["name"], call["id"]) for call in read.tool_calls] == [
        ("math.add", "c1"),
        ("teleport", None),
    ]
    assert [(call["name"], call["id"]) for call in read.invalid_tool_calls] == [
        ("höchster Wert", "c2"),
        ("math.add", "c3"),
        ("höchster Wert", "c4"),
        ("", None),
    ]
    assert all(call["error"] for call in read.invalid_tool_calls)
    assert read.invalid_tool_calls[2]["error"] == "too odd"
    assert json.loads(read.invalid_tool_calls[0]["args"] or "") == {"a": 2**70}
    check_stored(read)


def test_what_a_stream_brought_wins_over_what_langchain_made_of_it() -> None:
    raw = [[{"index": 0, "id": "c1", "name": "a_b", "arguments": '{"a": 1'}]]
    mended = [{"name": "a_b", "args": {"a": 1}, "id": "c1"}]
    answer = AIMessage("", tool_calls=mended, additional_kwargs={RAW: raw, "refusal": None})
    read = normalise_calls(answer, wire_names(["a.b"]))
    assert read.tool_calls == []
    assert [(call["name"], call["args"]) for call in read.invalid_tool_calls] == [
        ("a.b", '{"a": 1')
    ]
    assert read.additional_kwargs == {"refusal": None}


def test_a_message_that_langchain_refuses_to_make_is_a_broken_call() -> None:
    odd: Any = [{"name": "add", "args": [1, 2], "id": "c1"}]
    with pytest.raises(ValidationError) as caught:
        AIMessage("", tool_calls=odd)
    answer = recover_answer(caught.value)
    assert answer is not None
    [broken] = answer.invalid_tool_calls
    assert (broken["args"], broken["error"]) == (
        "[1, 2]",
        "The arguments of the tool must be a JSON object, not a list.",
    )


def test_other_faults_of_a_message_stay_what_they_are() -> None:
    with pytest.raises(ValidationError) as caught:
        AIMessage(7)  # type: ignore[call-overload]
    assert recover_answer(caught.value) is None
