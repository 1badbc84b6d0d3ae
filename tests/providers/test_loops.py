"""Chat models of users, and agents with them, in several event loops."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import pytest
from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import ConfigurableField, Runnable, RunnableLambda

from duologue import Conversation, EndChat, Speaker, aconverse, chat, converse

from .fakes import FAKES, KEY, client_of, fake

SHORT: Final = EndChat(max_iterations=1)
SPEC: Final = chat("Hi.", end_chat=SHORT)
HELLO: Final = "Hello there, Ann."

Model = Runnable[LanguageModelInput, AIMessage]


def _call(spec: Conversation, model: object = None) -> str:
    return converse(spec, model=cast("BaseChatModel | None", model), store="memory:").text


def _call_in_new_loop(spec: Conversation, model: object = None) -> str:
    return asyncio.run(
        aconverse(spec, model=cast("BaseChatModel | None", model), store="memory:")
    ).text


Call = Callable[..., str]
ORDERS: Final[dict[str, Sequence[Call]]] = {
    "sync first": (_call, _call_in_new_loop, _call),
    "async first": (_call_in_new_loop, _call, _call_in_new_loop),
    "three loops": (_call_in_new_loop,) * 3,
}


@pytest.mark.part(10)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("api", FAKES)
def test_a_model_object_works_in_each_event_loop(api: str, order: str) -> None:
    """Its client keeps connections, and none of them is used in another loop."""
    calls = ORDERS[order]
    with fake(api, [HELLO] * len(calls)) as server:
        model = client_of(api, server)
        assert [call(SPEC, model) for call in calls] == [HELLO] * len(calls)


@pytest.mark.parametrize("api", ["openai_chat", "anthropic"])
def test_objects_with_one_cached_client_work_in_each_event_loop(api: str) -> None:
    """LangChain shares the HTTP client of equal objects."""
    calls = ORDERS["sync first"]
    with fake(api, [HELLO] * len(calls)) as server:
        for call in calls:
            assert call(SPEC, client_of(api, server)) == HELLO


def test_a_model_that_was_used_before_works_in_another_event_loop() -> None:
    """The connections of calls outside of a conversation are not used in it, nor the reverse."""
    with fake("openai_chat", [HELLO] * 4) as server:
        model = client_of("openai_chat", server)
        assert asyncio.run(model.ainvoke("Hi.")).text == HELLO
        assert _call(SPEC, model) == HELLO
        assert asyncio.run(model.ainvoke("Hi.")).text == HELLO
        assert _call_in_new_loop(SPEC, model) == HELLO


COMPOSED: Final[dict[str, Callable[[BaseChatModel], Any]]] = {
    "fallbacks": lambda model: model.with_fallbacks([model]),
    "retry": lambda model: model.with_retry(),
    "bound": lambda model: model.bind(stop=["x"]),
    "config": lambda model: model.with_config(tags=["x"]),
    "configurable": lambda model: model.configurable_fields(temperature=ConfigurableField("t")),
    "alternatives": lambda model: model.configurable_alternatives(
        ConfigurableField("which"), default_key="first", second=model
    ),
}


@pytest.mark.parametrize("way", COMPOSED)
def test_a_composition_of_models_works_in_each_event_loop(way: str) -> None:
    """The models are found inside compositions."""
    calls = ORDERS["async first"]
    with fake("openai_chat", [HELLO] * len(calls)) as server:
        model = COMPOSED[way](client_of("openai_chat", server))
        assert [call(SPEC, model) for call in calls] == [HELLO] * len(calls)


def _wrapped(model: BaseChatModel) -> Runnable[Any, Any]:
    async def answer(given: LanguageModelInput) -> AIMessage:
        return await model.ainvoke(given)

    return RunnableLambda(answer, name="wrapped")


AGENTS: Final[dict[str, Callable[[BaseChatModel, str], Any]]] = {
    "graph": lambda model, url: create_agent(model, [], name="graph"),
    "function": lambda model, url: _wrapped(model),
    "configurable": lambda model, url: create_agent(
        cast(
            "BaseChatModel",
            init_chat_model(
                "openai:gpt-4.1-mini", base_url=url, api_key=KEY, configurable_fields=("model",)
            ),
        ),
        [],
        name="configurable",
    ),
}


@pytest.mark.parametrize("kind", AGENTS)
def test_an_agent_with_a_model_works_in_each_event_loop(kind: str) -> None:
    """The models are found inside an agent's graph or function."""
    calls = ORDERS["async first"]
    with fake("openai_chat", [HELLO] * len(calls)) as server:
        agent = AGENTS[kind](client_of("openai_chat", server), server.url)
        speakers = (
            Speaker(name="User", replies=[{"kind": "text", "text": "Hi."}]),
            Speaker(name="Bot", replies=[{"kind": "agent", "name": agent}]),
        )
        spec = Conversation(task="Greet.", speakers=speakers, end_chat=SHORT)
        assert [call(spec) for call in calls] == [HELLO] * len(calls)


def test_two_event_loops_use_a_model_at_once() -> None:
    """A loop that ends closes no connection of the other loop."""
    with fake("openai_chat", lambda prompt, request: HELLO) as server:
        model = client_of("openai_chat", server)

        async def run_both() -> None:
            mine = aconverse(SPEC, model=cast("BaseChatModel | None", model), store="memory:")
            others = asyncio.to_thread(_call_in_new_loop, SPEC, model)
            first, second = await asyncio.gather(mine, others)
            assert first.text == second == HELLO
            again = await aconverse(
                SPEC, model=cast("BaseChatModel | None", model), store="memory:"
            )
            assert again.text == HELLO

        asyncio.run(run_both())
