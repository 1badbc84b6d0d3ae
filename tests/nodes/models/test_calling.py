"""Tests of tools and tool calls over HTTP (Y18)."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from duologue.graphs import LabelledFormat, ModelError, SpecError, load_conversation, stream
from duologue.graphs.events import MessageSaid, MessageToken
from duologue.graphs.log.metadata import Reflection
from duologue.nodes.models.adapters.base import Offer, ToolCalling
from duologue.nodes.models.adapters.langchain import bind_tools
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.faulty_server import FaultyServer, Sent
from support.models import ChatModel, child_of, chosen, greet, model_of
from support.replies_in_bytes import chunk, json_of, stream_of
from support.tables import read_rows

LONG = "long " * 20


def made(name: str) -> StructuredTool:
    def count(n: int) -> int:
        return n

    return StructuredTool.from_function(count, name=name, description=f"This is {name}.")


TOOLS = [made("server.count"), made("höchster Wert"), made("server_count"), made(LONG.strip())]


def call(name: str, args: dict[str, Any] | str, call_id: str = "c1") -> ScriptedToolCall:
    return ScriptedToolCall(name=name, args=args, id=call_id)


def client(url: str, *, streaming: bool, kind: type[ChatOpenAI] = ChatModel) -> ChatOpenAI:
    return kind(
        model="scripted", base_url=url, api_key=SecretStr("k"), streaming=streaming, max_retries=0
    )


async def ask(
    server: ScriptedServer | FaultyServer,
    *,
    prompt: Sequence[BaseMessage] = (HumanMessage("Hi"),),
    streaming: bool = False,
    **options: Any,
) -> AIMessage:
    model = model_of("scripted", client(server.url, streaming=streaming))
    return await greet(model, prompt, **{"speaker": "Ann", "tools": TOOLS, **options})


def body(server: ScriptedServer, number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = server.calls[number].body
    return found


def offered(server: ScriptedServer) -> list[str]:
    return [one["function"]["name"] for one in body(server)["tools"]]


both_ways = pytest.mark.parametrize("streaming", [False, True])

# Names and choices


@both_ways
async def test_tools_are_offered_and_called_by_names_that_providers_take(streaming: bool) -> None:
    script = [
        Reply(
            tool_calls=(
                call("höchster Wert", {"n": 1}, "c1"),
                call("server_count", {"n": 2}, "c2"),
                call("teleport.now", {}, "c3"),
            )
        )
    ]
    with ScriptedServer(script) as server:
        answer = await ask(server, streaming=streaming)
        names = offered(server)
    assert names[1:3] == ["hochster_Wert", "server_count"]
    assert names[0].startswith("server_count_")
    assert len(names[3]) == 64
    assert "tool_choice" not in body(server)
    called = [made["name"] for made in answer.tool_calls]
    assert called == ["höchster Wert", "server_count", "teleport.now"]


async def test_every_name_that_was_offered_leads_back() -> None:
    with ScriptedServer(["Hi"]) as server:
        await ask(server)
        names = offered(server)
    calls = tuple(call(name, {"n": 1}, f"c{place}") for place, name in enumerate(names))
    with ScriptedServer([Reply(tool_calls=calls)]) as server:
        answer = await ask(server)
    assert [made["name"] for made in answer.tool_calls] == [one.name for one in TOOLS]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", None),
        ("required", "required"),
        ("none", "none"),
        ("server_count", {"type": "function", "function": {"name": "server_count"}}),
        ("höchster Wert", {"type": "function", "function": {"name": "hochster_Wert"}}),
    ],
)
async def test_the_choice_is_sent_in_openais_terms(choice: str, sent: object) -> None:
    """Y18: tool choice (auto, required, one tool, none)."""
    with ScriptedServer(["Hi"]) as server:
        await ask(server, tool_choice=choice)
    assert body(server).get("tool_choice") == sent
    # Tools are also sent if none may be called: providers require the tools that earlier calls
    # name.
    assert len(offered(server)) == len(TOOLS)


@pytest.mark.parametrize(
    ("choice", "said"),
    [("auto", None), ("required", "required"), ("none", "none"), ("server.count", "server_count")],
)
async def test_a_model_of_the_users_own_is_told_in_langchains_terms(
    choice: str, said: str | None
) -> None:
    chat = ScriptedChatModel(["Hi"])
    tools = [made("server.count")]
    await greet(model_of("own", chat), tools=tools, tool_choice=choice)
    assert chat.calls[0].tool_choice == said
    assert [one["function"]["name"] for one in chat.calls[0].tools] == ["server_count"]


async def test_one_of_anthropics_is_told_none_in_its_own_terms() -> None:
    # The code recognizes this class by its name and its package.
    claude = type("ChatAnthropic", (ScriptedChatModel,), {"__module__": "langchain_anthropic.own"})
    offer = Offer([made("count")], "none", {"count": "count"})
    chat = claude(script=["Hi."])
    await bind_tools(chat, "claude", offer).ainvoke([HumanMessage("Hi.")])
    assert chat.calls[0].kwargs["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize("calling", [None, "native", "schema"])
async def test_a_choice_of_a_tool_that_is_not_there_is_refused(calling: ToolCalling | None) -> None:
    chat = ScriptedChatModel([])
    with pytest.raises(SpecError, match="tool_choice: 'add' is not one of the speaker's tools"):
        await greet(model_of("own", chat), tools=TOOLS, tool_choice="add", tool_calling=calling)
    assert chat.calls == []


async def test_a_model_that_takes_no_tools_says_what_to_do() -> None:
    model = model_of("plain", FakeListChatModel(responses=["Hi"]))
    with pytest.raises(ModelError, match='plain can\'t call tools; set tool_calling = "schema"'):
        await greet(model, tools=TOOLS)


HISTORY: list[BaseMessage] = [
    SystemMessage("You count."),
    HumanMessage("Count."),
    AIMessage(
        "So:",
        tool_calls=[
            {"name": "server.count", "args": {"n": 1}, "id": "c1"},
            {"name": "server.gone", "args": {}, "id": "c2"},
        ],
        invalid_tool_calls=[{"name": None, "args": "{}", "id": "c3", "error": "x"}],
    ),
    ToolMessage("1", tool_call_id="c1"),
    ToolMessage("There is none.", tool_call_id="c2"),
    ToolMessage("No name.", tool_call_id="c3"),
]


@pytest.mark.parametrize("tools", [TOOLS, []])
async def test_earlier_calls_are_sent_by_names_that_providers_take(
    tools: list[StructuredTool],
) -> None:
    with ScriptedServer(["Done."]) as server:
        await ask(server, prompt=HISTORY, tools=tools)
    calls = body(server)["messages"][2]["tool_calls"]
    names = [made["function"]["name"] for made in calls]
    assert names[0] == (offered(server)[0] if tools else "server_count")
    assert names[1:] == ["server_gone", "tool"]
    assert HISTORY[2].tool_calls[0]["name"] == "server.count"  # type: ignore[attr-defined]


# Broken calls


def sending(*calls: Any, finish: str = "tool_calls") -> FaultyServer:
    """Return a server that answers with calls in any form: one message, or parts of a stream."""

    def answer(_: str, asked: dict[str, Any]) -> Sent:
        if asked.get("stream"):
            return stream_of(*(chunk({"tool_calls": [part]}) for part in calls), chunk({}, finish))
        message = {"role": "assistant", "content": None, "tool_calls": list(calls)}
        return json_of({"choices": [{"message": message, "finish_reason": finish}]})

    return FaultyServer(answer)


def sent(arguments: object, index: int | None = 0, name: object = "server_count") -> dict[str, Any]:
    made = {
        "id": f"c{index}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    return made if index is None else {**made, "index": index}


@pytest.mark.part(3)
@both_ways
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        *read_rows(__file__, "a_broken_call_comes_back_with_its_reason_beside_good_ones"),
        ('{"n": ' + "[" * 500 + "]" * 500 + "}", "nested more than 100 levels"),
    ],
)
async def test_a_broken_call_comes_back_with_its_reason_beside_good_ones(
    arguments: str, why: str, streaming: bool
) -> None:
    with sending(sent('{"n": 1}', 0), sent(arguments, 1), sent("{}", 2)) as server:
        answer = await ask(server, streaming=streaming, tools=[made("server.count")])
    assert [(made["id"], made["args"]) for made in answer.tool_calls] == [
        ("c0", {"n": 1}),
        ("c2", {}),
    ]
    [broken] = answer.invalid_tool_calls
    assert (broken["id"], broken["name"], broken["args"]) == ("c1", "server.count", arguments)
    assert why in str(broken["error"])


@both_ways
@pytest.mark.parametrize("arguments", ['{"n": 1', ""])
async def test_a_call_that_was_cut_off_is_not_run(arguments: str, streaming: bool) -> None:
    with sending(sent(arguments), finish="length") as server:
        answer = await ask(server, streaming=streaming)
    assert answer.tool_calls == []
    assert [made["args"] for made in answer.invalid_tool_calls] == [arguments]
    assert answer.response_metadata["finish_reason"] == "length"


async def test_a_model_of_the_users_own_that_raises_on_its_calls_is_told_so() -> None:
    class Raising(ScriptedChatModel):
        def _generate(self, *_: object, **__: object) -> ChatResult:
            odd: Any = [{"name": "a", "args": [1], "id": "c"}]
            return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=odd))])

        async def _agenerate(self, *_: object, **__: object) -> ChatResult:
            return self._generate()

    answer = await greet(model_of("own", Raising(script=[])), tools=TOOLS)
    assert [made["args"] for made in answer.invalid_tool_calls] == ["[1]"]
    assert answer.usage_metadata is not None


# Endpoints that cannot call tools

ADD = [made("math.add")]


@both_ways
async def test_by_schema_nothing_of_tools_is_on_the_wire_and_a_call_comes_back(
    streaming: bool,
) -> None:
    said = '{"tool": "math.add", "arguments": {"n": 7}}'
    with ScriptedServer([said]) as server:
        answer = await ask(
            server, prompt=HISTORY, tools=ADD, streaming=streaming, tool_calling="schema"
        )
    asked = body(server)
    assert "tools" not in asked
    assert "tool_choice" not in asked
    roles = [message["role"] for message in asked["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert not any("tool_calls" in message for message in asked["messages"])
    assert "math.add(n: whole number): This is math.add." in asked["messages"][0]["content"]
    assert asked["response_format"]["type"] == "json_schema"
    assert asked["response_format"]["json_schema"]["strict"] is False
    assert answer.content == ""
    assert [(made["name"], made["args"]) for made in answer.tool_calls] == [("math.add", {"n": 7})]
    assert answer.usage_metadata is not None


async def test_by_schema_words_are_words_and_cut_off_ones_say_so() -> None:
    cut = Reply(text='{"reply": "Once upon a ti', finish_reason="length")
    with ScriptedServer(['{"reply": "Hello."}', cut]) as server:
        whole = await ask(server, tools=ADD, tool_calling="schema")
        half = await ask(server, tools=ADD, tool_calling="schema")
    assert (whole.content, half.content) == ("Hello.", "Once upon a ti")
    assert half.response_metadata["finish_reason"] == "length"


async def test_by_schema_none_is_a_plain_answer() -> None:
    with ScriptedServer(["Hello."]) as server:
        answer = await ask(
            server, prompt=HISTORY, tools=ADD, tool_choice="none", tool_calling="schema"
        )
    assert "response_format" not in body(server)
    assert "tools" not in body(server)
    assert "math.add" in body(server)["messages"][0]["content"]
    assert answer.content == "Hello."


async def test_the_clients_own_extra_body_is_kept() -> None:
    with ScriptedServer(['{"reply": "Hi"}']) as server:
        chat = client(server.url, streaming=False).model_copy(update={"extra_body": {"top_k": 3}})
        await greet(model_of("scripted", chat), tools=ADD, tool_calling="schema")
    assert body(server)["top_k"] == 3


async def test_by_schema_a_model_of_the_users_own_is_asked_for_structured_output() -> None:
    chat = ScriptedChatModel([{"tool": "math.add", "arguments": {"n": 7}}, {"reply": "Hi"}, "Hm"])
    model = model_of("own", chat)
    answers = [
        await greet(model, tools=ADD, tool_choice=choice, tool_calling="schema")
        for choice in ("auto", "auto", "none")
    ]
    assert [made["args"] for made in answers[0].tool_calls] == [{"n": 7}]
    assert [answer.content for answer in answers[1:]] == ["Hi", "Hm"]
    assert chat.calls[0].schema is not None
    assert chat.calls[0].tools == ()
    assert chat.calls[2].schema is None


async def test_a_judge_of_such_an_endpoint_sees_no_calls_either() -> None:
    class Yes(BaseModel):
        yes: bool

    with ScriptedServer(['{"yes": true}', '{"yes": true}']) as server:
        model = model_of("scripted", client(server.url, streaming=False))
        for calling in ("schema", "native"):
            _, found = await model.answer_by_schema(
                HISTORY, Yes, chosen(), purpose=Reflection, instead="x", tool_calling=calling
            )
            assert found == Yes(yes=True)
    by_schema, native = (
        [message["role"] for message in body(server, number)["messages"]] for number in range(2)
    )
    assert by_schema == ["system", "user", "assistant", "user"]
    assert native == ["system", "user", "assistant", "tool", "tool", "tool"]


@pytest.mark.parametrize("local", [False, True])
async def test_models_in_a_child_of_ours_call_by_schema_unless_it_is_set(local: bool) -> None:
    with ScriptedServer(lambda _: "Hi") as server:
        make = child_of if local else model_of
        model = make("scripted", client(server.url, streaming=False))
        for calling in (None, "native", "schema"):
            await greet(model, tools=ADD, tool_calling=calling)
        by_schema = ["response_format" in asked.body for asked in server.calls]
        native = ["tools" in asked.body for asked in server.calls]
    assert by_schema == [local, False, True]
    assert native == [not local, True, False]


async def test_the_embedded_model_is_held_to_one_form_at_a_time() -> None:
    marks = LabelledFormat(lines=("Say:",))
    with ScriptedServer(lambda _: "Hi") as server:
        chat = client(server.url, streaming=False)
        model = child_of("scripted", chat, is_small=True)
        for tools, choice in ((ADD, "auto"), (ADD, "none"), ([], "auto")):
            await greet(model, marks=marks, tools=tools, tool_choice=choice)
        forms = [("response_format" in a.body, "grammar" in a.body) for a in server.calls]
    assert forms == [(True, False), (False, True), (False, True)]


def test_json_is_not_streamed_to_people_as_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "task": "Add.",
        "speakers": [
            {"name": "Ann", "tools": ["math.add"], "tool_calling": "schema"},
            {"name": "Bob"},
        ],
        "end_chat": {"max_iterations": 1},
    }
    script: list[Line] = [
        '{"tool": "math.add", "arguments": {"n": 7}}',
        '{"reply": "It is seven."}',
        "Thank you.",
    ]
    with ScriptedServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("DUOLOGUE_MODEL", "scripted")
        events = list(stream(load_conversation(given), tools=ADD, store="memory:calling"))
    said = [event.text for event in events if isinstance(event, MessageSaid)]
    assert said == ["It is seven.", "Thank you."]
    tokens = "".join(event.text for event in events if isinstance(event, MessageToken))
    assert tokens == "Thank you."
