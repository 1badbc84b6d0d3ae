"""Prompts have an order of messages that every provider accepts, in every kind of conversation.

Mistral's API refuses a message of the user directly after a result. Mistral's chat template under
vLLM wants user and assistant in turn, without the messages that carry calls.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
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

_NUMBERS = iter(range(10**6))


def calls(*names: str, text: str = "", **args: Any) -> Reply:
    """Return a reply that calls these tools, each with an id that Mistral accepts."""
    made = [
        ScriptedToolCall(name=name, args=args or _ARGS.get(name, {}), id=f"call{at:05}")
        for name, at in zip(names, _NUMBERS, strict=False)
    ]
    return Reply(text=text, tool_calls=made)


_ARGS: Final[dict[str, dict[str, Any]]] = {"add": {"a": 2}}
OVER: Final = {"to": "Bob", "message": "Bob, it is your part."}


class Kind(NamedTuple):
    """A kind of conversation: fields of its spec and of Ann, and the replies of its models."""

    script: Sequence[Line]
    ann: Mapping[str, Any] = MappingProxyType({})
    fields: Mapping[str, Any] = MappingProxyType({})
    rounds: int = 2


def use(name: str, result: str = "3") -> list[AnyMessage]:
    """Return a question, a call with its result, and an answer."""
    made = {"name": name, "args": {"a": 2}, "id": "before001", "type": "tool_call"}
    return [
        HumanMessage("What is two and one?"),
        AIMessage("", tool_calls=[made]),
        ToolMessage(result, tool_call_id="before001"),
        AIMessage("Three."),
    ]


ADD: Final = ["add", "photo", "fail"]
HANDOFF: Final[dict[str, Any]] = {"turn_order": "handoff", "speakers": ("Ann", "Bob", "Cid")}
YES: Final = {"objectives_left": [], "complete": True}
NO: Final = {"objectives_left": ["More."], "complete": False}
FINE: Final = ["I heard it.", "Then this is my second point.", "And I add mine to it."]

KINDS: Final[dict[str, Kind]] = {
    "a call and an answer": Kind([calls("add"), "It is 3.", *FINE]),
    "a handoff by its tool": Kind(
        [calls("hand_off", **OVER), calls("hand_off", to="Ann", message="Back to you."), *FINE],
        fields=HANDOFF,
    ),
    "a handoff with text beside the call": Kind(
        [calls("hand_off", text="I begin.", to="Bob"), "I go on.", *FINE], fields=HANDOFF
    ),
    "a handoff without text": Kind(
        [calls("hand_off", to="Bob"), "I go on.", *FINE], fields=HANDOFF
    ),
    "a private handoff": Kind(
        [calls("hand_off", **OVER, private=True), "I go on.", *FINE],
        fields={**HANDOFF, "turn_order": {"kind": "handoff", "private": True}},
    ),
    "two handoffs in a message": Kind(
        [calls("hand_off", "hand_off", **OVER), "I go on.", *FINE], fields=HANDOFF
    ),
    "a handoff after a tool": Kind(
        [calls("add"), calls("hand_off", **OVER), "I go on.", *FINE], fields=HANDOFF
    ),
    "a blank reply after a tool": Kind([calls("add"), "", "It is 3.", *FINE]),
    "two blank replies after a tool": Kind([calls("add"), "", "", *FINE]),
    "a blank reply after two rounds of tools": Kind(
        [calls("add"), calls("add", a=5), "", "It is 6.", *FINE]
    ),
    "a reply in another's name after a tool": Kind([calls("add"), "Bob: Hi.", "It is 3.", *FINE]),
    "equal calls": Kind([*[calls("add") for _ in range(5)], "It is 3.", *FINE]),
    "a picture in a result": Kind([calls("photo"), "A bee.", *FINE]),
    "pictures in results of one message": Kind(
        [calls("photo", "add", "photo"), calls("photo"), "Bees.", *FINE]
    ),
    "a blank reply after a picture": Kind([calls("photo"), "", "A bee.", *FINE]),
    "the last round of tools": Kind(
        [calls("add"), "It is 3.", *FINE], fields={"max_tool_rounds": 1}
    ),
    "a tool that fails": Kind([calls("fail"), calls("add"), "It is 3.", *FINE]),
    "a tool that does not exist": Kind([calls("nothing"), "I cannot.", *FINE]),
    "text beside a call": Kind([calls("add", text="Let me see."), "It is 3.", *FINE]),
    "text in a call": Kind(
        [calls("add", a=2, to_user="Let me see."), "It is 3.", *FINE],
        ann={"speaks_with_tool_calls": True},
    ),
    "a result that is the message": Kind([calls("add"), *FINE, "Done."], {"return_direct": True}),
    "results that are the message, with a picture": Kind(
        [calls("add", "photo"), *FINE, "Done."], {"return_direct": True}
    ),
    "calls at once": Kind([calls("add", "add", "fail"), "They are 3.", *FINE]),
    "all speak at once": Kind(
        [calls("add"), "It is 3.", *FINE], fields={"turn_order": "concurrent"}
    ),
    "a notice that the end is near": Kind(
        [calls("add"), "It is 3.", *FINE], fields={"end_chat": {"tell_rounds_left": True}}
    ),
    "a summary": Kind(
        [calls("add"), f"It is 3. {'Well. ' * 80}", *FINE[:1], "Ann added.", calls("add"), *FINE],
        {"context": {"kind": "summary", "limit": 500, "words": 20}},
        rounds=3,
    ),
    "the last messages only": Kind(
        [calls("add"), "It is 3.", *FINE], {"context": {"kind": "last", "limit": 1}}
    ),
    "a limit of tokens": Kind(
        [calls("add"), f"It is 3. {'Well. ' * 60}", *FINE],
        {"context": {"kind": "tokens", "limit": 300}},
    ),
    "an example with a tool": Kind(
        ["Yes.", *FINE], {"examples": [*use("add"), HumanMessage("And?"), AIMessage("More.")]}
    ),
    "examples with two calls": Kind([calls("add"), "Yes.", *FINE], {"examples": use("add") * 2}),
    "a memory that begins with own words": Kind(
        ["Yes.", *FINE], {"memory": [AIMessage("I said so.")]}
    ),
    "a memory that begins with a call": Kind(["Yes.", *FINE], {"memory": use("add")[1:]}),
    "a memory that ends with a result": Kind(["Yes.", *FINE], {"memory": use("add")[:3]}),
    "a memory with a question after a result": Kind(
        ["Yes.", *FINE], {"memory": [*use("add")[:3], HumanMessage("And?"), AIMessage("More.")]}
    ),
    "a speaker that judges its task": Kind(
        [calls("add"), "It is 3.", NO, FINE[0], FINE[1], YES],
        {"checks_completion": True, "keep_self_reflection": True},
        {"end_chat": {"mode": "end_chat_after_first_completion"}},
    ),
    "a judge after a result that is the message": Kind(
        [calls("add"), NO, FINE[0], FINE[1], YES],
        {"checks_completion": True, "return_direct": True},
        {"end_chat": {"mode": "end_chat_after_first_completion"}},
    ),
    "two questions to a speaker": Kind(
        [calls("add"), "It is 3.", "More.", "no", FINE[0], FINE[1], "Nothing.", "yes"],
        {"checks_completion": True},
        {
            "end_chat": {"mode": "end_chat_after_first_completion"},
            "judge": {"form": "two_questions"},
        },
    ),
    "a private secret and openings": Kind(
        ["Seven.", "I open.", "So do I.", calls("add"), "It is 3.", *FINE],
        {"private_opening": {"prompt": "Choose a number."}, "task": "Speak of one."},
        {"opening": {"answers": True, "reconcile": True}},
    ),
    "a reply that is cut off after a tool": Kind(
        [calls("add"), Reply(text="It is", finish_reason="length"), " three.", *FINE],
        {"on_length": "continue"},
    ),
}


def make_talk(kind: Kind) -> Conversation:
    """Return the conversation of a kind: Ann has tools, the others have none."""
    fields = {**kind.fields}
    names: Sequence[str] = fields.pop("speakers", ("Ann", "Bob"))
    others = [{"name": name, "task": "Listen."} for name in names[1:]]
    end_chat = {"max_iterations": kind.rounds, **fields.pop("end_chat", {})}
    ann = {"name": "Ann", "tools": ADD, **kind.ann}
    found = {"task": "Count.", "speakers": [ann, *others], "end_chat": end_chat}
    return load_conversation({**found, **fields})


def play(api: str, kind: Kind) -> Result:
    """Play a conversation on a fake that refuses prompts in a wrong order."""
    with fake(api, _repeat_last(kind.script), **APIS[api]) as server:
        store = f"memory:{uuid4().hex}"
        result = converse(make_talk(kind), model=client_of(api, server), tools=TOOLS, store=store)
        assert not server.refused
        assert len(server.calls) >= len(kind.script) - 1
    return result


def _repeat_last(script: Sequence[Line]) -> Any:  # noqa: ANN401
    left = iter(script)
    more = iter(range(100))
    return lambda *_: next(left, f"I have {next(more)} more words.")


@pytest.mark.part(6)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("api", APIS)
def test_each_prompt_of_a_conversation_has_an_accepted_order(api: str, kind: Kind) -> None:
    """R27: neither Mistral's API nor its chat template refuses a prompt."""
    result = play(api, kind)
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
