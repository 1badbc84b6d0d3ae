"""Tests of tool calls as servers send them, with broken JSON among them (Y19)."""

import json
import re
import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from langchain_core.messages import AIMessage, HumanMessage, InvalidToolCall, ToolMessage
from langchain_core.messages.tool import ToolCall
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import ValidationError

from duologue.nodes.models.answers import RAW
from duologue.nodes.models.call_pieces import CallJoiner, join_calls
from duologue.nodes.models.tool_calls import (
    find_registered,
    normalise_calls,
    read_call,
    read_calls,
    recover_answer,
    rename_tools,
    wire_names,
)
from support.tables import each_row, read_rows

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


@pytest.mark.parametrize("arguments", ["", None, "null", '""', "  ", '{"city":', '"{\\"city\\":'])
@pytest.mark.parametrize("place", [0, 1])
def test_no_call_of_an_answer_without_an_end_runs_unless_its_arguments_are_whole(
    arguments: str | None, place: int
) -> None:
    calls = [
        {"index": number, "id": f"c{number}", "name": "clock", "arguments": "{}"}
        for number in range(2)
    ]
    calls[place] = {**calls[place], "arguments": arguments}
    good, broken = read_calls([calls], cut_off=True)
    assert [call["id"] for call in good] == [f"c{1 - place}"]
    assert [call["id"] for call in broken] == [f"c{place}"]
    assert "cut off" in str(broken[0]["error"])


# Streams


SHAPES = tomllib.loads(Path(__file__).with_name("streamed_calls.toml").read_text())["shape"]


def test_the_pieces_of_a_call_are_reported_with_its_text() -> None:
    """`to_user` is shown while a call arrives, so each piece is reported with its call."""
    for shape in SHAPES:
        joiner, seen = CallJoiner(), dict[int, str]()
        for event in shape["events"]:
            blank = {"id": None, "name": None, "arguments": None}
            pieces = [{**blank, **piece} for piece in event]
            if any(isinstance(piece["arguments"], dict) for piece in pieces):
                continue  # The reader of replies converts them to text.
            for call, text in joiner.add(pieces):
                seen[id(call)] = seen.get(id(call), "") + text
        texts = {id(call): "".join(call.pieces) for call in joiner.calls}
        assert {key: text for key, text in seen.items() if text} == {
            key: text for key, text in texts.items() if text
        }


def test_pieces_of_one_long_call_are_joined_in_linear_time() -> None:
    """The number of parses does not grow with the number of pieces that repeat the name."""
    piece = {"index": 0, "id": "a", "name": "look", "arguments": "x" * 9}
    first = {**piece, "arguments": '{"city": "'}
    last = {**piece, "arguments": '"}'}
    [call] = join_calls([[first], *([[piece]] * 20_000), [last]])
    assert call["arguments"] == '{"city": "' + "x" * 180_000 + '"}'


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


# Names that a provider would refuse

NAMES = tomllib.loads(Path(__file__).with_name("tool_names.toml").read_text("utf-8"))

ACCEPTED = re.compile(r"[a-zA-Z0-9_-]{1,64}")

ODD = st.one_of(
    st.text(min_size=1, max_size=90),
    st.text("ab._ -", min_size=1, max_size=4),
    st.sampled_from(["auto", "auto.", "none", "any", "required", "höchster Wert", "日本", "tool"]),
    st.text("a.", min_size=60, max_size=90),
)


@each_row("a_name_alone", "name", "wire")
def test_a_name_alone(name: str, wire: str) -> None:
    assert wire_names([name]) == {name: wire}


def test_a_long_name_keeps_its_beginning_and_differs_from_its_like() -> None:
    names = wire_names(["x" * 80 + "1", "x" * 80 + "2"])
    assert len(set(names.values())) == 2
    assert all(wire.startswith("x" * 55 + "_") and len(wire) == 64 for wire in names.values())


def test_names_that_come_out_the_same_are_told_apart() -> None:
    names = wire_names(["a.b", "a b", "a_b"])
    assert names["a_b"] == "a_b"
    assert len(set(names.values())) == 3
    assert all(wire.startswith("a_b") for wire in names.values())


@given(st.lists(ODD, max_size=8))
def test_all_are_accepted_and_different_and_lead_back(names: list[str]) -> None:
    mapped = wire_names(names)
    assert mapped.keys() == set(names)
    assert len(set(mapped.values())) == len(mapped)
    for name, wire in mapped.items():
        assert ACCEPTED.fullmatch(wire)
        assert wire not in {"auto", "none", "required", "any"}
        assert find_registered(wire, mapped) == name
        if ACCEPTED.fullmatch(name) and name not in {"auto", "none", "required", "any"}:
            assert wire == name


@given(st.lists(ODD, max_size=8, unique=True), st.data())
def test_the_order_does_not_matter(names: list[str], data: st.DataObject) -> None:
    assert wire_names(names) == wire_names(data.draw(st.permutations(names)))


@given(ODD, st.lists(ODD, max_size=5))
def test_other_tools_matter_only_where_names_collide(name: str, others: list[str]) -> None:
    alone = wire_names([name])[name]
    together = wire_names([name, *others])
    others_alone = {wire_names([other])[other] for other in others if other != name}
    if alone not in others_alone:
        assert together[name] == alone


@given(st.lists(ODD, max_size=5), st.lists(ODD, max_size=5))
def test_earlier_calls_change_no_name_on_offer(offered: list[str], called: list[str]) -> None:
    names = wire_names(offered)
    calls = [{"name": name, "args": {}, "id": "c"} for name in called]
    broken = [{"name": None, "args": "{", "id": "c", "error": None}]
    prompt = [AIMessage("", tool_calls=calls, invalid_tool_calls=broken)]
    [sent] = rename_tools(prompt, names)
    assert isinstance(sent, AIMessage)
    wires = [call["name"] for call in (*sent.tool_calls, *sent.invalid_tool_calls)]
    assert all(wire is not None and ACCEPTED.fullmatch(wire) for wire in wires)
    known = dict(zip([*called, ""], wires, strict=True))
    assert {name: known[name] for name in known.keys() & names} == {
        name: names[name] for name in known.keys() & names
    }
    assert len({*known.values(), *names.values()}) == len(known.keys() | names)
    assert [call["name"] for call in prompt[0].tool_calls] == called


@pytest.mark.parametrize(
    ("written", "meant"),
    NAMES["what_a_model_writes_leads_to_the_registered_name_or_stays"],
)
def test_what_a_model_writes_leads_to_the_registered_name_or_stays(
    written: str, meant: str
) -> None:
    assert find_registered(written, wire_names(["a.b", "add"])) == meant


def test_messages_without_odd_names_stay_the_same_objects() -> None:
    call = {"name": "add", "args": {}, "id": "c"}
    prompt = [
        HumanMessage("Hi"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("3", tool_call_id="c"),
        ToolMessage("3", tool_call_id="c", name="a.b"),
    ]
    sent = rename_tools(prompt, {})
    assert [new is old for new, old in zip(sent, prompt, strict=True)] == [True, True, True, False]
    assert sent[3].name == "a_b"
