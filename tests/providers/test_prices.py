"""The cost of calls whose tokens a provider bills at several prices."""

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from genai_prices import Usage as ListedUsage, calc_price
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from duologue.graphs import (
    Conversation,
    EndChat,
    MaxCost,
    Price,
    Result,
    converse,
    load_session,
    stream,
)
from duologue.graphs.conversation.usage import Usage
from duologue.nodes.models.answers import count_usage
from duologue.nodes.testing import Prompt, Reply

from .base import OpenAILikeServer, ProviderRequest
from .fakes import client_of, fake
from .openrouter import OpenRouter

PRICE: Final = Price(input=3e3, output=15e3, cached_input=300)
"""A thousand times the price of Claude Sonnet, for prompts of a few words."""

CONTROLS: Final = {
    "no cache": None,
    "five minutes": {"type": "ephemeral"},
    "one hour": {"type": "ephemeral", "ttl": "1h"},
}
LIMIT: Final = 0.9
MODEL: Final = "claude-sonnet-4-6"
TALK: Final = Conversation.model_validate(
    {
        "task": "Count the words of this long sentence, one after the other.",
        "speakers": [{"name": "Ann"}, {"name": "Ben"}],
        "end_chat": {"max_iterations": 3, "allow_unanswered_end": True},
        "prices": {MODEL: PRICE},
    }
)


def speak(prompt: Prompt) -> str:
    """Say something new, of the same length."""
    return f"Word number {len(prompt)} is long."


Run = Callable[[Conversation, Any], Result]


def run_whole(talk: Conversation, model: object) -> Result:
    return converse(talk, model=model, store="memory:")  # type: ignore[arg-type]


def run_streamed(talk: Conversation, model: object) -> Result:
    """Run a conversation whose model's answers arrive as streams."""
    known = {"model": model, "store": "memory:prices"}
    (begun,) = (one for one in stream(talk, **known) if one.event == "session")  # type: ignore[arg-type]
    return converse(talk, session=begun.session, **known)  # type: ignore[arg-type]


RUNS: Final = [run_whole, run_streamed]


def bill(used: list[dict[str, Any]]) -> float:
    """Return the price that Anthropic asks for calls, by its own counts."""
    total = 0.0
    for each in used:
        total += 3e3 * each["input_tokens"] + 15e3 * each["output_tokens"]
        total += 300 * each["cache_read_input_tokens"]
        times = each["cache_creation"]
        total += 3e3 * 1.25 * times["ephemeral_5m_input_tokens"]
        total += 3e3 * 2 * times["ephemeral_1h_input_tokens"]
    return total / 1e6


def run_claude(
    run: Run, lasting: str = "one hour", talk: Conversation = TALK
) -> tuple[Result, list[dict[str, Any]]]:
    """Run a conversation of a model whose cache keeps prompts so long; return its calls, too."""
    options = {} if CONTROLS[lasting] is None else {"cache_control": CONTROLS[lasting]}
    with fake("anthropic", speak) as server:
        result = run(talk, client_of("anthropic", server, model_kwargs=options))
    assert result.outcome is not None
    return result, server.billed  # type: ignore[attr-defined]


def count(used: list[dict[str, Any]], name: str) -> int:
    return sum(each.get(name, each["cache_creation"].get(name, 0)) for each in used)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("lasting", CONTROLS)
def test_what_claude_writes_to_its_cache_has_its_price(lasting: str, run: Run) -> None:
    result, billed = run_claude(run, lasting)
    assert result.outcome is not None
    (used,) = result.outcome.usage.values()
    assert len(billed) == 6
    assert used.cost == pytest.approx(bill(billed))
    assert used.cached_tokens == count(billed, "cache_read_input_tokens")
    assert used.cache_write_tokens == count(billed, "cache_creation_input_tokens")
    assert used.cache_write_1h_tokens == count(billed, "ephemeral_1h_input_tokens")
    assert bool(used.cache_write_tokens) == (lasting != "no cache")
    assert bool(used.cache_write_1h_tokens) == (lasting == "one hour")


