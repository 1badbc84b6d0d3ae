"""A chat model that answers from a script, for testing conversations without a real model."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    BaseRunManager,
    CallbackManagerForLLMRun,
)
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, LLMResult
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from pydantic import BaseModel, PrivateAttr, SkipValidation, ValidationError

from ...graphs.log.metadata import (
    Reflection,
    SpeakerChoice,
    SpecifiedTask,
    Speech,
    Summary,
    UnheardReply,
    kind_name,
)
from ..models.tool_calls import RAW, read_calls
from .replies import Reply
from .script import Prompt, Script, Tape, as_prompt
from .wire import client_error, deltas, usage

Purpose: TypeAlias = Literal["speech", "verdict", "choice", "summary", "task"]
"""What a conversation calls a model for: what a speaker says or which tools it calls, whether the
task is complete, who speaks next, what stands for older messages, the task in other words."""

_PURPOSES: Final[Mapping[str, Purpose]] = {
    kind_name(Speech): "speech",
    # A speech, too: one that is not shown while it comes.
    kind_name(UnheardReply): "speech",
    kind_name(Reflection): "verdict",
    kind_name(SpeakerChoice): "choice",
    kind_name(Summary): "summary",
    kind_name(SpecifiedTask): "task",
}

_asked: ContextVar[Mapping[str, Any] | None] = ContextVar("_asked", default=None)
"""The metadata of the call that is being made."""


@dataclass(frozen=True)
class Call:
    """One call that a `ScriptedChatModel` received.

    Attributes:
        messages: The LangChain messages, as received.
        kwargs: The call's other parameters, such as `temperature` or `stop`.
        tools: The tools on offer, in OpenAI's form: `{"type": "function", "function": {…}}`.
        response_format: What the answer must look like, in OpenAI's form, or None.
        purpose: What a conversation makes the call for: `"speech"`, `"verdict"`, `"choice"`,
            `"summary"` or `"task"`. None where no conversation makes it.
        speaker: The speaker whose model is called; None where it is nobody's, such as a separate
            judge's.
    """

    messages: tuple[BaseMessage, ...]
    kwargs: dict[str, Any]
    tools: tuple[dict[str, Any], ...] = ()
    response_format: dict[str, Any] | None = None
    purpose: Purpose | None = None
    speaker: str | None = None

    @property
    def prompt(self) -> Prompt:
        """The messages as a script's function sees them."""
        return as_prompt(self.messages)

    @property
    def tool_choice(self) -> str | None:
        """`"auto"`, `"required"`, `"none"` or a tool's name; None if not given."""
        given = self.kwargs.get("tool_choice")
        if isinstance(given, dict):
            named: str = (given.get("function") or given)["name"]
            return named
        return "required" if given in ("any", True) else given

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON schema the answer was asked to follow, or None."""
        wanted: dict[str, Any] = (self.response_format or {}).get("json_schema", {})
        return wanted.get("schema")


class ScriptedChatModel(BaseChatModel):
    """A LangChain chat model that answers from a script and records what it was asked.

    Bound and copied models (`bind`, `bind_tools`, `with_structured_output`, `copy.deepcopy`)
    continue the same script and record into the same `calls`. Usage counts words as tokens.
    `stop` and the other parameters are recorded and have no effect.

    Args:
        script: Replies in the order of the calls, or a function from the messages to a reply, or
            from the messages and the `Call`.

    Example:
        >>> model = ScriptedChatModel(script=["Hello.", "Bye."])
        >>> model.invoke("Hi").content
        'Hello.'
        >>> model.calls[0].messages[0].content
        'Hi'

    Calls raise:
        ScriptExhaustedError: The script has no reply left; names the calls and the last prompt.
        openai.APIError: The reply is an error: the class the real client raises for that status
            once its retries are used up; `openai.APIConnectionError` for `"drop"`.
        Exception: An exception in the script is raised as it is.
    """

    keeps_broken_calls: ClassVar[bool] = True

    script: SkipValidation[Script]

    _tape: Tape[Call] = PrivateAttr()

    def __init__(self, script: Script, **kwargs: object) -> None:
        super().__init__(script=script, **kwargs)
        self._tape = Tape(script)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> "ScriptedChatModel":
        # A copy with a tape of its own would record where no test looks.
        return self.__copy__()

    @property
    def calls(self) -> list[Call]:
        """Every call so far, in order, also those made through bound or copied models."""
        return self._tape.calls

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: object,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Offer tools to the model; each call records them and the other parameters."""
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def with_structured_output(
        self, schema: dict[str, Any] | type, *, include_raw: bool = False, **kwargs: object
    ) -> Runnable[LanguageModelInput, dict[str, Any] | BaseModel]:
        """Ask for answers that follow a schema; the reply's text is read as JSON.

        `include_raw` works as in `ChatOpenAI`; the other parameters are recorded.

        Raises:
            langchain_core.exceptions.OutputParserException: From the runnable that is returned,
                where the text does not fit the schema and `include_raw` is off.
        """
        described = convert_to_json_schema(schema)
        wanted = {"name": described.get("title", "answer"), "schema": described}
        bound = self.bind(response_format={"type": "json_schema", "json_schema": wanted}, **kwargs)
        model = schema if isinstance(schema, type) and issubclass(schema, BaseModel) else None

        def read(message: AIMessage) -> object:
            if not include_raw:
                return _parsed(message, model)
            found: dict[str, object] = {"raw": message, "parsed": None, "parsing_error": None}
            try:
                found["parsed"] = _parsed(message, model)
            except OutputParserException as error:
                found["parsing_error"] = error
            return found

        return bound | RunnableLambda[AIMessage, Any](read)

    async def agenerate(self, *args: Any, **kwargs: Any) -> LLMResult:
        """Answer; where LangChain streams meanwhile, it tells `_astream` nothing of the call."""
        before = _asked.set(kwargs.get("metadata"))
        try:
            return await super().agenerate(*args, **kwargs)
        finally:
            _asked.reset(before)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        prompt, reply = self._play(messages, stop, run_manager, kwargs)
        time.sleep(reply.delay)
        return _result(reply, prompt)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        prompt, reply = self._play(messages, stop, run_manager, kwargs)
        await asyncio.sleep(reply.delay)
        return _result(reply, prompt)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> Iterator[ChatGenerationChunk]:
        prompt, reply = self._play(messages, stop, run_manager, kwargs)
        time.sleep(reply.delay)
        yield from _chunks(reply, prompt)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> AsyncIterator[ChatGenerationChunk]:
        prompt, reply = self._play(messages, stop, run_manager, kwargs)
        await asyncio.sleep(reply.delay)
        for chunk in _chunks(reply, prompt):
            yield chunk

    def _play(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None,
        run_manager: BaseRunManager | None,
        kwargs: Mapping[str, Any],
    ) -> tuple[Prompt, Reply]:
        rest = dict(kwargs) if stop is None else {**kwargs, "stop": stop}
        tools = tuple(rest.pop("tools", None) or ())
        response_format = rest.pop("response_format", None)
        beside = (run_manager.metadata if run_manager else _asked.get()) or {}
        purpose, speaker = _PURPOSES.get(str(beside.get("purpose"))), beside.get("speaker")
        call = Call(tuple(messages), rest, tools, response_format, purpose, speaker)
        prompt = as_prompt(messages)
        return prompt, self._tape.answer(self._tape.record(call), prompt)


