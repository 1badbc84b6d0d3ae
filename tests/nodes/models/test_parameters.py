"""Each generation parameter reaches the model, however it is asked (R12)."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from pydantic import BaseModel, PrivateAttr, SecretStr

from duologue.graphs import ModelSettings
from duologue.graphs.log.metadata import Speech
from duologue.nodes.models.listeners import Listener
from duologue.nodes.models.settings import CallSettings
from duologue.nodes.testing import ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from support.models import ChatModel, Model, greet, model_of

GENERATION = ModelSettings(temperature=0.7, max_tokens=33, top_p=0.5, stop=("END",), seed=7)
SETTINGS = CallSettings.make(GENERATION, "model_settings", temperature=0.2)
GIVEN = SETTINGS.values
ANSWER = json.dumps({"n": 1, "action": "speak", "text": "Hi.", "message": "Hi."})


class Sum(BaseModel):
    n: int


@tool
def bell(n: int) -> str:
    """Ring."""
    return str(n)


class Own(BaseChatModel):
    """A user's own model, with LangChain's structured output by tool calls."""

    temperature: float | None = None
    _seen: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "own"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        fields = {name: getattr(self, name) for name in type(self).model_fields if name in GIVEN}
        told = {name: value for name, value in fields.items() if value is not None}
        self._seen.append({**told, **kwargs, "stop": stop})
        return ChatResult(generations=[ChatGeneration(message=AIMessage(ANSWER))])

    def bind_tools(
        self, tools: Sequence[Any], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(tools=list(tools), **kwargs)


class OwnWithFields(Own):
    """The same model, with a field for every parameter."""

    max_tokens: int | None = None
    top_p: float | None = None


async def plain(model: Model) -> None:
    await greet(model, settings=SETTINGS)


async def streamed(model: Model) -> None:
    await greet(model, settings=SETTINGS, listeners=[Listener()])


async def structured(model: Model) -> None:
    await model.answer_by_schema([HumanMessage("Hi.")], Sum, SETTINGS, purpose=Speech, instead="x")


async def by_schema(model: Model) -> None:
    await greet(model, settings=SETTINGS, tools=[bell], tool_calling="schema")


WAYS = [plain, streamed, structured, by_schema]
Way = Callable[[Model], Any]


@pytest.mark.parametrize("way", WAYS)
def test_r12_every_parameter_reaches_our_client(way: Way) -> None:
    with ScriptedServer([ANSWER]) as server:
        chat = ChatModel(model="scripted", base_url=server.url, api_key=SecretStr("none"))
        asyncio.run(way(model_of("m", chat)))
        (call,) = server.calls
    # The newer name is OpenAI's own.
    sent = {"max_tokens": call.body.get("max_completion_tokens")} | call.body
    assert {name: sent.get(name) for name in GIVEN} == GIVEN


@pytest.mark.parametrize("way", WAYS)
def test_r12_every_parameter_reaches_a_scripted_model(way: Way) -> None:
    chat = ScriptedChatModel(script=[ANSWER])
    asyncio.run(way(model_of("m", chat)))
    (call,) = chat.calls
    assert {name: call.kwargs.get(name) for name in GIVEN} == GIVEN


@pytest.mark.parametrize("kind", [Own, OwnWithFields])
@pytest.mark.parametrize("way", WAYS)
def test_r12_every_parameter_reaches_a_users_own_model(way: Way, kind: type[Own]) -> None:
    chat = kind()
    seen = chat._seen
    asyncio.run(way(model_of("m", chat)))
    (call,) = seen
    assert {name: call.get(name) for name in GIVEN} == GIVEN
