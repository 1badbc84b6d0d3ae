"""A conversation with a tool, a structured judge and streaming, against each provider's API."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.tools import tool
from typer.testing import CliRunner

from duologue.graphs import (
    Conversation,
    EndChat,
    Result,
    Speaker,
    SpecError,
    chat,
    converse,
    stream,
)
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.cli_help import app
from support.tables import each_row, read_rows

from .base import FakeServer, ProviderRequest
from .fakes import FAKES, client_of, fake

TALK: Final = Conversation.model_validate(
    {
        "task": "Multiply two and three.",
        "speakers": [{"name": "Ann", "tools": ["calculator"]}, {"name": "Ben"}],
        "judge": {"kind": "separate", "criteria": ["Ben agrees."]},
        "end_chat": {
            "mode": "end_chat_after_first_completion",
            "max_iterations": 3,
            "allow_unanswered_end": True,
        },
    }
)
SUM: Final = ScriptedToolCall(name="calculator", args={"expression": "2 * 3"}, id="abcdefgh1")

THINKING: Final[dict[str, dict[str, Any]]] = read_rows(__file__, "thinking")
"""For each API a model that thinks, and its options."""

DEFAULTS: Final = {
    "openai_chat": "temperature",
    "openai_responses": "temperature",
    "anthropic": "temperature",
    "litellm": "temperature",
}
"""For each API the default that its thinking model refuses, once."""

Run = Callable[[Conversation, BaseChatModel | str], Result]


def script(prompt: Prompt, request: ProviderRequest) -> Line:
    """Call the calculator, then say the sum, agree, and find the criterion met in the end."""
    if "criterion_1" in json.dumps(request.body):
        is_met = "I agree" in str(prompt[-1]["content"])
        return {"criterion_1": "met" if is_met else "not_met"}
    if prompt[-1]["role"] == "tool":
        return Reply(text=f"It is {prompt[-1]['content']}.", reasoning="Now I know it.")
    if request.tools:
        return Reply(tool_calls=(SUM,), reasoning="I need a calculator.")
    return "I agree."


def run_whole(talk: Conversation, model: BaseChatModel | str) -> Result:
    """Run a conversation without a stream."""
    return converse(talk, model=model, store="memory:")


def run_streamed(talk: Conversation, model: BaseChatModel | str) -> Result:
    """Run a conversation by its stream, whose pieces must join to the messages."""
    events = list(stream(talk, model=model, store="memory:streamed"))
    pieces = [event.text for event in events if event.event == "token"]
    assert "".join(pieces).endswith("I agree.")
    assert len(pieces) > len(["It is 6.", "I agree."])
    assert events[0].event == "session"
    return converse(talk, model=model, store="memory:streamed", session=events[0].session)


def check_talk(result: Result, server: FakeServer[Any], default: str | None = None) -> None:
    assert len(server.refused) == (0 if default is None else 1)
    assert all(str(default) in str(refusal) for refusal in server.refused)
    assert result.transcript == [("Ann", "It is 6."), ("Ben", "I agree.")]
    assert result.outcome is not None
    assert result.outcome.reason == "completed"
    assert [verdict.complete for verdict in result.outcome.verdicts] == [False, True]
    assert result.outcome.total.input_tokens


@pytest.mark.part(5)
@pytest.mark.parametrize("run", [run_whole, run_streamed])
@pytest.mark.parametrize("api", FAKES)
def test_a_conversation_calls_a_tool_and_is_judged(api: str, run: Run) -> None:
    with fake(api, script) as server:
        result = run(TALK, client_of(api, server))
    check_talk(result, server)


@pytest.mark.part(3)
@pytest.mark.parametrize("run", [run_whole, run_streamed])
@pytest.mark.parametrize("api", [api for api in THINKING if api != "deepseek"])
def test_a_conversation_of_models_that_think(api: str, run: Run) -> None:
    with fake(api, script) as server:
        result = run(TALK, client_of(api, server, **THINKING[api]))
    check_talk(result, server, DEFAULTS.get(api))


@pytest.mark.parametrize("run", [run_whole, run_streamed])
def test_a_conversation_of_deepseeks_thinking_model_by_our_own_client(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = {"kind": "separate", "criteria": ["Ben agrees."], "form": "lines"}
    talk = TALK.replace(judge=judge)

    def lines(prompt: Prompt, request: ProviderRequest) -> Line:
        if "Ben agrees." not in json.dumps(request.body):
            return script(prompt, request)
        return "1: met" if "I agree" in str(prompt[-1]["content"]) else "1: not met"

    with fake("deepseek", lines) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        result = run(talk, "deepseek-reasoner")
    check_talk(result, server)


@pytest.mark.parametrize("model", ["gpt-5", "openai:o4-mini"])
def test_the_command_line_runs_models_that_refuse_a_temperature(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "talk.toml"
    file.write_text(TALK.to_toml(), encoding="utf-8")
    with fake("openai_chat", script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        ran = CliRunner().invoke(app, ["run", str(file), "--model", model, "--store", "memory:"])
    assert ran.exit_code == 0, ran.output
    assert "It is 6." in ran.output
    # The judge's limit has its older name at a server that is not OpenAI's own.
    default, limit = server.refused
    assert "'temperature'" in default
    assert "'max_tokens'" in limit


@pytest.mark.parametrize(
    ("name", "api", "address"),
    read_rows(__file__, "a_conversation_of_a_model_by_its_name"),
)
def test_a_conversation_of_a_model_by_its_name(
    name: str, api: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake(api, script) as server:
        monkeypatch.setenv(address, server.url)
        monkeypatch.setenv(f"{name.partition(':')[0].upper()}_API_KEY", "any")
        result = run_whole(TALK, name)
    check_talk(result, server)


def test_the_responses_api_is_used_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    model_settings = {"max_tokens": 99, "extra_args": {"reasoning": {"effort": "low"}}}
    talk = TALK.replace(
        speakers=[speaker.replace(model_settings=model_settings) for speaker in TALK.speakers]
    )
    talk = talk.replace(judge={"kind": "separate", "criteria": ["Ben agrees."], "model": "other"})
    judge = ScriptedChatModel(
        [{"criterion_1": "not_met"}, {"criterion_1": "met"}],
    )
    with fake("openai_responses", script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        result = converse(talk, model="o4-mini", models={"other": judge}, store="memory:")
    check_talk(result, server, "temperature")
    assert {request.body["max_output_tokens"] for request in server.calls} == {99}
    assert {request.body["reasoning"]["effort"] for request in server.calls} == {"low"}


@each_row(
    "a_setting_that_a_client_lacks_is_an_error_before_the_first_call",
    "api",
    "model_settings",
    "field",
)
def test_a_setting_that_a_client_lacks_is_an_error_before_the_first_call(
    api: str, model_settings: dict[str, Any], field: str
) -> None:
    talk = TALK.replace(
        speakers=[speaker.replace(model_settings=model_settings) for speaker in TALK.speakers]
    )
    with (
        fake(api, script) as server,
        pytest.raises(SpecError, match=rf"^speakers\.0\.model_settings\.{field}: "),
    ):
        run_whole(talk, client_of(api, server))
    assert not server.requests


@pytest.mark.part(5)
@pytest.mark.parametrize("api", FAKES)
def test_each_setting_reaches_each_api_by_its_own_name(api: str) -> None:
    model_settings = {"temperature": 0.5, "max_tokens": 99}
    talk = TALK.replace(
        speakers=[speaker.replace(model_settings=model_settings) for speaker in TALK.speakers]
    )
    with fake(api, script) as server:
        check_talk(run_whole(talk, client_of(api, server)), server)
    spoken = [json.dumps(one.body) for one in server.calls if "criterion_1" not in str(one.body)]
    assert all('"temperature": 0.5' in body and " 99" in body for body in spoken)


@pytest.mark.parametrize("streams", [False, True])
def test_a_late_error_of_openrouter_is_repeated_by_our_own_client(
    streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It arrives with status 200, in the body or in an event."""
    monkeypatch.setattr("duologue.nodes.models.client.failures._LONGEST_PAUSE", 0)
    busy: list[Line] = [
        Reply(error=429),
        Reply(error=502, message="The provider is down."),
        "Fine.",
    ]
    talk = chat("Say hi.", assistant="Clerk", max_iterations=1)
    with fake("openrouter", busy) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        model = "openai/gpt-5"
        if streams:
            list(stream(talk, model=model, store="memory:late"))
        else:
            converse(talk, model=model, store="memory:late")
        assert len(server.calls) == len(busy)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


CALL: Final = ScriptedToolCall(name="add", args={"a": 1, "b": 2}, id="abcdefgh1")


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
        Reply(tool_calls=[CALL]),
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
    with fake(api, ["Well."]) as server:
        model = client_of(api, server).bind_tools([add])
        assert model.invoke([*memory, HumanMessage("Well?")]).text == "Well."
    assert server.refused == []