def test_a_budget_ends_by_the_price_of_the_cache() -> None:
    talk = TALK.replace(end_chat=EndChat(when=MaxCost(LIMIT), max_iterations=9))
    result, billed = run_claude(run_whole, talk=talk)
    assert result.outcome is not None
    assert result.outcome.reason == "max_cost"
    assert bill(billed[:-1]) < LIMIT <= bill(billed)


@pytest.mark.parametrize("run", RUNS)
def test_the_price_list_has_a_price_for_each_kind(run: Run) -> None:
    result, billed = run_claude(run, talk=TALK.model_copy(update={"prices": {}}))
    assert result.outcome is not None
    assert result.outcome.total.cost == pytest.approx(bill(billed) / 1000)


@pytest.mark.parametrize("run", RUNS)
def test_an_agent_of_the_user_pays_for_the_cache_too(run: Run) -> None:
    with fake("anthropic", speak) as server:
        options = {"cache_control": CONTROLS["one hour"]}
        chat = client_of("anthropic", server, model_kwargs=options)

        async def answer(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await chat.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState).add_node("answer", answer)
        agent = graph.add_edge(START, "answer").add_edge("answer", END).compile()
        talk = TALK.replace(speakers=[{"name": "Ann", "replies": [agent]}, {"name": "Ben"}])
        result = run(talk, chat)
    assert result.outcome is not None
    assert result.outcome.total.cost == pytest.approx(bill(server.billed))  # type: ignore[attr-defined]


def test_a_dump_keeps_the_kinds() -> None:
    result, billed = run_claude(run_whole)
    dumped = result.session.dump()
    loaded = load_session(dumped, store="memory:loaded")
    assert str(dumped).count("ephemeral_1h_input_tokens") >= len(billed)
    assert loaded.state().outcome == result.outcome
    assert loaded.dump()["steps"] == dumped["steps"]


KINDS: Final = tomllib.loads(Path(__file__).with_name("prices.toml").read_text("utf-8"))
KINDS["none"] = {"sent": {"prompt_tokens_details": None}, "counted": {"input_tokens": 100}}


class WithKinds(OpenRouter):
    """OpenRouter's API, with chosen fields in the usage."""

    kinds: dict[str, Any]

    def _usage(self) -> dict[str, Any]:
        return {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107, **self.kinds}

    def render_answer(self, reply: Reply, request: ProviderRequest, number: int) -> object:
        """Return a completion with the usage."""
        made: Any = super().render_answer(reply, request, number)
        return {**made, "usage": self._usage()}

    def stream_answer(self, reply: Reply, request: ProviderRequest, number: int) -> Iterator[bytes]:
        """Yield a stream with the usage, which some servers send in two events."""
        import json

        for event in OpenAILikeServer.stream_answer(self, reply, request, number):
            if b'"usage"' in event:
                data = json.loads(event.removeprefix(b"data: "))
                event = f"data: {json.dumps({**data, 'usage': self._usage()})}\n\n".encode()
                yield event
            yield event


