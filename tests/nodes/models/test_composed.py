"""Models that LangChain has composed: with fallbacks, bound, configurable."""

from collections.abc import Callable
from typing import Any

import openai
import pytest
from langchain_core.runnables import ConfigurableField

from duologue.graphs import Conversation, ModelError, Result, converse
from duologue.nodes.testing import Call, Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.models import Chat

WHICH = ConfigurableField(id="which")
COMPOSED: dict[str, Callable[[ScriptedChatModel], Chat]] = {
    "bound": lambda model: model.bind(top_k=7),
    "bound twice": lambda model: model.bind(top_k=1).bind(top_k=7),
    "with fallbacks": lambda model: ScriptedChatModel([Reply(error=500)] * 9).with_fallbacks(
        [model.bind(top_k=7)]
    ),
    "bound with fallbacks": lambda model: model.with_fallbacks([model]).bind(top_k=7),
    "retried": lambda model: model.bind(top_k=7).with_retry(),
    "tagged": lambda model: model.bind(top_k=7).with_config(tags=["mine"]),
    "configurable": lambda model: model.configurable_fields(
        disable_streaming=ConfigurableField(id="streams")
    ).bind(top_k=7),
    "alternatives": lambda model: (
        ScriptedChatModel([])
        .configurable_alternatives(WHICH, other=model.bind(top_k=7))
        .with_config(configurable={"which": "other"})
    ),
}
SUM = ScriptedToolCall(name="calculator", args={"expression": "2 * 3"}, id="a")


def talk(**speaker: Any) -> Conversation:
    return Conversation.model_validate(
        {
            "task": "Compute",
            "speakers": [
                {"name": "Ann", "tools": ["calculator"], "checks_completion": True, **speaker},
                {"name": "Ben"},
            ],
            "end_chat": {"mode": "end_chat_after_first_completion", "max_iterations": 2},
        }
    )


def script(prompt: Prompt, call: Call) -> Line:
    if call.purpose == "verdict":
        return {"objectives_left": [], "complete": True}
    if "tool" in [message["role"] for message in prompt] or call.speaker == "Ben":
        return f"It is six, says {call.speaker}."
    return Reply(tool_calls=(SUM,))


def run(conversation: Conversation, model: Chat) -> Result:
    return converse(conversation, model=model, store="memory:")


@pytest.mark.part(4)
@pytest.mark.parametrize("name", COMPOSED)
def test_it_talks_calls_tools_and_judges_and_nothing_bound_is_lost(name: str) -> None:
    model = ScriptedChatModel(script)
    result = run(talk(model_settings={"temperature": 0.5}), COMPOSED[name](model))
    assert result.outcome is not None
    assert result.outcome.reason == "completed"
    assert result.transcript[0] == ("Ann", "It is six, says Ann.")
    assert list(result.outcome.usage) == ["ScriptedChatModel"]
    assert {call.purpose for call in model.calls} == {"speech", "verdict"}
    for call in model.calls:
        assert call.kwargs["top_k"] == 7
        assert (call.schema is not None) == (call.purpose == "verdict")
    offered = [call for call in model.calls if call.tools]
    assert offered
    assert all(call.kwargs["temperature"] == 0.5 for call in offered)


def test_tools_by_schema_and_models_by_name_may_be_composed() -> None:
    def by_schema(prompt: Prompt, call: Call) -> Line:
        if call.purpose == "verdict":
            return {"objectives_left": [], "complete": True}
        has_result = any("6" in str(message["content"]) for message in prompt)
        if call.schema is None or has_result:
            return {"reply": "Six."} if call.schema else "Hello."
        return {"tool": "calculator", "arguments": {"expression": "2 * 3"}}

    model = ScriptedChatModel(by_schema)
    conversation = talk(tool_calling="schema", model="mine")
    models = {"mine": model.with_fallbacks([model])}
    others = ScriptedChatModel(["Hm."] * 9)
    result = converse(conversation, models=models, model=others, store="memory:")
    assert result.transcript[0] == ("Ann", "Six.")
    assert model.calls[0].schema is not None


@pytest.mark.parametrize("wrap", [lambda chat: chat, lambda chat: chat.bind(top_k=7)])
def test_if_all_models_fail_the_error_names_each_and_its_failure(
    wrap: Callable[[Chat], Chat],
) -> None:
    models = [ScriptedChatModel([Reply(error=status)]) for status in (429, 500)]
    with pytest.raises(
        ModelError,
        match=r"all models failed: ScriptedChatModel: .*429.*; ScriptedChatModel: .*500",
    ) as failed:
        run(talk(), wrap(models[0].with_fallbacks(models[1:])))
    assert isinstance(failed.value.__cause__, openai.RateLimitError)
