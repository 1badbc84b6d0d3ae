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
from ..models.answers import RAW
from ..models.tool_calls import read_calls
from .script import Prompt, Reply, Script, Tape, as_prompt, client_error, deltas, usage

Purpose: TypeAlias = Literal["speech", "verdict", "choice", "summary", "task"]
"""The purpose of a call in a conversation: `speech` is a speaker's turn (text or tool calls),
`verdict` a judge's decision whether the task is complete, `choice` the choice of the next speaker,
`summary` a summary of older messages, `task` a rewritten task.
"""

_PURPOSES: Final[Mapping[str, Purpose]] = {
    kind_name(Speech): "speech",
    # Also a speech, but it is not shown while it arrives.
    kind_name(UnheardReply): "speech",
    kind_name(Reflection): "verdict",
    kind_name(SpeakerChoice): "choice",
    kind_name(Summary): "summary",
    kind_name(SpecifiedTask): "task",
}

_current_metadata: ContextVar[Mapping[str, Any] | None] = ContextVar(
    "_current_metadata", default=None
)
"""The metadata of the call in progress."""


@dataclass(frozen=True)
class Call:
    """One call that a `ScriptedChatModel` received.

    Attributes:
        messages: The LangChain messages, as received.
        kwargs: The call's other parameters, such as `temperature` or `stop`.
        tools: The offered tools in OpenAI's form: `{"type": "function", "function": {…}}`.
        response_format: The requested format of the answer in OpenAI's form. None if there is none.
        purpose: The call's purpose in a conversation: `"speech"`, `"verdict"`, `"choice"`,
            `"summary"` or `"task"`. None if no conversation makes the call.
        speaker: The name of the speaker whose model is called. None if the call belongs to no
            speaker, such as the call of a separate judge.
    """

    messages: tuple[BaseMessage, ...]
    kwargs: dict[str, Any]
    tools: tuple[dict[str, Any], ...] = ()
    response_format: dict[str, Any] | None = None
    purpose: Purpose | None = None
    speaker: str | None = None

    @property
    def prompt(self) -> Prompt:
        """The messages as a script's function receives them."""
        return as_prompt(self.messages)

    @property
    def tool_choice(self) -> str | None:
        """`"auto"`, `"required"`, `"none"` or a tool's name. None if the call sets no choice."""
        given = self.kwargs.get("tool_choice")
        if isinstance(given, dict):
            named: str = (given.get("function") or given)["name"]
            return named
        return "required" if given in ("any", True) else given

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON schema that the answer must follow. None if the call sets no schema."""
        wanted: dict[str, Any] = (self.response_format or {}).get("json_schema", {})
        return wanted.get("schema")


class ScriptedChatModel(BaseChatModel):
    """A LangChain chat model that answers from a script and records its calls.

    Models derived from it (`bind`, `bind_tools`, `with_structured_output`, `copy.deepcopy`)
    continue the same script and record into the same `calls`. Usage counts words as tokens. `stop`
    and the other parameters are recorded, but have no effect.

    Args:
        script: Replies in the order of the calls, or a function from the messages to a reply, or
            from the messages and the `Call` to a reply.

    Example:
        >>> model = ScriptedChatModel(script=["Hello.", "Bye."])
        >>> model.invoke("Hi").content
        'Hello.'
        >>> model.calls[0].messages[0].content
        'Hi'

    Raises:
        TypeError: The script is neither a sequence of answers nor a function, or one of its answers
            has a type that no script accepts.

    Calls raise:
        ScriptExhaustedError: The script has no reply left. The message contains the number of
            replies and the last prompt.
        openai.APIError: The reply is an error. The class is the one that the real client raises for
            this status after its retries, or `openai.APIConnectionError` for `"drop"`.
        Exception: An exception in the script is raised unchanged.
    """

    keeps_broken_calls: ClassVar[bool] = True

    script: SkipValidation[Script]

    _tape: Tape[Call] = PrivateAttr()

    def __init__(self, script: Script, **kwargs: object) -> None:
        super().__init__(script=script, **kwargs)
        self._tape = Tape(script)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> "ScriptedChatModel":
        # A copy with a new tape would record its calls where no test looks for them.
        return self.__copy__()

    @property
    def calls(self) -> list[Call]:
        """Every call so far, in order, including calls of bound or copied models."""
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
        """Offer tools to the model. Each call records them and the other parameters."""
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def with_structured_output(
        self, schema: dict[str, Any] | type, *, include_raw: bool = False, **kwargs: object
    ) -> Runnable[LanguageModelInput, dict[str, Any] | BaseModel]:
        """Request answers that follow a schema. The reply's text is parsed as JSON.

        `include_raw` works as in `ChatOpenAI`; the other parameters are recorded.

        Raises:
            langchain_core.exceptions.OutputParserException: Raised by the returned runnable if the
                text does not fit the schema and `include_raw` is false.
        """
        described = convert_to_json_schema(schema)
        wanted = {"name": described.get("title", "answer"), "schema": described}
        bound = self.bind(response_format={"type": "json_schema", "json_schema": wanted}, **kwargs)
        model = schema if isinstance(schema, type) and issubclass(schema, BaseModel) else None

        def read(message: AIMessage) -> object:
            if not include_raw:
                return _parse(message, model)
            found: dict[str, object] = {"raw": message, "parsed": None, "parsing_error": None}
            try:
                found["parsed"] = _parse(message, model)
            except OutputParserException as error:
                found["parsing_error"] = error
            return found

        return bound | RunnableLambda[AIMessage, Any](read)

    async def agenerate(self, *args: Any, **kwargs: Any) -> LLMResult:
        """Return the answer.

        The call's metadata is kept for `_astream`, because LangChain may call `_astream` without a
        run manager.
        """
        before = _current_metadata.set(kwargs.get("metadata"))
        try:
            return await super().agenerate(*args, **kwargs)
        finally:
            _current_metadata.reset(before)

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
        call_metadata = (run_manager.metadata if run_manager else _current_metadata.get()) or {}
        purpose, speaker = (
            _PURPOSES.get(str(call_metadata.get("purpose"))),
            call_metadata.get("speaker"),
        )
        call = Call(tuple(messages), rest, tools, response_format, purpose, speaker)
        prompt = as_prompt(messages)
        return prompt, self._tape.answer(self._tape.record(call), prompt)


def _parse(message: AIMessage, model: type[BaseModel] | None) -> object:
    text = str(message.text)
    if refusal := message.additional_kwargs.get("refusal"):
        raise OutputParserException(f"the model refused: {refusal}", llm_output=text)
    try:
        return model.model_validate_json(text) if model else json.loads(text)
    except (ValidationError, json.JSONDecodeError) as error:
        raise OutputParserException(
            f"the answer is not the requested JSON: {error}", llm_output=text
        ) from error


def _metadata(reply: Reply, prompt: Prompt) -> dict[str, Any]:
    read, written, total = usage(reply, prompt).values()
    return {
        "additional_kwargs": {} if reply.refusal is None else {"refusal": reply.refusal},
        "response_metadata": {"finish_reason": reply.ending, "model_name": "scripted"},
        "usage_metadata": UsageMetadata(
            input_tokens=read, output_tokens=written, total_tokens=total
        ),
    }


def _result(reply: Reply, prompt: Prompt) -> ChatResult:
    if reply.error is not None:
        raise client_error(reply)
    # duologue's client parses calls the same way, so broken arguments look the same here.
    raw = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in reply.tool_calls]
    good, bad = read_calls([raw], cut_off=reply.ending == "length")
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
                additional_kwargs={RAW: [[{**raw, "arguments": function["arguments"]}]]},
            )
            yield ChatGenerationChunk(message=chunk)
    if reply.error == "drop":
        raise client_error(reply)
    last = AIMessageChunk(content="", **_metadata(reply, prompt), chunk_position="last")
    yield ChatGenerationChunk(message=last)
