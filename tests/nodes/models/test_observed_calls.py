"""Callbacks, tracers, caches and rate limiters see each call of duologue's client."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import AsyncCallbackHandler, get_usage_metadata_callback
from langchain_core.globals import set_debug, set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tracers.context import collect_runs
from pydantic import SecretStr

from duologue.nodes.testing.server import ScriptedServer
from support.models import ChatModel

Seen = Callable[[], object]
Watch = Callable[[ChatModel, RunnableConfig], AbstractContextManager[Seen]]


class Handler(AsyncCallbackHandler):
    """A handler that keeps the texts of the answers."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def on_llm_end(self, response: Any, **_: Any) -> None:  # noqa: ANN401
        """Keep the text of an answer."""
        self.texts.append(response.generations[0][0].text)


class Limiter(BaseRateLimiter):
    """A rate limiter that counts the calls."""

    calls = 0

    def acquire(self, *, blocking: bool = True) -> bool:
        """Count a call."""
        self.calls += 1
        return True

    async def aacquire(self, *, blocking: bool = True) -> bool:
        """Count a call."""
        return self.acquire(blocking=blocking)


@contextmanager
def in_config(_: ChatModel, config: RunnableConfig) -> Iterator[Seen]:
    handler = Handler()
    config["callbacks"] = [handler]
    yield lambda: handler.texts == ["Hi."]


@contextmanager
def in_model(chat: ChatModel, _: RunnableConfig) -> Iterator[Seen]:
    handler = Handler()
    chat.callbacks = [handler]
    yield lambda: handler.texts == ["Hi."]


@contextmanager
def by_usage(_: ChatModel, __: RunnableConfig) -> Iterator[Seen]:
    with get_usage_metadata_callback() as found:
        yield lambda: found.usage_metadata["scripted"]["output_tokens"]


@contextmanager
def by_runs(_: ChatModel, __: RunnableConfig) -> Iterator[Seen]:
    with collect_runs() as found:
        yield lambda: [run.run_type for run in found.traced_runs] == ["llm"]


@contextmanager
def by_debug(_: ChatModel, __: RunnableConfig) -> Iterator[Seen]:
    set_debug(True)
    try:
        yield lambda: True
    finally:
        set_debug(False)


@contextmanager
def by_limiter(chat: ChatModel, _: RunnableConfig) -> Iterator[Seen]:
    chat.rate_limiter = limiter = Limiter()
    yield lambda: limiter.calls == 1


@contextmanager
def by_cache(_: ChatModel, __: RunnableConfig) -> Iterator[Seen]:
    cache = InMemoryCache()
    set_llm_cache(cache)
    try:
        yield lambda: len(cache._cache) == 1
    finally:
        set_llm_cache(None)


class SizedCache(InMemoryCache):
    """A cache with a length, which is false while it is empty."""

    def __len__(self) -> int:
        return len(self._cache)


@contextmanager
def by_own_cache(chat: ChatModel, _: RunnableConfig) -> Iterator[Seen]:
    chat.cache = cache = SizedCache()
    yield lambda: len(cache) == 1


@contextmanager
def wrap_method(name: str) -> Iterator[Seen]:
    stock, seen = getattr(BaseChatModel, name), list[object]()

    async def traced(self: BaseChatModel, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        seen.append(args)
        return await stock(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseChatModel, name, traced)
        yield lambda: len(seen) == 1


def by_inner_patch(_: ChatModel, __: RunnableConfig) -> AbstractContextManager[Seen]:
    """Wrap the method that the base class calls for each prompt."""
    return wrap_method("_agenerate_with_cache")


def by_patch(_: ChatModel, __: RunnableConfig) -> AbstractContextManager[Seen]:
    """Wrap the method as tracers do that do not use callbacks."""
    return wrap_method("agenerate")


WATCHES: Final[tuple[Watch, ...]] = (
    *(in_config, in_model, by_usage, by_runs, by_debug),
    *(by_limiter, by_cache, by_own_cache, by_patch, by_inner_patch),
)


async def _ask(server: ScriptedServer, watch: Watch) -> tuple[AIMessage, object]:
    chat = ChatModel(model="scripted", base_url=server.url, api_key=SecretStr("k"))
    config = RunnableConfig()
    with watch(chat, config) as has_seen:
        answer = await chat.ainvoke([HumanMessage("Hello")], config)
        return answer, has_seen()


async def test_each_observer_sees_a_call(capsys: pytest.CaptureFixture[str]) -> None:
    failed = []
    with ScriptedServer(lambda _: "Hi.") as server:
        for watch in WATCHES:
            capsys.readouterr()
            answer, has_seen = await _ask(server, watch)
            printed = capsys.readouterr().out
            is_printed = watch is not by_debug or "Hi." in printed
            if answer.text != "Hi." or not has_seen or not is_printed:
                failed.append(f"{watch.__name__}: {answer!r}, {has_seen}, {printed!r}")
    assert not failed, "\n".join(failed)


async def test_events_of_langchain_contain_the_pieces_of_an_answer() -> None:
    with ScriptedServer(lambda _: "Hello there.") as server:
        chat = ChatModel(model="scripted", base_url=server.url, api_key=SecretStr("k"))
        to_prompt = RunnableLambda[str, list[BaseMessage]](lambda text: [HumanMessage(text)])
        graph = to_prompt | chat
        names = [event["event"] async for event in graph.astream_events("Hello", version="v2")]
    assert names.count("on_chat_model_stream") > 1
    assert {"on_chat_model_start", "on_chat_model_end"} <= {*names}
