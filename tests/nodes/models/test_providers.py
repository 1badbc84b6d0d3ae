"""Models by names such as ``anthropic:claude-…``, which LangChain makes."""

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from genai_prices import Usage, calc_price
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from duologue.graphs import (
    Conversation,
    EndChat,
    MaxCost,
    ModelError,
    SpecError,
    converse,
    stream,
)
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.replies_in_bytes import use_server
from support.tables import read_rows

PAIR = Conversation.model_validate(
    {
        "task": "Compute",
        "speakers": [
            {"name": "Ann", "tools": ["calculator"], "checks_completion": True},
            {"name": "Ben"},
        ],
        "end_chat": {"mode": "end_chat_after_first_completion"},
        "prices": {"deepseek:deepseek-chat": {"input": 1, "output": 2}},
    }
)
SUM = ScriptedToolCall(name="calculator", args={"expression": "2 * 3"}, id="a")


@pytest.fixture
def deepseek(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a key for a provider whose client speaks OpenAI's API."""
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("deepseek")
def test_without_prices_the_providers_price_list_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    free = PAIR.model_copy(update={"prices": {}, "end_chat": EndChat(max_iterations=1)})
    with ScriptedServer(["Hello.", "Well."] * 2, models=("deepseek-chat",)) as server:
        monkeypatch.setenv("DEEPSEEK_API_BASE", server.url)
        result = converse(free, model="deepseek:deepseek-chat", store="memory:listed")
        assert result.outcome is not None
        used = result.outcome.total
        listed = calc_price(
            Usage(input_tokens=used.input_tokens, output_tokens=used.output_tokens),
            "deepseek-chat",
            provider_id="deepseek",
        )
        assert used.cost == pytest.approx(float(listed.total_price))
        # Another server may have a model of the same name.
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        result = converse(free, model="deepseek-chat", store="memory:unlisted")
    assert result.outcome is not None
    assert result.outcome.total.input_tokens
    assert not result.outcome.total.cost


LARGE: dict[str, str | Reply] = {
    "text": "bean " * 300,
    "calls": Reply(tool_calls=[SUM.model_copy(update={"args": {"expression": "2 * 3" * 300}})]),
    "broken calls": Reply(tool_calls=[SUM.model_copy(update={"args": "2 * 3" * 300})]),
}


@pytest.mark.usefixtures("deepseek")
@pytest.mark.parametrize("run", [converse, lambda *given, **options: [*stream(*given, **options)]])
@pytest.mark.parametrize("name", LARGE)
def test_an_answer_that_is_too_large_is_refused_before_it_is_used(
    name: str, run: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUOLOGUE_MAX_REPLY_SIZE", "1KiB")
    words = (
        "the model deepseek:deepseek-chat sent a reply of more than 1.0 KiB; "
        "raise DUOLOGUE_MAX_REPLY_SIZE to read it"
    )
    with ScriptedServer([LARGE[name]], models=("deepseek-chat",)) as server:
        monkeypatch.setenv("DEEPSEEK_API_BASE", server.url)
        with pytest.raises(ModelError, match=re.escape(words)):
            run(PAIR, model="deepseek:deepseek-chat", store="memory:large")
    assert len(server.calls) == 1


@pytest.mark.parametrize("installed", [True, False])
def test_where_money_ends_it_each_model_needs_a_price(
    *, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = EndChat(when=MaxCost(limit=0.000_001), max_iterations=9)
    dear = PAIR.model_copy(update={"prices": {}, "end_chat": end})
    model = ChatOpenAI(model="gpt-4o", api_key=SecretStr("k"))
    if not installed:
        # Also if the table was installed at an earlier call of this process.
        monkeypatch.setattr(
            "duologue.nodes.models.adapters.provider_parameters.find_spec", lambda _: None
        )
    monkeypatch.setattr(
        ChatOpenAI, "_agenerate", ScriptedChatModel(script=["Hello."] * 20)._agenerate
    )
    if not installed:
        with pytest.raises(SpecError, match="prices: the model 'gpt-4o' has no price"):
            converse(dear, model=model, store="memory:")
        return
    result = converse(dear, model=model, store="memory:")
    assert result.outcome is not None
    assert result.outcome.reason == "max_cost"
    with pytest.raises(SpecError, match=r"the model 'ScriptedChatModel' has no price \(max"):
        converse(dear, model=ScriptedChatModel(script=["Hello."]), store="memory:")


@pytest.mark.usefixtures("deepseek")
def test_a_providers_model_talks_calls_tools_and_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    yes = {"objectives_left": [], "complete": True}
    verdict = ScriptedToolCall(name="SelfVerdict", args=yes, id="v")

    def script(prompt: list[dict[str, str]]) -> Reply:
        number = len(server.calls)
        if number == 1:
            return Reply(tool_calls=(SUM,))
        if number in (2, 3):
            return Reply(text=f"Reply {number}.")
        tools = server.calls[-1].body.get("tools")
        if not tools:
            return Reply(text='{"objectives_left": [], "complete": true}')
        name = tools[0]["function"]["name"]
        return Reply(tool_calls=(verdict.model_copy(update={"name": name}),))

    with ScriptedServer(script, models=("deepseek-chat",)) as server:
        monkeypatch.setenv("DEEPSEEK_API_BASE", server.url)
        result = converse(PAIR, model="deepseek:deepseek-chat", store="memory:")
    assert result.outcome is not None
    assert result.outcome.reason == "completed"
    assert result.transcript[0] == ("Ann", "Reply 2.")
    assert list(result.outcome.usage) == ["deepseek:deepseek-chat"]
    assert result.outcome.total.cost


@pytest.mark.usefixtures("deepseek")
def test_what_a_provider_refuses_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer([]) as server:
        monkeypatch.setenv("DEEPSEEK_API_BASE", server.url)
        with pytest.raises(ModelError, match=r"^the model deepseek:deepseek-chat failed: .*404"):
            converse(PAIR, model="deepseek:deepseek-chat", store="memory:")
    monkeypatch.delenv("DEEPSEEK_API_KEY")
    monkeypatch.delenv("DEEPSEEK_API_BASE")
    with pytest.raises(ModelError, match="DEEPSEEK_API_KEY must be set"):
        converse(PAIR, model="deepseek:deepseek-chat", store="memory:")


@pytest.mark.parametrize(
    ("has_langchain", "name", "packages"),
    read_rows(__file__, "a_missing_package_is_named_before_any_model_is_called"),
)
def test_a_missing_package_is_named_before_any_model_is_called(
    monkeypatch: pytest.MonkeyPatch, has_langchain: bool, name: str, packages: str
) -> None:
    if not has_langchain:
        monkeypatch.setattr(
            "duologue.nodes.models.adapters.langchain.find_spec",
            lambda module: None if module == "langchain" else find_spec(module),
        )
    ben = PAIR.speakers[1].model_copy(update={"model": name})
    changes = {"speakers": (PAIR.speakers[0], ben), "prices": {}}
    with ScriptedServer(["Hello."]) as server, use_server(server):
        words = f"model {name!r} needs more packages; run `pip install {packages}`"
        with pytest.raises(ModelError, match=f"^{re.escape(words)}$"):
            converse(PAIR.model_copy(update=changes), store="memory:", model="scripted")
        assert server.requests == []


@pytest.mark.parametrize("name", ["llama3:8b", "ft:gpt-4o:acme", "ollama:", "ollama", "scripted"])
def test_any_other_name_with_a_colon_is_asked_of_the_server(name: str) -> None:
    talk = Conversation.model_validate(
        {
            "task": "x",
            "speakers": [{"name": "Ann"}, {"name": "Ben"}],
            "end_chat": {"max_iterations": 1},
        }
    )
    with ScriptedServer(["One.", "Two."], models=(name,)) as server, use_server(server):
        result = converse(talk, model=name, store="memory:")
        assert [call.body["model"] for call in server.calls] == [name, name]
    assert result.outcome is not None


def test_the_providers_are_langchains_and_stand_in_the_docs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from langchain.chat_models import base

    page = Path(__file__).parents[3].joinpath("docs/models.md").read_text(encoding="utf-8")
    monkeypatch.setattr("duologue.nodes.models.adapters.langchain.find_spec", lambda _: None)
    for name in base._BUILTIN_PROVIDERS.keys() - {"openai"}:
        package = base._BUILTIN_PROVIDERS[name][0].partition(".")[0].replace("_", "-")
        with pytest.raises(ModelError, match=f"run `pip install langchain {package}`"):
            converse(PAIR, model=f"{name}:model", store="memory:")
        assert f"`{name}`" in page
