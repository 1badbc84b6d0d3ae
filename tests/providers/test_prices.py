"""The cost of calls whose tokens a provider bills at several prices."""

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from genai_prices import Usage as ListedUsage, calc_price
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from duologue.graphs import (
    Conversation,
    EndChat,
    MaxCost,
    Price,
    Result,
    chat,
    converse,
    load_session,
)
from duologue.nodes.testing import Prompt, Reply
from support.both_ways import RUNS, run_whole

from .base import ProviderRequest
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
        model = client_of("anthropic", server, model_kwargs=options)

        async def answer(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState).add_node("answer", answer)
        agent = graph.add_edge(START, "answer").add_edge("answer", END).compile()
        talk = TALK.replace(speakers=[{"name": "Ann", "replies": [agent]}, {"name": "Ben"}])
        result = run(talk, model)
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

    def make_chunks(
        self, reply: Reply, request: ProviderRequest, number: int
    ) -> Iterator[dict[str, Any]]:
        """Yield a stream with the usage, which some servers send in two events."""
        for chunk in super().make_chunks(reply, request, number):
            if "usage" in chunk:
                chunk["usage"] = self._usage()
                yield chunk
            yield chunk


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
    with WithKinds(speak) as server:
        server.kinds = KINDS[server_kind]["sent"]
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        result = run(talk, name)
    assert result.outcome is not None
    used = result.outcome.total
    one = KINDS[server_kind]["counted"] | {"calls": 1, "output_tokens": 7}
    counts = dict.fromkeys(used.model_dump(exclude={"cost"}), 0) | one
    assert used.model_dump(exclude={"cost"}) == {kind: 2 * count for kind, count in counts.items()}
    assert used.cost == pytest.approx(DEAR.compute_cost(used))


def bill_call(price: Price, **usage: Any) -> Any:  # noqa: ANN401  # counts and their cost
    """Return the usage of one call, as a client of LangChain reports it."""
    told: Any = {"input_tokens": 100, "output_tokens": 100, "total_tokens": 200, **usage}
    answer = AIMessage("Yes.")
    answer.usage_metadata = told
    model = FakeMessagesListChatModel(responses=[answer])
    prices = {"FakeMessagesListChatModel": price}
    talk = chat("Well?", assistant="Ann", max_iterations=1, prices=prices)
    outcome = converse(talk, model=model, store="memory:").outcome
    assert outcome is not None
    assert outcome.total.input_tokens == 100
    return outcome.total


@pytest.mark.parametrize(
    ("details", "counts", "cost"),
    [
        ({"cache_read": 40}, (40, 0, 0), 100 * 10),
        ({"audio": 50}, (0, 0, 0), 100 * 10),
        ({"cache_creation": 30}, (0, 30, 0), 70 * 10 + 30 * 12.5),
        ({"cache_creation": 0, "ephemeral_5m_input_tokens": 30}, (0, 30, 0), 700 + 30 * 12.5),
        ({"cache_creation": 30, "ephemeral_1h_input_tokens": 30}, (0, 30, 30), 700 + 30 * 20),
        ({"cache_creation": 50, "ephemeral_1h_input_tokens": 30}, (0, 50, 30), 500 + 250 + 600),
        ({"cache_read": 90, "ephemeral_1h_input_tokens": 30}, (90, 10, 10), 90 * 10 + 10 * 20),
        ({"priority_cache_read": 20, "priority_cache_creation": 30}, (20, 30, 0), 700 + 375),
        ({"cache_read": None, "cache_creation": -4}, (0, 0, 0), 100 * 10),
    ],
)
def test_a_price_that_is_not_set_follows_from_the_price_of_the_prompt(
    details: dict[str, Any], counts: tuple[int, ...], cost: float
) -> None:
    """The kinds of tokens have the names of LangChain's clients."""
    spoken = {"audio": 50}
    price = Price(input=10e6, output=20e6)
    found = bill_call(price, input_token_details=details, output_token_details=spoken)
    written = (found.cache_write_tokens, found.cache_write_1h_tokens)
    assert (found.cached_tokens, *written) == counts
    assert (found.audio_input_tokens, found.audio_output_tokens) == (details.get("audio", 0), 50)
    assert found.cost == pytest.approx(cost + 100 * 20)


def test_each_kind_may_have_its_own_price() -> None:
    names = "input output cached_input cache_write cache_write_1h audio_input audio_output"
    price = Price(**{name: number * 1e6 for number, name in enumerate(names.split(), 1)})
    read = {"cache_read": 10, "cache_creation": 10, "ephemeral_1h_input_tokens": 20, "audio": 30}
    # Of the tokens of a known time, LangChain's clients may count those in the other kind, too.
    read["cache_creation"] += read["ephemeral_1h_input_tokens"]
    found = bill_call(price, input_token_details=read, output_token_details={"audio": 20})
    prompt = 30 * 1 + 10 * 3 + 10 * 4 + 20 * 5 + 30 * 6
    assert found.cost == pytest.approx(prompt + 80 * 2 + 20 * 7)


def test_audio_and_a_cache_have_list_prices_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    details: Any = {"cache_read": 100, "audio": 200}
    told: Any = {"input_tokens": 1000, "output_tokens": 10, "total_tokens": 1010}
    answer = AIMessage("Yes.", usage_metadata={**told, "input_token_details": details})
    with fake("google") as server:
        model = client_of("google", server)
        scripted = FakeMessagesListChatModel(responses=[answer])
        monkeypatch.setattr(type(model), "_agenerate", scripted._agenerate)
        outcome = converse(chat("Well?", max_iterations=1), model=model, store="memory:").outcome
    parts = [
        ListedUsage(input_tokens=700, output_tokens=10),
        ListedUsage(input_tokens=100, cache_read_tokens=100),
        ListedUsage(input_tokens=200, input_audio_tokens=200),
    ]
    prices = [calc_price(part, "gemini-2.5-flash", provider_id="google") for part in parts]
    assert outcome is not None
    assert outcome.total.cost == pytest.approx(float(sum(one.total_price for one in prices)))
