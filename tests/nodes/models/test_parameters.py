"""Each generation parameter reaches the model, however it is asked (R12)."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda
from pydantic import BaseModel, PrivateAttr

from duologue.graphs import ModelSettings, ask, converse, stream
from duologue.nodes.testing import ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from support.models import Chat

GIVEN: dict[str, Any] = {
    "temperature": 0.7,
    "max_tokens": 33,
    "top_p": 0.5,
    "stop": ["END"],
    "seed": 7,
}
ANN: dict[str, Any] = {"name": "Ann", "model_settings": ModelSettings(**GIVEN)}
ANSWER = json.dumps({"n": 1, "reply": "Hi."})


class Sum(BaseModel):
    n: int


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


class OwnWithSchema(OwnWithFields):
    """The same model, whose structured output does not receive the arguments of the call."""

    def with_structured_output(
        self,
        schema: Any,  # noqa: ANN401
        *,
        include_raw: bool = False,
        **_: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        return RunnableLambda(self._read)

    async def _read(self, prompt: LanguageModelInput) -> dict[str, Any]:
        answer = await self.ainvoke(prompt)
        return {"raw": answer, "parsed": json.loads(answer.text), "parsing_error": None}


class OwnWithEndings(Own):
    """The same model, which adds its own text to those that end an answer."""

    async def _agenerate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, *args: Any, **kwargs: Any
    ) -> ChatResult:
        result = await super()._agenerate(messages, stop and [*stop], *args, **kwargs)
        if stop:
            stop.append("<end>")
        return result


Way = Callable[[Chat | str], object]


def plain(model: Chat | str) -> None:
    ask(ANN, "Hi.", model=model, store="memory:")


def streamed(model: Chat | str) -> None:
    bob = {"name": "Bob", "replies": [{"kind": "text", "text": "Hi."}]}
    talk = {"task": "Greet.", "speakers": [ANN, bob], "end_chat": {"max_iterations": 1}}
    list(stream(talk, model=model, store="memory:parameters"))


def structured(model: Chat | str) -> None:
    ask(ANN, "Hi.", schema=Sum, model=model, store="memory:")


def by_schema(model: Chat | str) -> None:
    ann = ANN | {"tools": [bell], "tool_calling": "schema"}
    ask(ann, "Hi.", model=model, store="memory:")


@pytest.mark.parametrize("way", [plain, streamed, structured, by_schema])
def test_r12_every_parameter_reaches_each_kind_of_model(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted, own, with_fields = ScriptedChatModel([ANSWER]), Own(), OwnWithFields()
    with ScriptedServer([ANSWER]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        for model in ("scripted", scripted, own, with_fields):
            way(model)
    calls = [*(one.body for one in server.calls), *(one.kwargs for one in scripted.calls)]
    calls += [*own._seen, *with_fields._seen]
    assert [{name: call.get(name) for name in GIVEN} for call in calls] == [GIVEN] * 4


def test_r12_structured_output_has_the_settings_for_which_a_client_has_fields() -> None:
    model = OwnWithSchema()
    structured(model)
    (call,) = model._seen
    names = ("temperature", "max_tokens", "top_p")
    assert {name: call.get(name) for name in names} == {name: GIVEN[name] for name in names}


def test_r12_a_client_that_changes_its_arguments_receives_them_unchanged_again() -> None:
    model = OwnWithEndings()
    talk = {"task": "Greet.", "speakers": [ANN, {"name": "Bob"}]}
    converse({**talk, "end_chat": {"max_iterations": 2}}, model=model, store="memory:")
    assert [call["stop"] for call in model._seen] == [["END"], None] * 2
