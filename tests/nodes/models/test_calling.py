"""Tests of tools and tool calls over HTTP (Y18)."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool

from duologue.graphs import (
    Conversation,
    ModelError,
    Result,
    Speaker,
    SpecError,
    load_conversation,
    stream,
)
from duologue.graphs.events import MessageSaid, MessageToken
from duologue.nodes.testing import Line, Reply, Script, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.both_ways import RUNS, run_whole
from support.faulty_server import Body, Sent
from support.replies_in_bytes import Server, chunk, json_of, stream_of, use_server
from support.tables import read_rows

LONG = ("long " * 16).strip()
NAMES = ("server.count", "höchster Wert", "server_count", LONG)

Run = Callable[..., Result]


both_ways = pytest.mark.parametrize("run", RUNS)


class Ann:
    """A speaker with tools, who makes one turn."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int]] = []
        """The calls that the tools have received."""

    def make_tool(self, name: str) -> BaseTool:
        """Return a tool that notes its calls."""

        def count(n: int = 0) -> int:
            self.ran.append((name, n))
            return n

        return StructuredTool.from_function(count, name=name, description=f"This is {name}.")

    def make_talk(self, names: Sequence[str] = NAMES, **fields: Any) -> Conversation:
        """Return a conversation in which Ann has tools of these names."""
        ann = {"name": "Ann", "tools": [*map(self.make_tool, names)], **fields}
        bob = {"name": "Bob", "replies": [{"kind": "text", "text": "Fine."}]}
        ends = {"max_iterations": 1}
        return load_conversation({"task": "Count.", "speakers": [ann, bob], "end_chat": ends})

    def ask(
        self,
        model: ScriptedServer | Server | BaseChatModel,
        names: Sequence[str] = NAMES,
        run: Run = run_whole,
        **fields: Any,
    ) -> Result:
        """Run the conversation with a server's model, or with this model."""
        talk = self.make_talk(names, **fields)
        if isinstance(model, BaseChatModel):
            return run(talk, model=model)
        with use_server(model):
            return run(talk, model="scripted")


ONE = NAMES[:1]


@pytest.fixture
def ann() -> Ann:
    return Ann()


def call(name: str, n: int, call_id: str = "c1") -> ScriptedToolCall:
    return ScriptedToolCall(name=name, args={"n": n}, id=call_id)


def offered(body: Body) -> list[str]:
    return [one["function"]["name"] for one in body["tools"]]


def results_in(body: Body) -> list[str]:
    """Return the results of calls in a request."""
    return [one["content"] for one in body["messages"] if one["role"] == "tool"]


# Names and choices


@both_ways
def test_tools_are_offered_and_called_by_names_that_providers_take(
    run: Run,
    ann: Ann,
) -> None:
    def script(prompt: object, request: Any) -> Line:  # noqa: ANN401  # a request
        if len(server.calls) > 1:
            return "Done."
        names = [*offered(request.body), "höchster Wert", "teleport.now"]
        return Reply(tool_calls=[call(one, n, f"c{n}") for n, one in enumerate(names)])

    with ScriptedServer(script) as server:
        ann.ask(server, run=run)
        first, second = (one.body for one in server.calls)
    names = offered(first)
    assert names[1:3] == ["hochster_Wert", "server_count"]
    assert names[0].startswith("server_count_")
    assert len(names[3]) == 64
    assert "tool_choice" not in first
    assert sorted(ann.ran) == sorted([*zip(NAMES, range(4), strict=True), ("höchster Wert", 4)])
    *_, missing = results_in(second)
    assert "teleport.now" in missing


@pytest.mark.parametrize(
    ("choice", "sent", "told"),
    [
        ("auto", None, None),
        ("required", "required", "required"),
        ("none", "none", "none"),
        (
            "server_count",
            {"type": "function", "function": {"name": "server_count"}},
            "server_count",
        ),
        (
            "höchster Wert",
            {"type": "function", "function": {"name": "hochster_Wert"}},
            "hochster_Wert",
        ),
    ],
)
def test_the_choice_is_sent_in_openais_terms_and_told_in_langchains(
    choice: str,
    sent: object,
    told: str | None,
    ann: Ann,
) -> None:
    """Y18: tool choice (auto, required, one tool, none)."""
    with ScriptedServer(["Hi"]) as server:
        ann.ask(server, tool_choice=choice)
        (asked,) = (one.body for one in server.calls)
    assert asked.get("tool_choice") == sent
    # Tools are also sent if none may be called: providers require the tools that earlier calls
    # name.
    assert len(offered(asked)) == len(NAMES)
    own = ScriptedChatModel(["Hi"])
    ann.ask(own, tool_choice=choice)
    assert own.calls[0].tool_choice == told
    assert [one["function"]["name"] for one in own.calls[0].tools] == offered(asked)


