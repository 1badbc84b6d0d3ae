"""The forms in which an agent under test may reply, and errors about others."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.runnables import RunnableLambda
from openai._models import construct_type
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage
from openai.types.responses import Response
from pydantic import BaseModel

from duologue import Scenario, SpecError, simulate
from duologue.graphs.scenarios import SimulationResult
from duologue.nodes.testing import ScriptedChatModel

MESSAGE = ChatCompletionMessage(role="assistant", content="Refunded.")
REFUSAL = ChatCompletionMessage(role="assistant", refusal="Refunded.")


def play(agent: object) -> SimulationResult:
    model = ScriptedChatModel(["Refund order 7.", "###STOP###"])
    return simulate(Scenario("Get order 7 refunded."), agent, model=model, store="memory:")


def completion() -> ChatCompletion:
    choice = {"index": 0, "finish_reason": "stop", "message": MESSAGE}
    fields = {"id": "1", "created": 1, "model": "m", "object": "chat.completion"}
    return ChatCompletion.model_validate(fields | {"choices": [choice]})


def response() -> Response:
    text = {"type": "output_text", "text": "Refunded.", "annotations": []}
    said = {"id": "2", "type": "message", "role": "assistant", "status": "completed"}
    fields = {"id": "1", "created_at": 1, "model": "m", "object": "response", "tools": []}
    rest = {"parallel_tool_calls": False, "tool_choice": "auto"}
    return Response.model_validate(fields | rest | {"output": [said | {"content": [text]}]})


def yields_text(messages: list[BaseMessage]) -> Iterator[str]:
    yield from ("Refun", "ded.")


async def yields_text_later(messages: list[BaseMessage]) -> AsyncIterator[str]:
    for piece in ("Refun", "ded."):
        yield piece


def yields_chunks(messages: list[BaseMessage]) -> Iterator[AIMessageChunk]:
    yield from (AIMessageChunk(content="Refun"), AIMessageChunk(content="ded."))


def yields_chunks_of_openai(messages: list[BaseMessage]) -> Iterator[object]:
    fields = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "shop"}
    for delta in ({"role": "assistant"}, {"content": "Refun"}, {"content": "ded."}):
        choices = [{"index": 0, "delta": delta}]
        yield ChatCompletionChunk.model_validate({**fields, "choices": choices})
    yield ChatCompletionChunk.model_validate({**fields, "choices": []})
    # Azure's content filter sends this. OpenAI's client does not validate it.
    filtered = {"id": "", "object": "", "choices": [{"index": 0, "finish_reason": None}]}
    yield construct_type(type_=ChatCompletionChunk, value=filtered)


def yields_states(messages: list[BaseMessage]) -> Iterator[dict[str, Any]]:
    yield {"messages": [AIMessage("Let me see.")]}
    yield {"messages": [AIMessage("Let me see."), AIMessage("Refunded.")]}


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param(lambda messages: {"role": "assistant", "content": "Refunded."}, id="dict"),
        pytest.param(lambda messages: [*messages, AIMessage("Refunded.")], id="list"),
        pytest.param(lambda messages: REFUSAL, id="refusal of OpenAI's client"),
        pytest.param(
            lambda messages: [{"role": "assistant", "content": "Refunded."}], id="list of dicts"
        ),
        pytest.param(lambda messages: MESSAGE, id="message of OpenAI's client"),
        pytest.param(lambda messages: completion(), id="completion"),
        pytest.param(lambda messages: response(), id="response"),
        pytest.param(RunnableLambda(lambda messages: MESSAGE), id="runnable"),
        yields_text,
        yields_text_later,
        yields_chunks,
        yields_chunks_of_openai,
        yields_states,
    ],
)
def test_each_form_of_reply_is_read(agent: Callable[..., object]) -> None:
    assert play(agent).transcript[1] == ("Agent", "Refunded.")


def test_all_messages_of_a_list_are_the_reply() -> None:
    image = {"type": "image", "mime_type": "image/png", "base64": "AAAA"}
    result = play(lambda messages: [AIMessage("Wait."), AIMessage(["Refunded.", image])])
    assert result.transcript[1] == ("Agent", "Wait.\n\nRefunded.\n[image/png, not shown]")


class Other(BaseModel):
    answer: str = "Refunded."


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ({"answer": "Refunded.", "score": 1}, "a state with 'answer', 'score'; add 'messages', or"),
        ({}, "a state with no fields; add 'messages'"),
        ([{"role": "clerk", "content": "Refunded."}], "a message that can't be read: Unexpected"),
        (Other(), "it must return text, a message, a list of messages or a state with messages"),
        (7, "or a state with messages, not int"),
    ],
)
def test_another_reply_is_an_error_that_names_its_form(reply: object, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        play(lambda messages: reply)


def test_a_generator_that_yields_nothing_is_a_blank_reply() -> None:
    assert play(lambda messages: (text for text in list[str]())).at_fault == "agent"
