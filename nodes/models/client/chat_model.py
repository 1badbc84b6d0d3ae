"""LangChain's client for OpenAI's API, with the changes that this project needs.

The class overrides private methods of langchain-openai, so tests compare it with the stock client.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, ClassVar, Final, Literal, TypeGuard, cast

import openai
from langchain_core.callbacks import AsyncCallbackManager, AsyncCallbackManagerForLLMRun
from langchain_core.globals import get_llm_cache
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.chat_models import agenerate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.ai import InputTokenDetails, add_usage, subtract_usage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_openai import ChatOpenAI
from langchain_openai.chat_models.base import _handle_openai_api_error, _handle_openai_bad_request

from ..answers import CALL_FIELDS, DETAILS, OPAQUE, RAW, fields_of_calls
from ..opaque_fields import add_fields
from ..stops import NO_END, is_stop
from ..tool_calls import read_calls
from .http_client import is_patched, request_completion
from .reply_reader import ReplyReader

_BLOCK: Final = 500
"""Number of streamed pieces that are joined at a time."""

_LONGEST_ARGUMENTS: Final = 4000
"""Maximum number of characters in the arguments of all calls that LangChain may repair. Repairing
that many takes 0.1 s.
"""


class KeptPieces:
    """Streamed pieces, kept in a form that is cheap to join.

    Listeners keep the messages, and LangChain keeps the pieces that contain them. Therefore this
    class replaces the message in a piece, and never changes a message.
    """

    def __init__(self) -> None:
        self._joined: list[ChatGenerationChunk] = []
        self._block: list[ChatGenerationChunk] = []
        self._arguments = 0

    def add(self, piece: ChatGenerationChunk) -> None:
        """Add a piece that listeners have handled."""
        message = piece.message
        if not isinstance(message, AIMessageChunk):
            return
        self._block.append(piece)
        before = self._arguments
        self._arguments += sum(len(part["args"] or "") for part in message.tool_call_chunks)
        if self._arguments > _LONGEST_ARGUMENTS:
            is_first = before <= _LONGEST_ARGUMENTS
            # `additional_kwargs` keeps the calls in duologue's form.
            none: dict[str, object] = {
                name: [] for name in ("tool_call_chunks", "tool_calls", "invalid_tool_calls")
            }
            for one in (*self._joined, *self._block) if is_first else (piece,):
                one.message = one.message.model_copy(update=none)
        if len(self._block) == _BLOCK:
            first, *others = self._block
            first.message = first.message + [one.message for one in others]
            for one in others:
                one.message = AIMessageChunk(content="")
            self._joined.append(first)
            self._block.clear()


_EVENTS_AT_ONCE = 100
"""Number of stream events after which other coroutines may run."""

_LIMIT = "max_completion_tokens"
"""The name that `ChatOpenAI` always uses for the output token limit."""


class ChatModel(ChatOpenAI):
    """`ChatOpenAI` that reads plain JSON from OpenAI's client and keeps invalid calls.

    Requests and errors are those of the stock class. The client's typed methods would
    validate the whole history on each call and build objects of each reply, which takes more time
    than the rest of this program. They would also parse structured answers, and raise if an answer
    is cut off or does not fit its schema.

    The stock class raises on calls whose arguments are JSON but not an object, repairs invalid or
    truncated calls in a stream, and drops the model's thought.
    """

    keeps_broken_calls: ClassVar[bool] = True

    limit_name: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """The server's name for the output token limit."""

    def _get_request_payload(
        self,
        input_: LanguageModelInput,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,  # as in the base class
    ) -> dict[str, Any]:
        # LangChain would check each message once more.
        messages = input_ if _is_text(input_) else self._convert_input(input_).to_messages()
        texts = [_as_text(message) for message in messages]
        others = [each for each, text in zip(messages, texts, strict=True) if text is None]
        payload: dict[str, Any] = super()._get_request_payload(others, stop=stop, **kwargs)
        if not _is_plain(payload):
            whole: dict[str, Any] = super()._get_request_payload(messages, stop=stop, **kwargs)
            return whole
        if self.limit_name not in payload and (most := payload.pop(_LIMIT, None)) is not None:
            payload[self.limit_name] = most
        converted = iter(payload["messages"])
        payload["messages"] = [
            text or add_fields(next(converted), message)
            for message, text in zip(messages, texts, strict=True)
        ]
        return payload

    async def ainvoke(
        self,
        input: LanguageModelInput,  # noqa: A002  # as in the base class
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,  # as in the base class
    ) -> AIMessage:
        """Call the model, as in the base class.

        LangChain's callbacks cost as much as the request. They are left out if nothing listens.
        """
        config = ensure_config(config)
        if self._is_observed(config) or not _is_text(input) or not _PASSED_ON.isdisjoint(kwargs):
            return await super().ainvoke(input, config, stop=stop, **kwargs)
        result = await self._agenerate([*input], stop=stop, **kwargs)
        generation = result.generations[0]
        message = cast("AIMessage", generation.message)
        message.response_metadata = {
            **(result.llm_output or {}),
            **(generation.generation_info or {}),
            **message.response_metadata,
        }
        return message

    def _is_observed(self, config: RunnableConfig) -> bool:
        """Return whether a callback, a cache, a limiter or a patch of LangChain follows a call."""
        # An empty cache with a length would be false.
        has_cache = self.cache not in (None, False) or get_llm_cache() is not None
        if has_cache or self.rate_limiter or self.streaming or self.output_version:
            return True
        manager = AsyncCallbackManager.configure(
            config.get("callbacks"), self.callbacks, self.verbose
        )
        methods = (
            BaseChatModel.ainvoke,
            BaseChatModel.agenerate,
            BaseChatModel._agenerate_with_cache,
        )
        return bool(manager.handlers) or any(is_patched(one, _LANGCHAIN) for one in methods)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,  # as in the base class
    ) -> ChatResult:
        payload = self._get_request_payload(messages, stop=stop, **kwargs)
        if not _is_plain(payload):
            return await super()._agenerate(messages, stop, run_manager, **kwargs)
        client = self.root_async_client
        with _errors_of_langchain():
            response = await request_completion(client, payload, stream=False)
            reader = ReplyReader(response, client)
            if await reader.is_stream():
                return await agenerate_from_stream(self._pieces(reader))
            reply = await reader.read_whole()
        message = reply["choices"][0]["message"]
        calls = message.pop("tool_calls", ())
        result = self._create_chat_result(reply)
        answer = cast("AIMessage", result.generations[0].message)
        is_cut = is_stop(reply["choices"][0]["finish_reason"])
        answer.tool_calls, answer.invalid_tool_calls = read_calls([calls], cut_off=is_cut)
        answer.additional_kwargs["refusal"] = message.get("refusal")
        answer.additional_kwargs |= _read_thought(message)
        if fields := fields_of_calls(calls):
            answer.additional_kwargs[CALL_FIELDS] = fields
        _add_kinds(answer, reply["usage"])
        return result

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        *,
        stream_usage: bool | None = None,
        **kwargs: Any,  # as in the base class
    ) -> AsyncIterator[ChatGenerationChunk]:
        streaming = {**kwargs, "stream": True}
        if self._should_stream_usage(stream_usage, **kwargs):
            streaming["stream_options"] = {"include_usage": True}
        payload = self._get_request_payload(messages, stop=stop, **streaming)
        if not _is_plain(payload):
            async for typed in super()._astream(
                messages, stop, run_manager, stream_usage=stream_usage, **kwargs
            ):
                yield typed
            return
        client = self.root_async_client
        with _errors_of_langchain():
            response = await request_completion(client, payload, stream=True)
            reader = ReplyReader(response, client)
            async with aclosing(response), aclosing(self._pieces(reader)) as pieces:
                async for piece in pieces:
                    yield piece

    async def _pieces(self, reader: ReplyReader) -> AsyncGenerator[ChatGenerationChunk]:
        """Yield the pieces of a reply."""
        kept, told, count = KeptPieces(), None, 0
        async with aclosing(reader.read_pieces()) as chunks:
            async for chunk in chunks:
                piece = self._read_piece(chunk)
                if piece is None or (count and not chunk["choices"] and not chunk["usage"]):
                    continue
                count, message = count + 1, cast("AIMessageChunk", piece.message)
                if message.usage_metadata:
                    # Each event reports the usage so far, and LangChain adds the reports up.
                    message.usage_metadata = subtract_usage(message.usage_metadata, told)
                    told = add_usage(told, message.usage_metadata)
                yield piece
                kept.add(piece)
                if count % _EVENTS_AT_ONCE == 0:
                    # Many events may arrive at once; other coroutines may run between them.
                    await asyncio.sleep(0)
        if reader.is_unended:
            yield ChatGenerationChunk(
                message=AIMessageChunk(content=""), generation_info={"finish_reason": NO_END}
            )

    def _read_piece(self, chunk: dict[str, Any]) -> ChatGenerationChunk | None:
        """Return the piece of a message that an event brings, in normalized form."""
        delta: dict[str, Any] = next((choice["delta"] for choice in chunk["choices"]), {})
        # The stock method drops incomplete calls, and tries to repair each piece of arguments.
        calls = delta.pop("tool_calls", ())
        made = self._convert_chunk_to_generation_chunk(chunk, AIMessageChunk, None)
        if made is None:
            return None
        message, thought = cast("AIMessageChunk", made.message), _read_thought(delta)
        if refusal := delta.get("refusal"):
            message.additional_kwargs["refusal"] = refusal
        # A list in a list, since LangChain would join the fields of complete items.
        pieces = {name: [thought[name]] for name in DETAILS if name in thought}
        message.additional_kwargs |= thought | pieces
        _add_kinds(message, chunk["usage"])
        if calls:
            # A list in a list, since LangChain would join the calls with the same index.
            message.additional_kwargs[RAW] = [calls]
            message.tool_call_chunks = [
                tool_call_chunk(
                    name=call["name"],
                    args=call["arguments"],
                    id=call["id"],
                    index=call.get("index"),
                )
                for call in calls
            ]
        return made


