"""Tests of tools with endpoints that do not support tool calls."""

import json
import re
from itertools import pairwise
from typing import Any, Literal

from hypothesis import given, strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import StructuredTool, tool
from pydantic import BaseModel, Field

from duologue.nodes.models.adapters.provider_parameters import form_of_calls
from duologue.nodes.models.tools_by_schema import (
    NO_CALL,
    answer_schema,
    describe_tool,
    prompt_with_tools,
    read_answer,
)
from support.tables import each_row


@tool
def high_low(number: int) -> str:
    """Says whether the secret number is higher.

    Or lower.
    """
    return "higher"


@tool("math.add")
def add(a: float, b: float = 0) -> float:
    """Adds two numbers."""
    return a + b


class Node(BaseModel):
    """A node."""

    value: int = Field(ge=1, le=9, description="What it\nweighs.")
    children: list["Node"] = Field(default_factory=list)


class Much(BaseModel):
    node: Node
    anything: Any
    pattern: str = Field(pattern="abc", max_length=100_000)
    choice: Literal["a", "b"] = "a"
    maybe: int | None = None
    counts: dict[str, int] = Field(default_factory=dict)
    yes: bool = True


def made(schema: object) -> StructuredTool:
    given: Any = schema
    return StructuredTool(
        name="made", description="Does much.", args_schema=given, func=lambda **_: 1
    )


CALL_ADD = {
    "type": "object",
    "properties": {
        "tool": {"const": "math.add"},
        "arguments": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
    "required": ["tool", "arguments"],
    "additionalProperties": False,
}


@each_row("the_schema_leaves_the_ways_that_the_choice_leaves", "choice", "ways")
def test_the_schema_leaves_the_ways_that_the_choice_leaves(choice: str, ways: list[str]) -> None:
    """Y18: the schema allows exactly the choices that the tool choice leaves."""
    schema = answer_schema([high_low, add], choice)
    found = [one["properties"] for one in schema.get("anyOf", [schema])]
    assert [one["tool"]["const"] if "tool" in one else "(speaks)" for one in found] == ways


def test_the_schema_of_one_tool() -> None:
    assert answer_schema([high_low, add], "math.add") == CALL_ADD
    sent = form_of_calls([add], "required")
    assert sent == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": CALL_ADD, "strict": False},
    }


KEPT = {
    *("type", "properties", "required", "additionalProperties", "const", "enum", "anyOf", "items"),
    *("minimum", "maximum"),
}
"""Keywords of which servers make a grammar."""


def test_what_servers_make_no_grammar_of_is_left_out() -> None:
    schema = answer_schema([made(Much)], "required")
    names = {*Much.model_fields, *Node.model_fields, "tool", "arguments"}
    assert {*re.findall(r'"(\w+)":', json.dumps(schema))} - names <= KEPT
    arguments = schema["properties"]["arguments"]["properties"]
    value = {"type": "integer", "minimum": 1, "maximum": 9}
    assert arguments["node"]["properties"]["value"] == value
    # A property may be called like a keyword.
    assert arguments["pattern"] == {"type": "string"}
    assert arguments["counts"]["additionalProperties"] == {"type": "integer"}
    # An empty schema would be an object to llama.cpp.
    assert "string" in arguments["anything"]["type"]
    for empty in ({"type": "object"}, {"type": "object", "properties": {}}):
        found = answer_schema([made(empty)], "required")["properties"]["arguments"]
        assert (found["type"], found["properties"]) == ("object", {})
        assert found["additionalProperties"] is False


@each_row("what_is_sent_of_an_argument")
def test_what_is_sent_of_an_argument(schema: object, slim: object) -> None:
    """An argument's schema is reduced; None means that anything is allowed."""
    given = {"type": "object", "properties": {"a": schema}}
    found = answer_schema([made(given)], "required")["properties"]["arguments"]["properties"]["a"]
    anything = {"type": ["string", "number", "boolean", "object", "array", "null"]}
    assert found == (slim or anything)


# Prompts


MADE = {"high_low": high_low, "add": add, "none": made({"type": "object"}), "much": made(Much)}


@each_row("a_tool_in_a_few_words", "name", "briefly", "words")
def test_a_tool_in_a_few_words(name: str, briefly: bool, words: str) -> None:
    assert describe_tool(MADE[name], briefly=briefly) == words


def test_what_an_argument_means_is_told_in_one_line() -> None:
    assert "value: whole number (What it weighs.)" in describe_tool(made(Much))


TALK: list[BaseMessage] = [
    SystemMessage("You guess."),
    HumanMessage("Guess.", name="Bob"),
    AIMessage(
        "Let me see.",
        name="Ann",
        tool_calls=[
            {"name": "high_low", "args": {"number": 50}, "id": "c1"},
            {"name": "gone.tool", "args": {"text": "ü"}, "id": "c2"},
        ],
    ),
    ToolMessage("higher", tool_call_id="c1"),
    ToolMessage("There is none.", tool_call_id="c2", status="error"),
    AIMessage("", tool_calls=[], invalid_tool_calls=[], name="Ann"),
]


