"""A conversation with a tool, a structured judge and streaming, against each provider's API."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pytest
from langchain_core.language_models import BaseChatModel

from duologue.graphs import Conversation, Result, converse, stream
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedToolCall

from .base import FakeServer, ProviderRequest
from .fakes import FAKES, client_of, fake

TALK: Final = Conversation.model_validate(
    {
        "task": "Multiply two and three.",
        "speakers": [{"name": "Ann", "tools": ["calculator"]}, {"name": "Ben"}],
        "judge": {"kind": "separate", "criteria": ["Ben agrees."]},
        "end_chat": {"mode": "end_chat_after_first_completion", "max_iterations": 3},
    }
)
SUM: Final = ScriptedToolCall(name="calculator", args={"expression": "2 * 3"}, id="abcdefgh1")

THINKING: Final[dict[str, dict[str, Any]]] = {
    "openai_chat": {"model": "gpt-5"},
    "openai_responses": {"model": "o4-mini"},
    "anthropic": {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4096},
    "google": {"model": "gemini-3-pro-preview"},
    "ollama": {"model": "qwen3:8b", "reasoning": True},
    "mistral": {"model": "magistral-small-latest"},
    "deepseek": {"model": "deepseek-reasoner"},
    "openrouter": {"model": "openai/gpt-5", "reasoning": {"effort": "low"}},
    "litellm": {"model": "gpt-5"},
}
"""For each API a model that thinks, and what it is made with."""

TEMPERATURE: Final = "a temperature that nobody has set is sent to a model that refuses it"
REFUSED: Final = {
    "ollama": "a temperature is sent as a keyword, which Ollama's client does not take",
}
REFUSED_THINKING: Final = {
    **REFUSED,
    **dict.fromkeys(("openai_chat", "openai_responses", "anthropic", "litellm"), TEMPERATURE),
    "deepseek": "thoughts before the call of a tool are not sent back with it",
}
"""Why an API refuses the conversation, if it does."""

Run = Callable[[Conversation, BaseChatModel], Result]


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


def run_whole(talk: Conversation, model: BaseChatModel) -> Result:
    """Run a conversation without a stream."""
    return converse(talk, model=model, store="memory:")


def run_streamed(talk: Conversation, model: BaseChatModel) -> Result:
    """Run a conversation by its stream, whose pieces must join to what was said."""
    events = list(stream(talk, model=model, store="memory:streamed"))
    pieces = [event.text for event in events if event.event == "token"]
    assert "".join(pieces).endswith("I agree.")
    assert len(pieces) > len(["It is 6.", "I agree."])
    assert events[0].event == "session"
    return converse(talk, model=model, store="memory:streamed", session=events[0].session)


def mark_refused(names: Iterable[str], refused: Mapping[str, str]) -> list[Any]:
    """Return the APIs as parameters, of which some are expected to fail."""
    return [
        pytest.param(
            name,
            marks=[pytest.mark.xfail(strict=False, reason=refused[name])]
            if name in refused
            else [],
        )
        for name in names
    ]


def check_talk(result: Result, server: FakeServer[Any]) -> None:
    assert server.refused == []
    assert result.speeches == [("Ann", "It is 6."), ("Ben", "I agree.")]
    assert result.outcome is not None
    assert result.outcome.reason == "completed"
    assert [verdict.complete for verdict in result.outcome.verdicts] == [False, True]
    assert result.outcome.total.input_tokens


@pytest.mark.parametrize("run", [run_whole, run_streamed])
@pytest.mark.parametrize("api", mark_refused(FAKES, REFUSED))
def test_a_conversation_calls_a_tool_and_is_judged(api: str, run: Run) -> None:
    with fake(api, script) as server:
        result = run(TALK, client_of(api, server))
    check_talk(result, server)


@pytest.mark.parametrize("run", [run_whole, run_streamed])
@pytest.mark.parametrize("api", mark_refused(THINKING, REFUSED_THINKING))
def test_a_conversation_of_models_that_think(api: str, run: Run) -> None:
    with fake(api, script) as server:
        result = run(TALK, client_of(api, server, **THINKING[api]))
    check_talk(result, server)