_KINDS: Mapping[str, str] = {
    "cached_tokens": "cache_read",
    "cache_write_tokens": "cache_creation",
    "audio_tokens": "audio",
}
"""LangChain's names for kinds of prompt tokens, by OpenAI's names, which callbacks receive."""


def _add_kinds(message: AIMessage, usage: Mapping[str, Any] | None) -> None:
    """Add the kinds of prompt tokens to a message's usage. `ChatOpenAI` leaves some of them out."""
    if usage is not None and message.usage_metadata is not None:
        kinds = usage["prompt_tokens_details"] or {}
        named = {_KINDS.get(kind, kind): count for kind, count in kinds.items()}
        message.usage_metadata["input_token_details"] = cast("InputTokenDetails", named)


def _read_thought(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in OPAQUE if fields.get(name)}


def _is_plain(payload: dict[str, Any]) -> bool:
    """Return whether a request is a chat completion whose reply is not parsed into a class."""
    return "messages" in payload and not isinstance(payload.get("response_format"), type)


_LANGCHAIN = "langchain_core.language_models.chat_models"
"""The module of LangChain's methods."""

_PASSED_ON = frozenset({"ls_structured_output_format", "structured_output_format", "stream"})
"""Options of a call that LangChain reads before the model does."""


def _is_text(prompt: LanguageModelInput) -> TypeGuard[list[BaseMessage]]:
    """Return whether a prompt is a list of messages without files."""
    if not isinstance(prompt, list):
        return False
    # By sets of types, since a history is long and has few.
    are_messages = all(issubclass(kind, BaseMessage) for kind in {type(one) for one in prompt})
    return are_messages and {type(one.content) for one in prompt} <= {str}


_ROLES: Mapping[type[BaseMessage], str] = {HumanMessage: "user", AIMessage: "assistant"}


def _as_text(message: BaseMessage) -> dict[str, Any] | None:
    """Convert a plain text message quickly; `ChatOpenAI` would check each character."""
    role = _ROLES.get(type(message))
    if role is None or not isinstance(message.content, str) or message.additional_kwargs:
        return None
    if isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls):
        return None
    name = {} if message.name is None else {"name": message.name}
    return {"content": message.content, **name, "role": role}


@contextmanager
def _errors_of_langchain() -> Iterator[None]:
    """Convert the errors of OpenAI's client as `ChatOpenAI` does."""
    try:
        yield
    except openai.BadRequestError as error:
        _handle_openai_bad_request(error)
    except openai.APIError as error:
        _handle_openai_api_error(error)
