"""CPU time of a call in this process: duologue's client and the standard one, in one run."""

import json
import time

import httpx2
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from support.models import ChatModel

MESSAGES: list[BaseMessage] = [
    HumanMessage(f"Question {number}. " + "word " * 30, name="ann")
    if number % 2
    else AIMessage(f"Answer {number}. " + "word " * 30, name="bob")
    for number in range(400)
]
CALLS = 5


def answering(seen: list[int]) -> httpx2.MockTransport:
    """Return a server in this process that costs almost nothing."""
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "Hello."},
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(len(request.content))
        return httpx2.Response(200, json=body)

    return httpx2.MockTransport(answer)


async def cost(kind: type[ChatOpenAI], seen: list[int]) -> float:
    """Return the CPU seconds of the cheapest of some calls."""
    async with httpx2.AsyncClient(transport=answering(seen)) as client:
        chat = kind(model="scripted", api_key=SecretStr("k"), http_async_client=client)
        await chat.ainvoke(MESSAGES)  # creates the cached objects
        spent = []
        for _ in range(CALLS):
            begun = time.process_time()
            assert (await chat.ainvoke(MESSAGES)).text == "Hello."
            spent.append(time.process_time() - begun)
    return min(spent)


@pytest.mark.exhaustive
async def test_our_client_costs_less_than_half_of_the_stock_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stock_sizes: list[int] = []
    our_sizes: list[int] = []
    stock = await cost(ChatOpenAI, stock_sizes)
    ours = await cost(ChatModel, our_sizes)
    # Both sent the same request, so the ratio is fair.
    assert set(our_sizes) == set(stock_sizes)
    assert len(our_sizes) == CALLS + 1
    numbers = {"stock_ms": round(stock * 1000, 1), "ours_ms": round(ours * 1000, 1)}
    with capsys.disabled():
        print(f"\nCPU a call at {len(MESSAGES)} messages: {json.dumps(numbers)}")  # noqa: T201
    assert ours < stock / 2
