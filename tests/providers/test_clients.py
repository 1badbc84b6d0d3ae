"""Each fake answers the client that calls the real API."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from pydantic import BaseModel

from duologue import Conversation, EndChat, Speaker, converse
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall

from .fakes import FAKES, client_of, fake

HELLO: Final = "Hello there, Ann."


class Sum(BaseModel):
    """The sum of two numbers."""

    n: int


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


CALLS: Final = (
    ScriptedToolCall(name="add", args={"a": 1, "b": 2}, id="abcdefgh1"),
    ScriptedToolCall(name="add", args={"a": 3, "b": 4}, id="abcdefgh2"),
)


Model = Runnable[LanguageModelInput, AIMessage]
Ask = Callable[[Model, LanguageModelInput], AIMessage]


def ask_streamed(model: Model, asked: LanguageModelInput) -> AIMessage:
    """Return the whole of a streamed answer."""
    pieces = [piece for piece in model.stream(asked) if isinstance(piece, AIMessageChunk)]
    return add_ai_message_chunks(*pieces)


def ask_whole(model: Model, asked: LanguageModelInput) -> AIMessage:
    """Return an answer that is not streamed."""
    answer = model.invoke(asked)
    assert isinstance(answer, AIMessage)
    return answer


@pytest.mark.part(5)
@pytest.mark.parametrize("api", FAKES)
def test_an_answer_whole_and_streamed(api: str) -> None:
    with fake(api, [HELLO, HELLO]) as server:
        model = client_of(api, server)
        asked = [SystemMessage("Be brief."), HumanMessage("Hi")]
        for answer in (ask_whole(model, asked), ask_streamed(model, asked)):
            assert answer.text == HELLO
            if answer.usage_metadata:
                assert answer.usage_metadata["input_tokens"] == 3
                assert answer.usage_metadata["output_tokens"] == 3
        assert len(list(server.calls)) == 2
        assert [call.streams for call in server.calls] == [api == "ollama", True]
        for call in server.calls:
            assert call.prompt == [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hi"},
            ]
    assert server.refused == []


@pytest.mark.part(5)
@pytest.mark.parametrize("api", FAKES)
@pytest.mark.parametrize("ask", [ask_whole, ask_streamed])
def test_parallel_calls_of_tools_and_their_results(api: str, ask: Ask) -> None:
    with fake(api, [Reply(tool_calls=CALLS), "It is 3 and 7."]) as server:
        model = client_of(api, server).bind_tools([add])
        talk: list[BaseMessage] = [HumanMessage("1 + 2, and 3 + 4?")]
        answer = ask(model, talk)
        assert [call["args"] for call in answer.tool_calls] == [call.args for call in CALLS]
        ran = [
            ToolMessage(str(add.invoke(call["args"])), tool_call_id=call["id"], name="add")
            for call in answer.tool_calls
        ]
        assert ask(model, [*talk, answer, *ran]).text == "It is 3 and 7."
        roles = [message["role"] for message in server.calls[1].prompt]
        assert roles == ["user", "assistant", "tool", "tool"]
        assert [message["content"] for message in server.calls[1].prompt[2:]] == ["3", "7"]
    assert server.refused == []


FORMS: Final = [
    *[(api, "function_calling") for api in FAKES],
    *[(api, "json_schema") for api in FAKES if api != "deepseek"],
    ("deepseek", "json_mode"),
]


@pytest.mark.part(6)
@pytest.mark.parametrize(("api", "method"), FORMS)
def test_a_structured_answer(api: str, method: str) -> None:
    reply: Any = {"n": 3}
    if (api, method) == ("ollama", "function_calling"):
        # The API can't force a call.
        reply = Reply(tool_calls=(ScriptedToolCall(name="Sum", args={"n": 3}, id="a"),))
    with fake(api, [reply]) as server:
        model = client_of(api, server).with_structured_output(Sum, method=method)
        assert model.invoke("1 + 2? Answer as JSON.") == Sum(n=3)
        if method == "json_schema":
            schema = server.calls[0].schema
            assert schema is not None
            assert list(schema["properties"]) == ["n"]
        elif method == "function_calling" and api != "ollama":
            assert server.calls[0].forced_tool == "Sum"
    assert server.refused == []


THINKING: Final[dict[str, dict[str, Any]]] = {
    "openai_responses": {"model": "gpt-5", "reasoning": {"summary": "auto"}},
    "anthropic": {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4096},
    "google": {"include_thoughts": True},
    "ollama": {"model": "qwen3:8b", "reasoning": True},
    "mistral": {"model": "magistral-small-latest", "output_version": "v1"},
    "deepseek": {"model": "deepseek-reasoner"},
    "openrouter": {"model": "openai/gpt-5", "reasoning": {"effort": "low"}},
}


@pytest.mark.parametrize("api", THINKING)
@pytest.mark.parametrize("ask", [ask_whole, ask_streamed])
def test_thoughts_are_apart_from_the_text(api: str, ask: Ask) -> None:
    with fake(api, [Reply(text=HELLO, reasoning="They greet me.")]) as server:
        answer = ask(client_of(api, server, **THINKING[api]), "Hi")
    thoughts = [block for block in answer.content_blocks if block["type"] == "reasoning"]
    assert answer.text == HELLO
    assert "They greet me." in "".join(str(block.get("reasoning", block)) for block in thoughts)
    assert server.refused == []


@pytest.mark.parametrize("api", FAKES)
def test_an_error_and_a_broken_connection_reach_the_client(api: str) -> None:
    failures = [Reply(error=400, message="No room."), Reply(text=HELLO * 9, error="drop")]
    with fake(api, failures) as server:
        model = client_of(api, server)
        with pytest.raises(Exception, match="No room"):
            model.invoke("Hi")
        with pytest.raises(Exception):  # noqa: B017, PT011  (each client has another)
            ask_streamed(model, "Hi")
        assert len(server.calls) == len(failures)


def test_ollamas_client_takes_no_unknown_keyword() -> None:
    with fake("ollama", [HELLO]) as server:
        model: BaseChatModel = client_of("ollama", server)
        with pytest.raises(TypeError, match="unexpected keyword argument 'temperature'"):
            model.invoke("Hi", temperature=0.2)
        assert server.requests == []


@pytest.fixture(scope="module")
def memory() -> list[AnyMessage]:
    """Return a memory with an odd name, two messages of others in a row, and a call's result."""
    cooks = ("Head Cook", "Ann", "李雷")
    talk = Conversation(
        "Talk.",
        [Speaker(name, tools=[add] if name == "Ann" else []) for name in cooks],
        end_chat=EndChat(max_iterations=2),
    )
    script: list[Line] = [
        "One.",
        Reply(tool_calls=CALLS[:1]),
        "Two.",
        "Three.",
        "Four.",
        "Five.",
        "Six.",
    ]
    result = converse(talk, model=ScriptedChatModel(script=script), store="memory:")
    return result.memory("Ann")


@pytest.mark.parametrize("api", FAKES)
def test_a_memory_is_accepted_as_it_is(api: str, memory: list[AnyMessage]) -> None:
    with fake(api, [HELLO]) as server:
        model = client_of(api, server)
        assert ask_whole(model.bind_tools([add]), [*memory, HumanMessage("Well?")]).text == HELLO
    assert server.refused == []
