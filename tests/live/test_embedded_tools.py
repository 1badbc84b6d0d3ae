"""Tests that the embedded model calls tools by a schema."""

from typing import Any, Literal

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from pydantic import BaseModel, Field

from duologue.graphs import aconverse, load_conversation
from support.log import fields_of, of_kind
from support.models import Models, chosen, greet
from support.results import outcome_of
from support.tables import read_rows

pytestmark = pytest.mark.live


@tool
def high_low(number: int) -> str:
    """Says whether the secret number is higher or lower."""
    return "higher"


class Node(BaseModel):
    value: int = Field(ge=1, le=9)
    children: list["Node"] = Field(default_factory=list)


class Odd(BaseModel):
    """An argument with parts that llama.cpp cannot turn into a grammar; they are left out."""

    pattern: str = Field(pattern="abc", max_length=100_000)
    anything: Any
    node: Node
    kind: Literal["a", 'b\n"ü']
    counts: dict[str, int] = Field(default_factory=dict)
    pair: tuple[int, str] = (1, "a")
    maybe: int | None = None


FREE = {
    "properties": {
        "bound": {"type": ["integer", "null"], "maximum": 5},
        "not": {"not": {"type": "null"}},
        "id": {"type": "string", "format": "uuid"},
        "any": {},
        "unknown": {"type": "foo"},
    },
    "required": ["not", "unknown", "missing"],
    "additionalProperties": True,
}


def made(name: str, schema: object) -> StructuredTool:
    given: Any = schema
    return StructuredTool(name=name, description="Does it.", args_schema=given, func=lambda **_: 1)


async def ask(
    *messages: Any,
    tools: list[BaseTool],
    choice: str,
    **parameters: object,
) -> AIMessage:
    model = await Models().get("embedded", lambda _: None)
    return await greet(
        model,
        [SystemMessage("Guess a number."), *messages],
        settings=chosen(temperature=0.2, **parameters),
        speaker="Ann",
        tools=tools,
        tool_choice=choice,
    )


@pytest.mark.exhaustive
async def test_it_calls_a_tool_and_speaks_after_the_result() -> None:
    guess = HumanMessage("Guess.")
    first = await ask(guess, tools=[high_low], choice="required")
    assert first.content == ""
    [called] = first.tool_calls
    assert called["name"] == "high_low"
    assert isinstance(called["args"]["number"], int)
    asked = AIMessage("", tool_calls=[{**called, "id": "c1"}])
    told = ToolMessage("higher", tool_call_id="c1")
    answer = await ask(guess, asked, told, tools=[high_low], choice="none", max_tokens=20)
    assert answer.text.strip()
    assert answer.tool_calls == []


@pytest.mark.exhaustive
async def test_with_auto_it_calls_or_speaks_and_shows_no_json() -> None:
    answer = await ask(HumanMessage("Hello."), tools=[high_low], choice="auto", max_tokens=60)
    assert not (answer.text and (answer.tool_calls or answer.invalid_tool_calls))
    assert '"reply"' not in answer.text


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "odd",
    [
        made("one.tool", Odd),
        made('q"ü', {"type": "object"}),
        made("free", FREE),
    ],
    ids=lambda one: one.name,
)
async def test_its_server_takes_the_schemas_of_odd_tools(odd: StructuredTool) -> None:
    # A few tokens are enough: the test only needs the server to build a grammar.
    answer = await ask(HumanMessage("Go."), tools=[odd, high_low], choice=odd.name, max_tokens=12)
    names: list[str | None] = [call["name"] for call in answer.tool_calls]
    names += [call["name"] for call in answer.invalid_tool_calls]
    assert names == [odd.name]


@pytest.mark.exhaustive
async def test_a_conversation_calls_a_tool_over_http_and_finishes() -> None:
    """Y18: the call, the tool's own answer as the message, and a reply after a seen result."""
    conversation = load_conversation(read_rows(__file__, "guessed"))
    for speaker in conversation.speakers:
        assert speaker.tool_calling is None
    result = await aconverse(conversation, store="memory:")
    answers = [message for message in result.messages if isinstance(message, ToolMessage)]
    assert [fields_of(answer).speaker for answer in answers] == ["Master", "Player"]
    for answer in answers:
        assert answer.status == "success"
        assert "number is" in answer.text or "you won" in answer.text
    (master, first), (player, _) = result.transcript
    assert (master, first, player) == ("Master", answers[0].text, "Player")
    assert outcome_of(result).total.calls == 3


@pytest.mark.exhaustive
async def test_it_may_speak_beside_a_call() -> None:
    """G1: its words are said once, and the tool does not see them."""
    spec = load_conversation(read_rows(__file__, "speaks_beside"))
    result = await aconverse(spec, model="embedded", tools=[high_low], store="memory:")
    called = of_kind(result.messages, "tool_calls")
    assert called
    for message in called:
        assert isinstance(message, AIMessage)
        assert all("to_user" not in call["args"] for call in message.tool_calls)
        assert message.text == "\n\n".join(fields_of(message).to_user.values())
