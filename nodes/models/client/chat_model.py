"""LangChain's client of OpenAI's API with what this project needs of it changed.

It overrides private hooks of langchain-openai; tests hold it equal to the stock client.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final, Literal

import httpx2
import openai
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.ai import add_usage, subtract_usage
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from langchain_openai.chat_models.base import _handle_openai_api_error, _handle_openai_bad_request

from ....graphs.common.sanitize import excerpt
from ..tool_calls import RAW, raw_calls, read_calls
from .server_replies import (
    DETAILS,
    PARTS,
    REASONING,
    THOUGHTS,
    NoReplyError,
    failure_in,
    piece_of_reply,
    whole_reply,
)

_BLOCK: Final = 500
"""How many pieces are joined at a time."""

_LONGEST_ARGUMENTS: Final = 4000
"""The most characters of arguments, over all calls, that LangChain may mend: 0.1 s of work."""


class KeptPieces:
    """Makes pieces cheap to join once whoever listens to the stream has taken them.

    Listeners keep the messages and LangChain the pieces around them, so each piece gets another
    message, and the messages stay as they are.
    """

    def __init__(self) -> None:
        self._joined: list[ChatGenerationChunk] = []
        self._block: list[ChatGenerationChunk] = []
        self._arguments = 0

    def add(self, piece: ChatGenerationChunk) -> None:
        """Add a piece that listeners have taken."""
        message = piece.message
        if not isinstance(message, AIMessageChunk):
            return
        self._block.append(piece)
        before = self._arguments
        self._arguments += sum(len(part["args"] or "") for part in message.tool_call_chunks)
        if self._arguments > _LONGEST_ARGUMENTS:
            is_first = before <= _LONGEST_ARGUMENTS
            for one in (*self._joined, *self._block) if is_first else (piece,):
                _remove_calls(one)
        if len(self._block) == _BLOCK:
            first, *others = self._block
            first.message = first.message + [one.message for one in others]
            for one in others:
                one.message = AIMessageChunk(content="")
            self._joined.append(first)
            self._block.clear()


def _remove_calls(piece: ChatGenerationChunk) -> None:
    """Remove the calls as LangChain reads them; ours stay in the additional fields."""
    none: dict[str, object] = {"tool_call_chunks": [], "tool_calls": [], "invalid_tool_calls": []}
    piece.message = piece.message.model_copy(update=none)


_PATH = "/chat/completions"

_EVENTS_AT_ONCE = 100
"""After how many events of a stream other coroutines get their turn."""

_LIMIT = "max_completion_tokens"
"""The name by which `ChatOpenAI` always sends the longest answer."""

_RAW_RESPONSE = {"X-Stainless-Raw-Response": "true"}
"""Has OpenAI's client give the HTTP response as it came; the stock `ChatOpenAI` sends it, too."""