def _parsed(message: AIMessage, model: type[BaseModel] | None) -> object:
    text = str(message.text)
    if refusal := message.additional_kwargs.get("refusal"):
        raise OutputParserException(f"The model refused: {refusal}", llm_output=text)
    try:
        return model.model_validate_json(text) if model else json.loads(text)
    except (ValidationError, json.JSONDecodeError) as error:
        raise OutputParserException(f"Not the JSON asked for: {error}", llm_output=text) from error


def _metadata(reply: Reply, prompt: Prompt) -> dict[str, Any]:
    asked, said, total = usage(reply, prompt).values()
    return {
        "additional_kwargs": {} if reply.refusal is None else {"refusal": reply.refusal},
        "response_metadata": {"finish_reason": reply.ending, "model_name": "scripted"},
        "usage_metadata": UsageMetadata(input_tokens=asked, output_tokens=said, total_tokens=total),
    }


def _result(reply: Reply, prompt: Prompt) -> ChatResult:
    if reply.error is not None:
        raise client_error(reply)
    # As our client reads them, so that broken arguments look the same here.
    raw = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in reply.tool_calls]
    good, bad = read_calls(raw, cut_off=reply.ending == "length")
    message = AIMessage(
        content=reply.text,
        tool_calls=good,
        invalid_tool_calls=bad,
        **_metadata(reply, prompt),
    )
    if reply.reasoning:
        message.additional_kwargs[reply.reasoning_field] = reply.reasoning
    return ChatResult(generations=[ChatGeneration(message=message)])


def _chunks(reply: Reply, prompt: Prompt) -> Iterator[ChatGenerationChunk]:
    if isinstance(reply.error, int):
        raise client_error(reply)
    for delta in deltas(reply):
        if reply.reasoning_field in delta:
            yield ChatGenerationChunk(message=AIMessageChunk(content="", additional_kwargs=delta))
        if "content" in delta:
            yield ChatGenerationChunk(message=AIMessageChunk(content=delta["content"]))
        for call in delta.get("tool_calls", ()):
            function, call_id = call["function"], call.get("id")
            raw = {"index": call["index"], "id": call_id, "name": function.get("name")}
            part = tool_call_chunk(args=function["arguments"], **raw)
            chunk = AIMessageChunk(
                content="",
                tool_call_chunks=[part],
                additional_kwargs={RAW: [{**raw, "arguments": function["arguments"]}]},
            )
            yield ChatGenerationChunk(message=chunk)
    if reply.error == "drop":
        raise client_error(reply)
    last = AIMessageChunk(content="", **_metadata(reply, prompt), chunk_position="last")
    yield ChatGenerationChunk(message=last)
