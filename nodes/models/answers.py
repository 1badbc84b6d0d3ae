"""Normalising what a model has answered. Pure functions.

Models that users bring may give anything that LangChain lets through.
"""

import json
from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata

from ...graphs.common.errors import ModelError
from ...graphs.log.messages import storable
from ...graphs.spec.usage import ESTIMATED, token_count
from ...graphs.text.tokens import tokens_of_message


def as_answer(found: object, label: str) -> AIMessage:
    """Make sure that an answer is a message of plain text."""
    if not isinstance(found, AIMessage):
        raise ModelError(f"{label} answered with a {type(found).__name__}, not a message")
    metadata = found.response_metadata
    if str(metadata.get("finish_reason")).startswith("length"):
        # Joined by LangChain where several pieces of a stream say it.
        metadata = {**metadata, "finish_reason": "length"}
    return found.model_copy(
        update={"content": storable(str(found.text)), "response_metadata": metadata}
    )


def as_text(answer: AIMessage, found: object) -> AIMessage:
    """Turn a structured answer into one of text."""
    is_called = not answer.text and found is not None
    text = json.dumps(found, ensure_ascii=False) if is_called else str(answer.text)
    return answer.model_copy(
        update={"content": storable(text), "tool_calls": [], "invalid_tool_calls": []}
    )


def counted(answer: AIMessage, prompt: Sequence[BaseMessage]) -> AIMessage:
    """Make sure that an answer has its usage, estimated where the model tells none."""
    told = answer.usage_metadata
    metadata = answer.response_metadata
    read = None if told is None else token_count(told.get("input_tokens"))
    written = None if told is None else token_count(told.get("output_tokens"))
    if told is None or read is None or written is None:
        read = sum(map(tokens_of_message, prompt))
        written = tokens_of_message(answer)
        told, metadata = None, {**metadata, ESTIMATED: True}
    used = UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)
    details = None if told is None else told.get("input_token_details")
    if details and (cached := token_count(details.get("cache_read"))):
        used["input_token_details"] = InputTokenDetails(cache_read=min(cached, read))
    return answer.model_copy(update={"usage_metadata": used, "response_metadata": metadata})