class ChatModel(ChatOpenAI):
    """`ChatOpenAI` that asks OpenAI's client for plain JSON, and keeps broken calls.

    What is sent, the retries and the errors are the same. The client's typed methods would check
    every message of the whole history on each call, and build objects of all that comes back, which
    costs more than the rest of this program. They would also read a structured answer by
    themselves, and raise where it is cut off or does not fit.

    Calls whose arguments are JSON but no object would raise, and in a stream those that are broken
    or cut off would be mended. What a model thinks would be lost.
    """

    keeps_broken_calls: ClassVar[bool] = True

    limit_name: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """The server's name for the longest answer."""

    def _get_request_payload(
        self,
        input_: LanguageModelInput,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,  # as in the class above
    ) -> dict[str, Any]:
        messages = [_as_sent(each) for each in self._convert_input(input_).to_messages()]
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
            text or _with_thought(next(converted), message)
            for message, text in zip(messages, texts, strict=True)
        ]
        return payload

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,  # as in the class above
    ) -> ChatResult:
        payload = self._get_request_payload(messages, stop=stop, **kwargs)
        if not _is_plain(payload):
            return await super()._agenerate(messages, stop, run_manager, **kwargs)
        headers = {**(payload.pop("extra_headers", None) or {}), **_RAW_RESPONSE}
        with _errors_of_langchain():
            raw = await self.root_async_client.post(
                _PATH, cast_to=object, body=_body(payload), options={"headers": headers}
            )
            reply = whole_reply(_checked(_json(raw.http_response), raw.http_request))
        message = reply["choices"][0]["message"]
        calls = raw_calls(message.pop("tool_calls", None))
        result = self._create_chat_result(reply)
        generation = result.generations[0]
        if isinstance(generation.message, AIMessage):
            ending = (generation.generation_info or {}).get("finish_reason")
            good, broken = read_calls(calls, cut_off=ending == "length")
            generation.message.tool_calls = good
            generation.message.invalid_tool_calls = broken
            generation.message.additional_kwargs["refusal"] = message["refusal"]
            generation.message.additional_kwargs |= _thought_in(message)
        return result

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        *,
        stream_usage: bool | None = None,
        **kwargs: Any,  # as in the class above
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
        kept, told, count = KeptPieces(), None, 0
        headers = payload.pop("extra_headers", None) or {}
        with _errors_of_langchain():
            stream = await self.root_async_client.post(
                _PATH,
                cast_to=object,
                body=_body(payload),
                options={"headers": headers},
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            async with stream as events:
                async for event in events:
                    chunk = piece_of_reply(_checked(event, events.response.request))
                    piece = self._convert_chunk_to_generation_chunk(chunk, AIMessageChunk, None)
                    if piece is None or (count and not chunk["choices"] and not chunk["usage"]):
                        continue
                    count, message = count + 1, piece.message
                    if isinstance(message, AIMessageChunk) and message.usage_metadata:
                        # Each tells what was used until then, and LangChain sums them up.
                        message.usage_metadata = subtract_usage(message.usage_metadata, told)
                        told = add_usage(told, message.usage_metadata)
                    yield piece
                    kept.add(piece)
                    if count % _EVENTS_AT_ONCE == 0:
                        # Many may have come at once; others get their turn between them.
                        await asyncio.sleep(0)
        if not count:
            raise NoReplyError("the reply is not a stream of events")

    def _convert_chunk_to_generation_chunk(
        self,
        chunk: dict[str, Any],
        default_chunk_class: type,
        base_generation_info: dict[str, Any] | None,
    ) -> ChatGenerationChunk | None:
        choice = next(iter(chunk.get("choices") or ()), None) or {}
        delta = choice.get("delta") or {}
        calls = raw_calls(delta.get("tool_calls"))
        if calls:
            # It loses calls that are not all there, and tries to mend each piece of arguments.
            chunk = {**chunk, "choices": [{**choice, "delta": {**delta, "tool_calls": None}}]}
        made = super()._convert_chunk_to_generation_chunk(
            chunk, default_chunk_class, base_generation_info
        )
        if made is not None:
            thought = _thought_in(delta)
            # A list in a list: LangChain joins the fields of its items, even those that are whole.
            pieces = {name: [thought[name]] for name in DETAILS if name in thought}
            made.message.additional_kwargs |= {**thought, **pieces}
            if calls and isinstance(made.message, AIMessageChunk):
                made.message.additional_kwargs[RAW] = calls
                made.message.tool_call_chunks = [_as_usual(call) for call in calls]
        return made


def _as_usual(call: dict[str, Any]) -> ToolCallChunk:
    """Return a part of a call as LangChain has it."""
    name, arguments = (
        value if isinstance(value := call[key], str) else None for key in ("name", "arguments")
    )
    return tool_call_chunk(name=name, args=arguments, id=call["id"], index=call.get("index"))


def _thought_in(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in (*REASONING, *DETAILS, PARTS) if fields.get(name)}


def _as_sent(message: BaseMessage) -> BaseMessage:
    """Return a message without the thought of another client's answer, which this API refuses."""
    parts = message.content if isinstance(message.content, list) else []
    kept = [part for part in parts if not (isinstance(part, dict) and part.get("type") in THOUGHTS)]
    return message if len(kept) == len(parts) else message.model_copy(update={"content": kept})


def _with_thought(sent: dict[str, Any], message: BaseMessage) -> dict[str, Any]:
    """Send a thought back where the server has put it, which `ChatOpenAI` does not."""
    thought = _thought_in(message.additional_kwargs)
    if parts := thought.pop(PARTS, None):
        spoken = [{"type": "text", "text": message.text}] if message.text else []
        sent = {**sent, "content": [*parts, *spoken]}
    return {**sent, **thought}


def _is_plain(payload: dict[str, Any]) -> bool:
    """Return whether it is a chat completion whose answer the client leaves as JSON."""
    return "messages" in payload and not isinstance(payload.get("response_format"), type)


_ROLES: Mapping[type[BaseMessage], str] = {HumanMessage: "user", AIMessage: "assistant"}


def _as_text(message: BaseMessage) -> dict[str, Any] | None:
    """Convert a message that is nothing but text, of which `ChatOpenAI` looks at each letter."""
    role = _ROLES.get(type(message))
    if role is None or not isinstance(message.content, str) or message.additional_kwargs:
        return None
    if isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls):
        return None
    name = {} if message.name is None else {"name": message.name}
    return {"content": message.content, **name, "role": role}


def _body(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON to send."""
    extra = payload.pop("extra_body", None) or {}
    return {**payload, **extra}


def _json(response: httpx2.Response) -> object:
    """Read a body; where it is no JSON and does not claim to be, the error shows it."""
    try:
        return response.json()
    except Exception:
        if response.headers.get("content-type", "").partition(";")[0].endswith("json"):
            raise
        shown = excerpt(response.text)
        raise NoReplyError(f"the reply is a page or plain text, not JSON: {shown}") from None


def _checked(found: object, request: httpx2.Request) -> object:
    """Raise what a server says went wrong, though the status was 200."""
    if failure := failure_in(found):
        raise openai.APIError("an error", request, body=failure)
    return found


@contextmanager
def _errors_of_langchain() -> Iterator[None]:
    """Raise the errors of OpenAI's client as `ChatOpenAI` does."""
    try:
        yield
    except openai.BadRequestError as error:
        _handle_openai_bad_request(error)
    except openai.APIError as error:
        _handle_openai_api_error(error)
