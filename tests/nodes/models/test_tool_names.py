"""Tests of tool names that a provider would refuse, such as names with a dot."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from duologue.nodes.models.tool_calls import find_registered, rename_tools, wire_names
from support.tables import each_row

ROWS = tomllib.loads(Path(__file__).with_name("tool_names.toml").read_text("utf-8"))

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
    ROWS["what_a_model_writes_leads_to_the_registered_name_or_stays"],
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
