"""Prompts have an order of messages that every provider accepts, in every kind of conversation.

Mistral's API refuses a message of the user directly after a result. Mistral's chat template under
vLLM wants user and assistant in turn, without the messages that carry calls.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.tools import BaseTool, tool

from duologue.graphs import (
    Conversation,
    Reason,
    Result,
    Session,
    ask,
    chat,
    converse,
    load_conversation,
    remember,
)
from duologue.nodes.testing import Line, Reply, ScriptedToolCall

from .fakes import client_of, fake

APIS: Final = {"mistral": {}, "vllm": {"alternates": "without calls"}}


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
def photo() -> list[dict[str, Any]]:
    """Take a picture."""
    image = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
    return [{"type": "text", "text": "A bee."}, image]


@tool
def fail() -> str:
    """Fail."""
    raise ValueError("out of order")


TOOLS: Final[list[BaseTool]] = [add, photo, fail]

DATA: Final = tomllib.loads(Path(__file__).with_name("orders.toml").read_text("utf-8"))

_NUMBERS = iter(range(10**6))


def calls(*names: str, text: str = "", **args: Any) -> Reply:
    """Return a reply that calls these tools, each with an id that Mistral accepts."""
    made = [
        ScriptedToolCall(name=name, args=args or _ARGS.get(name, {}), id=f"call{at:05}")
        for name, at in zip(names, _NUMBERS, strict=False)
    ]
    return Reply(text=text, tool_calls=made)


_ARGS: Final[dict[str, dict[str, Any]]] = {"add": {"a": 2}}
CALL: Final = ToolCall(name="add", args={"a": 2}, id="before001", type="tool_call")
FINE: Final = ["I heard it.", "Then this is my second point.", "And I add mine to it."]
PARTS: Final[dict[str, Any]] = {
    "HANDOFF": DATA["handoff"],
    "OVER": {"to": "Bob", "message": "Bob, it is your part."},
    "YES": {"objectives_left": [], "complete": True},
    "NO": {"objectives_left": ["More."], "complete": False},
    "ASK": HumanMessage("What is two and one?"),
    "CALL": AIMessage("", tool_calls=[CALL]),
    "RESULT": ToolMessage("3", tool_call_id="before001"),
    "ANSWER": AIMessage("Three."),
    "AGAIN": HumanMessage("And?"),
    "MORE": AIMessage("More."),
    "OWN": AIMessage("I said so."),
}


def expand(value: Any) -> Any:  # noqa: ANN401
    """Return a value of the data, with parts and replies instead of their descriptions."""
    match value:
        case str():
            return PARTS.get(value, value)
        case list():
            return [line for one in value for line in (FINE if one == "FINE" else [expand(one)])]
        case {"calls": names}:
            return calls(*names, text=value.get("text", ""), **expand(value.get("args", {})))
        case {"text": text, "words": number}:
            return f"{text} {'Well. ' * number}"
        case {"text": text, "finish_reason": reason}:
            return Reply(text=text, finish_reason=reason)
        case dict():
            return {name: expand(each) for name, each in value.items()}
    return value


def make_talk(kind: Mapping[str, Any]) -> Conversation:
    """Return the conversation of a kind: Ann has tools, the others have none."""
    fields = {**kind.get("fields", {})}
    names: Sequence[str] = fields.pop("speakers", ("Ann", "Bob"))
    others = [{"name": name, "task": "Listen."} for name in names[1:]]
    end_chat = {"max_iterations": kind.get("rounds", 2), **fields.pop("end_chat", {})}
    ann = {"name": "Ann", "tools": ["add", "photo", "fail"], **kind.get("ann", {})}
    found = {"task": "Count.", "speakers": [ann, *others], "end_chat": end_chat}
    return load_conversation({**found, **fields})


def play(api: str, kind: Mapping[str, Any]) -> Result:
    """Play a conversation on a fake that refuses prompts in a wrong order."""
    with fake(api, _repeat_last(kind["script"]), **APIS[api]) as server:
        store = f"memory:{uuid4().hex}"
        result = converse(make_talk(kind), model=client_of(api, server), tools=TOOLS, store=store)
        assert not server.refused
        assert len(server.calls) >= len(kind["script"]) - 1
    return result


def _repeat_last(script: Sequence[Line]) -> Any:  # noqa: ANN401
    left = iter(script)
    more = iter(range(100))
    return lambda *_: next(left, f"I have {next(more)} more words.")


@pytest.mark.part(6)
@pytest.mark.parametrize("name", DATA["kinds"])
@pytest.mark.parametrize("api", APIS)
def test_each_prompt_of_a_conversation_has_an_accepted_order(api: str, name: str) -> None:
    """R27: neither Mistral's API nor its chat template refuses a prompt."""
    result = play(api, expand(DATA["kinds"][name]))
    assert result.outcome is not None
    assert result.outcome.reason in (Reason.MAX_ITERATIONS, Reason.COMPLETED)


@pytest.mark.parametrize("api", APIS)
def test_a_message_that_cancels_a_call_has_an_accepted_place(api: str) -> None:
    """R27, A8: a person writes a message instead of an approval."""
    spec = chat("Go.", tools=["add"], interrupt_on={"add": True})
    script: list[Line] = [calls("add", text="I add."), "As you wish.", "Again."]
    with fake(api, script, **APIS[api]) as server:
        given: dict[str, Any] = {"model": client_of(api, server), "tools": TOOLS}
        store = f"memory:{uuid4().hex}"
        converse(spec, session="s", store=store, **given)
        Session("s", store=store).add_message("User", "Do not.")
        result = Session("s", store=store).resume(**given)
        result = Session("s", store=store).answer("And now?", **given)
        assert not server.refused
    assert result.transcript[-1] == ("Assistant", "Again.")


@pytest.mark.parametrize("api", APIS)
def test_a_remembered_conversation_has_an_accepted_order(api: str) -> None:
    """R27: a memory of calls, with which `remember` begins the next conversation."""
    script: list[Line] = [calls("add"), "It is 3.", "It was 3.", calls("add"), "It is 3 again."]
    with fake(api, script, **APIS[api]) as server:
        given: dict[str, Any] = {"model": client_of(api, server), "store": f"memory:{uuid4().hex}"}
        agent: Any = {"name": "Ann", "tools": ["add"]}
        first = ask(agent, "Add.", tools=[add], **given)
        again = remember(agent, first)
        second = ask(again, "What was it?", tools=[add], **given)
        assert second.text == "It was 3."
        third = ask(remember(agent, first, second), "Add once more.", tools=[add], **given)
        assert not server.refused
    assert third.text == "It is 3 again."