DEAR: Final = Price(
    input=1e6, output=2e6, cached_input=3e5, cache_write=4e6, audio_input=5e6, audio_output=6e6
)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("server_kind", KINDS)
def test_our_client_reads_each_servers_kinds(
    server_kind: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "anthropic/claude-sonnet-4.5"
    talk = TALK.replace(
        end_chat=EndChat(max_iterations=1, allow_unanswered_end=True), prices={name: DEAR}
    )
    kinds, expected = KINDS[server_kind]["sent"], Usage(**KINDS[server_kind]["counted"])
    with WithKinds(speak) as server:
        server.kinds = kinds
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        result = run(talk, name)
    assert result.outcome is not None
    used = result.outcome.total
    one = expected.model_copy(update={"calls": 1, "output_tokens": 7})
    both = {field: 2 * value for field, value in one.model_dump(exclude={"cost"}).items()}
    assert used.model_dump(exclude={"cost"}) == both
    assert used.cost == pytest.approx(2 * DEAR.compute_cost(one))


@pytest.mark.parametrize(
    ("used", "cost"),
    [
        (Usage(input_tokens=100, cached_tokens=40), 60 * 10 + 40 * 10),
        (Usage(input_tokens=100, cache_write_tokens=100), 100 * 12.5),
        (
            Usage(input_tokens=100, cache_write_tokens=100, cache_write_1h_tokens=40),
            60 * 12.5 + 800,
        ),
        (Usage(input_tokens=100, audio_input_tokens=50), 1000),
        (Usage(output_tokens=100, audio_output_tokens=50), 2000),
    ],
)
def test_a_price_that_is_not_set_follows_from_the_price_of_the_prompt(
    used: Usage, cost: float
) -> None:
    assert Price(input=10e6, output=20e6).compute_cost(used) == pytest.approx(cost)


def test_each_kind_may_have_its_own_price() -> None:
    price = Price.model_validate(
        {
            "input": 1e6,
            "output": 2e6,
            "cached_input": 3e6,
            "cache_write": 4e6,
            "cache_write_1h": 5e6,
            "audio_input": 6e6,
            "audio_output": 7e6,
        }
    )
    used = Usage(
        input_tokens=100,
        cached_tokens=10,
        cache_write_tokens=30,
        cache_write_1h_tokens=20,
        audio_input_tokens=30,
        output_tokens=50,
        audio_output_tokens=20,
    )
    prompt = 30 * 1 + 10 * 3 + 10 * 4 + 20 * 5 + 30 * 6
    assert price.compute_cost(used) == pytest.approx(prompt + 30 * 2 + 20 * 7)


@pytest.mark.parametrize(
    ("details", "cached", "written", "for_an_hour"),
    [
        ({"cache_creation": 30}, 0, 30, 0),
        ({"cache_creation": 0, "ephemeral_5m_input_tokens": 30}, 0, 30, 0),
        ({"cache_creation": 30, "ephemeral_1h_input_tokens": 30}, 0, 30, 30),
        ({"cache_creation": 50, "ephemeral_1h_input_tokens": 30}, 0, 50, 30),
        ({"cache_read": 90, "ephemeral_1h_input_tokens": 30}, 90, 10, 10),
        ({"priority_cache_read": 20, "priority_cache_creation": 30}, 20, 30, 0),
        ({"cache_read": None, "cache_creation": -4}, 0, 0, 0),
    ],
)
def test_usage_by_the_names_of_langchains_clients(
    details: dict[str, Any], cached: int, written: int, for_an_hour: int
) -> None:
    answer = AIMessage("Yes.")
    used: Any = {"input_tokens": 100, "output_tokens": 1, "total_tokens": 101}
    used["input_token_details"] = details
    answer.usage_metadata = used
    found = Usage().plus(count_usage(answer, [HumanMessage("Well?")]))
    assert (found.cached_tokens, found.cache_write_tokens) == (cached, written)
    assert found.cache_write_1h_tokens == for_an_hour
    assert found.input_tokens == 100


def test_audio_and_a_cache_have_list_prices_in_one_call() -> None:
    from duologue.nodes.models.adapters.provider_parameters import ListPrice

    used = Usage(input_tokens=1000, cached_tokens=100, audio_input_tokens=200, output_tokens=10)
    listed = ListPrice("gemini-2.5-flash", "google", None).compute_cost(used)
    parts = [
        ListedUsage(input_tokens=700, output_tokens=10),
        ListedUsage(input_tokens=100, cache_read_tokens=100),
        ListedUsage(input_tokens=200, input_audio_tokens=200),
    ]
    prices = [calc_price(part, "gemini-2.5-flash", provider_id="google") for part in parts]
    assert listed == pytest.approx(float(sum(price.total_price for price in prices)))
