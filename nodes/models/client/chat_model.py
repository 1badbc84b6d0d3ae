"""LangChain's client of OpenAI's API with what this project needs of it changed.

It overrides private hooks of langchain-openai; tests hold it equal to the stock client.
"""

from collections.abc import AsyncIterator
from typing import Any

import openai
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import add_usage, subtract_usage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI

from ....graphs.common.sanitize import excerpt
from ..tool_calling.calls import RAW, raw_calls, read_calls
from .server_replies import NoReplyError


class ChatModel(ChatOpenAI):
    """`ChatOpenAI` that hands its messages over as extra body, and keeps broken calls.

    The JSON on the wire is the same. The client would otherwise check every message of the whole
    history against its types on each call, which costs more than the rest of this program.

    A JSON schema for the answer is handed over in the same way: the client would otherwise read the
    answer by itself, and raise where it is cut off or does not fit.

    Calls whose arguments are JSON but no object would raise, and in a stream those that are broken
    or cut off would be mended.
    """

    def _get_request_payload(
        self,
        input_: LanguageModelInput,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,  # as in the class above
    ) -> dict[str, Any]:
        payload: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        if "messages" in payload:
            extra = {**(payload.get("extra_body") or {}), "messages": payload["messages"]}
            payload["messages"] = []
            if isinstance(payload.get("response_format"), dict):
                extra["response_format"] = payload.pop("response_format")
            payload["extra_body"] = extra
        return payload

    def _create_chat_result(
        self,
        response: dict[str, Any] | openai.BaseModel,
        generation_info: dict[str, Any] | None = None,
    ) -> ChatResult:
        if isinstance(response, str):
            raise NoReplyError(f"the reply is a page or a text, no JSON: {excerpt(response)}")
        called = [_taken(choice) for choice in getattr(response, "choices", None) or ()]
        result = super()._create_chat_result(response, generation_info)
        for generation, calls in zip(result.generations, called, strict=False):
            if calls and isinstance(generation.message, AIMessage):
                ending = (generation.generation_info or {}).get("finish_reason")
                good, broken = read_calls(calls, cut_off=ending == "length")
                generation.message.tool_calls = good
                generation.message.invalid_tool_calls = broken
        return result

    async def _astream(
        self,
        *args: Any,  # as in the class above
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        is_empty, told = True, None
        async for piece in super()._astream(*args, **kwargs):
            is_empty = False
            message = piece.message
            if isinstance(message, AIMessageChunk) and message.usage_metadata:
                # Each tells what was used until then, and LangChain sums them up.
                message.usage_metadata = subtract_usage(message.usage_metadata, told)
                told = add_usage(told, message.usage_metadata)
            yield piece
        if is_empty:
            raise NoReplyError("the reply is no stream of events")

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
            # It loses calls that are not all there.
            plain = {**delta, "tool_calls": [_as_usual(call) for call in calls]}
            chunk = {**chunk, "choices": [{**choice, "delta": plain}]}
        made = super()._convert_chunk_to_generation_chunk(
            chunk, default_chunk_class, base_generation_info
        )
        if made is not None and calls:
            made.message.additional_kwargs[RAW] = calls
        return made


def _as_usual(call: dict[str, Any]) -> dict[str, Any]:
    """A part of a call as LangChain expects it."""
    function = {
        key: value if isinstance(value := call[key], str) else None for key in ("name", "arguments")
    }
    return {"index": call.get("index"), "id": call["id"], "function": function}


def _taken(choice: object) -> list[dict[str, Any]]:  # whatever a server sent
    """Take the calls out of a choice of the client's."""
    message = getattr(choice, "message", None)
    calls = getattr(message, "tool_calls", None)
    if message is None or not calls:
        return []
    message.tool_calls = None
    return raw_calls(
        [
            call.model_dump(warnings=False) if isinstance(call, openai.BaseModel) else call
            for call in calls
        ]
    )