def test_one_of_anthropics_is_told_none_in_its_own_terms(ann: Ann) -> None:
    # The code recognizes this class by its name and its package.
    claude = type("ChatAnthropic", (ScriptedChatModel,), {"__module__": "langchain_anthropic.own"})
    chat = claude(script=["Hi."])
    ann.ask(chat, tool_choice="none")
    assert chat.calls[0].kwargs["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize("calling", [None, "native", "schema"])
def test_a_choice_of_a_tool_that_is_not_there_is_refused(calling: str | None, ann: Ann) -> None:
    with pytest.raises(SpecError, match=r"tool_choice: must be .* one of the speaker's tools"):
        ann.make_talk(NAMES, tool_choice="add", tool_calling=calling)


def test_a_model_that_takes_no_tools_says_what_to_do(ann: Ann) -> None:
    model = FakeListChatModel(responses=["Hi"])
    words = 'FakeListChatModel can\'t call tools; set tool_calling = "schema"'
    with pytest.raises(ModelError, match=words):
        ann.ask(model)


HISTORY: list[BaseMessage] = [
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
"""Messages that Ann remembers, with calls."""


@pytest.mark.parametrize("has_tools", [True, False])
def test_earlier_calls_are_sent_by_names_that_providers_take(has_tools: bool, ann: Ann) -> None:
    with ScriptedServer(["Done."]) as server:
        ann.ask(server, NAMES if has_tools else (), memory=HISTORY)
        (asked,) = (one.body for one in server.calls)
    (calls,) = (one["tool_calls"] for one in asked["messages"] if one.get("tool_calls"))
    names = [made["function"]["name"] for made in calls]
    assert names[0] == (offered(asked)[0] if has_tools else "server_count")
    assert names[1:] == ["server_gone", "unknown"]


# Broken calls


def sending(*calls: Any, finish: str = "tool_calls") -> Callable[[Body], Sent]:
    """Return a reply of calls in any form: one message, or parts of a stream."""

    def answer(asked: Body) -> Sent:
        if asked.get("stream"):
            return stream_of(*(chunk({"tool_calls": [part]}) for part in calls), chunk({}, finish))
        message = {"role": "assistant", "content": None, "tool_calls": list(calls)}
        return json_of({"choices": [{"message": message, "finish_reason": finish}]})

    return answer


def sent(arguments: object, index: int = 0) -> dict[str, Any]:
    function = {"name": "server_count", "arguments": arguments}
    return {"id": f"c{index}", "index": index, "type": "function", "function": function}


@pytest.mark.part(3)
@both_ways
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        *read_rows(__file__, "a_broken_call_comes_back_with_its_reason_beside_good_ones"),
        ('{"n": ' + "[" * 500 + "]" * 500 + "}", "nested more than 100 levels"),
    ],
)
def test_a_broken_call_comes_back_with_its_reason_beside_good_ones(
    arguments: str,
    why: str,
    run: Run,
    ann: Ann,
) -> None:
    calls = sending(sent('{"n": 1}', 0), sent(arguments, 1), sent("{}", 2))
    with Server(calls) as server:
        result = ann.ask(server, ONE, run)
    assert sorted(ann.ran) == [("server.count", 0), ("server.count", 1)]
    stored = [one for one in result.messages if isinstance(one, AIMessage)]
    (broken,) = (one for message in stored for one in message.invalid_tool_calls)
    assert (broken["id"], broken["name"], broken["args"]) == ("c1", "server.count", arguments)
    results = {
        one["tool_call_id"]: one["content"]
        for one in server.asked[1]["messages"]
        if one["role"] == "tool"
    }
    assert (results["c0"], results["c2"]) == ("1", "0")
    assert why in results["c1"]


@both_ways
@pytest.mark.parametrize("arguments", ['{"n": 1', ""])
def test_a_call_that_was_cut_off_is_not_run(
    arguments: str,
    run: Run,
    ann: Ann,
) -> None:
    with Server(sending(sent(arguments), finish="length")) as server:
        ann.ask(server, ONE, run)
    assert ann.ran == []
    (error,) = results_in(server.asked[1])
    assert "cut off" in error