def flat(messages: list[BaseMessage]) -> list[tuple[str, str]]:
    return [(message.type, str(message.text)) for message in messages]


def test_calls_and_results_stand_in_the_prompt_as_ordinary_text() -> None:
    made_ = prompt_with_tools([*TALK[:5], HumanMessage("Go on.")], (), "none", describe_tool)
    assert flat(made_) == [
        ("system", "You guess."),
        ("human", "Guess."),
        (
            "ai",
            'Let me see.\n{"tool": "high_low", "arguments": {"number": 50}}\n'
            '{"tool": "gone.tool", "arguments": {"text": "ü"}}',
        ),
        (
            "human",
            "Result of high_low: higher\n\nResult of gone.tool: There is none.\n\nGo on.",
        ),
    ]
    assert made_[2].name == "Ann"


def test_a_broken_call_stands_there_as_it_was_written() -> None:
    broken = {"name": "add", "args": "{a", "id": "c", "error": None}
    prompt = [AIMessage("", invalid_tool_calls=[broken]), ToolMessage("Bad.", tool_call_id="c")]
    assert flat(prompt_with_tools(prompt, (), "auto", describe_tool)) == [
        ("ai", "{a"),
        ("human", "Result of add: Bad."),
    ]


def test_the_tools_stand_in_the_system_prompt_whatever_the_choice() -> None:
    prompts = [
        prompt_with_tools(TALK, [high_low], choice, describe_tool)
        for choice in ("auto", "required", "high_low")
    ]
    assert prompts[0] == prompts[1] == prompts[2]
    system = prompts[0][0]
    assert isinstance(system, SystemMessage)
    assert str(system.text).startswith("You guess.\n\nTools:\n- high_low(")
    without = prompt_with_tools(TALK, [high_low], "none", describe_tool)
    # Everything except the last message stays the same, so the provider's prompt cache applies.
    assert without[: len(prompts[0])] == prompts[0]
    assert flat(without[len(prompts[0]) :]) == [("human", NO_CALL)]


def test_without_a_system_prompt_there_is_one_of_the_tools() -> None:
    made_ = prompt_with_tools([HumanMessage("Guess.")], [high_low], "none", describe_tool)
    assert [message.type for message in made_] == ["system", "human"]
    assert str(made_[1].text) == f"Guess.\n\n{NO_CALL}"


MESSAGES = st.lists(
    st.sampled_from(
        [
            HumanMessage("Hi"),
            HumanMessage("Hi", name="Bob"),
            AIMessage("Well."),
            AIMessage("", tool_calls=[{"name": "add", "args": {"a": 1}, "id": "c"}]),
            ToolMessage("1", tool_call_id="c"),
        ]
    ),
    max_size=8,
)


@given(MESSAGES, st.sampled_from(["auto", "required", "none"]), st.booleans())
def test_no_prompt_has_calls_results_or_two_turns_in_one_role(
    messages: list[BaseMessage], choice: str, any_tools: bool
) -> None:
    made_ = prompt_with_tools(
        [SystemMessage("You add."), *messages], [add] if any_tools else [], choice, describe_tool
    )
    kinds = [message.type for message in made_]
    assert kinds[0] == "system"
    assert set(kinds[1:]) <= {"human", "ai"}
    assert all(one != two for one, two in pairwise(kinds))
    assert not any(message.tool_calls for message in made_ if isinstance(message, AIMessage))
    assert all(message.text for message in made_)


# Answers


def read(text: str) -> AIMessage:
    answer = AIMessage(text, response_metadata={"finish_reason": "length"})
    return read_answer(answer, [high_low, add])


@each_row("an_answer_is_words_or_a_call_or_half_a_call")
def test_an_answer_is_words_or_a_call_or_half_a_call(
    text: str, said: str | None, called: dict[str, Any] | None, name: str | None, why: str | None
) -> None:
    answer = read(text)
    assert answer.content == (said or "")
    calls = [(call["name"], call["args"]) for call in answer.tool_calls]
    assert calls == ([] if called is None else [("math.add", called)])
    assert [call["name"] for call in answer.invalid_tool_calls] == ([] if name is None else [name])
    assert all(str(why) in str(call["error"]) for call in answer.invalid_tool_calls)
    assert answer.response_metadata["finish_reason"] == "length"


@given(st.text(max_size=40) | st.text('{}":,tolreapy \\', max_size=40))
def test_any_answer_is_read(text: str) -> None:
    read(text)
    read('{"tool": "math.add", "arguments": {"a": ' + text)
    read('{"reply": "' + text)


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_a_call_written_into_a_prompt_is_read_as_the_same_call(value: object) -> None:
    call = {"name": "x", "args": {"v": value}, "id": "c"}
    [written] = prompt_with_tools([AIMessage("", tool_calls=[call])], (), "auto", describe_tool)
    again = read_answer(AIMessage(str(written.text)), [])
    found = [made["args"] for made in again.tool_calls]
    assert found == [call["args"]] or len(again.invalid_tool_calls) == 1