def test_a_model_of_the_users_own_that_raises_on_its_calls_is_told_so(ann: Ann) -> None:
    class Raising(ScriptedChatModel):
        def _generate(self, *_: object, **__: object) -> ChatResult:
            odd: Any = [{"name": "a", "args": [1], "id": "c"}]
            return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=odd))])

        async def _agenerate(self, *args: Any, **options: Any) -> ChatResult:
            return await super()._agenerate(*args, **options) if self.calls else self._fail(*args)

        def _fail(self, messages: list[BaseMessage], *_: object) -> ChatResult:
            self.calls.append(messages)  # type: ignore[arg-type]
            return self._generate()

    model = Raising(script=["Unused.", "Done."])
    result = ann.ask(model)
    assert result.transcript[0] == ("Ann", "Done.")
    (error,) = (one for one in result.messages if one.type == "tool")
    assert "must be a JSON object, not a list" in str(error.content)


# Endpoints that cannot call tools

SAID = '{"tool": "server.count", "arguments": {"n": 7}}'


@both_ways
def test_by_schema_nothing_of_tools_is_on_the_wire_and_a_call_comes_back(
    run: Run,
    ann: Ann,
) -> None:
    cut = Reply(text='{"reply": "Once upon a ti', finish_reason="length")
    with ScriptedServer([SAID, cut]) as server:
        result = ann.ask(
            server,
            ONE,
            run,
            tool_calling="schema",
            memory=HISTORY,
            model_settings={"max_tokens": 5},
        )
        bodies = [one.body for one in server.calls]
    assert ann.ran == [("server.count", 7)]
    (said,) = (one for one in result.messages if one.text == "Once upon a ti")
    assert said.response_metadata["finish_reason"] == "length"
    for asked in bodies:
        assert "tools" not in asked
        assert "tool_choice" not in asked
        assert {message["role"] for message in asked["messages"]} == {"system", "user", "assistant"}
        assert not any("tool_calls" in message for message in asked["messages"])
        words = "server.count(n?: whole number): This is server.count."
        assert words in asked["messages"][0]["content"]
        assert asked["response_format"]["type"] == "json_schema"
        assert asked["response_format"]["json_schema"]["strict"] is False


@pytest.mark.parametrize("own", [False, True])
def test_by_schema_none_is_a_plain_answer(own: bool, ann: Ann) -> None:
    options: dict[str, Any] = {"tool_calling": "schema", "tool_choice": "none", "memory": HISTORY}
    if own:
        model = ScriptedChatModel(["Hello."])
        result = ann.ask(model, **options)
        assert (model.calls[0].schema, model.calls[0].tools) == (None, ())
    else:
        with ScriptedServer(["Hello."]) as server:
            result = ann.ask(server, **options)
            (asked,) = (one.body for one in server.calls)
        assert "response_format" not in asked
        assert "tools" not in asked
        assert "server.count" in asked["messages"][0]["content"]
    assert result.transcript[0] == ("Ann", "Hello.")


def test_by_schema_a_model_of_the_users_own_is_asked_for_structured_output(ann: Ann) -> None:
    model = ScriptedChatModel([SAID, {"reply": "Hi"}])
    result = ann.ask(model, ONE, tool_calling="schema")
    assert ann.ran == [("server.count", 7)]
    assert result.transcript[0] == ("Ann", "Hi")
    for one in model.calls:
        assert one.schema is not None
        assert one.tools == ()


@pytest.mark.parametrize(
    ("calling", "roles"),
    [
        ("schema", {"system", "user", "assistant"}),
        ("native", {"system", "user", "assistant", "tool"}),
    ],
)
def test_a_judge_of_such_an_endpoint_sees_no_calls_either(
    calling: str, roles: set[str], ann: Ann
) -> None:
    verdict = {"objectives_left": [], "complete": True}
    talk = ann.make_talk(
        NAMES, memory=HISTORY, tool_calling=calling, checks_completion=True
    ).replace(end_chat={"mode": "end_chat_after_first_completion", "max_iterations": 1})
    says: Script = ['{"reply": "Hi."}' if calling == "schema" else "Hi.", verdict]
    with ScriptedServer(says) as server:
        with use_server(server):
            result = run_whole(talk, model="scripted")
        asked = server.calls[1].body
    assert {message["role"] for message in asked["messages"]} == roles
    assert result.outcome is not None
    assert [one.readable for one in result.outcome.verdicts] == [True]


def test_json_is_not_streamed_to_people_as_what_is_said(ann: Ann) -> None:
    talk = ann.make_talk(ONE, tool_calling="schema")
    talk = talk.replace(speakers=[talk.speakers[0], Speaker("Bob")])
    script = [SAID, '{"reply": "It is seven."}', "Thank you."]
    with ScriptedServer(script) as server, use_server(server):
        events = list(stream(talk, model="scripted", store="memory:calling"))
    said = [event.text for event in events if isinstance(event, MessageSaid)]
    assert said == ["It is seven.", "Thank you."]
    tokens = "".join(event.text for event in events if isinstance(event, MessageToken))
    assert tokens == "Thank you."
