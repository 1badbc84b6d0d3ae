"""Normalising what a model has answered. Pure functions.

Models that users bring may give anything that LangChain lets through.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata

from ...graphs.common.errors import ModelError
from ...graphs.log.messages import storable
from ...graphs.log.thoughts import Thought
from ...graphs.spec.usage import ESTIMATED, token_count
from ...graphs.text.tokens import tokens_of, tokens_of_message
from .reasoning import apart

THOUGHT: Final = "duologue_thought"
"""Where an answer that was read has its thought, in its ``additional_kwargs``."""

RECORDED: Final = "duologue_recorded"
"""Says there that an answer comes from a record: it is what came of all that was asked for then."""

_CUT_OFF: Final = "length"
"""How our own client says why an answer that reached its longest length has ended."""

_ENDINGS: Final = ("finish_reason", "stop_reason", "stopReason", "done_reason")
"""Where LangChain's clients say it: OpenAI and Gemini, Anthropic, Bedrock, Ollama."""

_LENGTHS: Final = (
    "length",
    "max_tokens",
    "max_output_tokens",
    "model_length",
    "model_context_window_exceeded",
)
"""What they say there, in any case; the last one where the context was full."""


def as_answer(found: object, label: str) -> AIMessage:
    """Make sure that an answer is a message of plain text, with its thought kept apart."""
    if not isinstance(found, AIMessage):
        raise ModelError(f"{label} answered with a {type(found).__name__}, not a message")
    text, extra = storable(str(found.text)), found.additional_kwargs
    has_marks = "<" in text or "◁" in text
    is_plain = isinstance(found.content, str) and not has_marks and not any(extra.values())
    # Where it was read before, as in a replay, its thought is known.
    if not is_plain and THOUGHT not in extra:
        text, thought = apart(found, text)
        extra = {**extra, THOUGHT: thought}
    answer = found.model_copy(update={"content": text, "additional_kwargs": extra})
    return as_cut_off(answer) if _has_run_out(found.response_metadata) else answer


def _has_run_out(metadata: Mapping[str, Any]) -> bool:
    """Whether an answer was cut off, by what the client says of its end."""
    incomplete = metadata.get("incomplete_details")
    told = [metadata.get(name) for name in _ENDINGS]
    # OpenAI's Responses API has it in there.
    told.append(incomplete.get("reason") if isinstance(incomplete, Mapping) else None)
    for one in told:
        # In front: LangChain joins them if several pieces of a stream say it. A name may be dotted.
        if str(one).casefold().removeprefix("finishreason.").startswith(_LENGTHS):
            return True
    return False


def as_cut_off(answer: AIMessage) -> AIMessage:
    """Give an answer as one that ended at its longest length."""
    metadata = {**answer.response_metadata, "finish_reason": _CUT_OFF}
    return answer.model_copy(update={"response_metadata": metadata})


def is_cut_off(answer: AIMessage) -> bool:
    """Whether an answer that was normalised ended at its longest length."""
    return bool(answer.response_metadata.get("finish_reason") == _CUT_OFF)


def is_recorded(answer: AIMessage) -> bool:
    """Whether an answer comes from a record."""
    return RECORDED in answer.additional_kwargs


def thought_of(answer: AIMessage, *, goes_back: bool = False) -> Thought | None:
    """Give the thought of an answer that was read.

    Args:
        answer: The answer.
        goes_back: Whether it calls tools, so that its model is shown its thought once more.
    """
    found: Thought | None = answer.additional_kwargs.get(THOUGHT)
    if found is None or goes_back:
        return found
    return found.model_copy(update={"given": None}) if found.text else None


def as_text(answer: AIMessage, found: object) -> AIMessage:
    """Turn a structured answer into one of text."""
    # Some clients have the model call a function, which it may introduce in words.
    is_called = found is not None and (not answer.text or bool(answer.tool_calls))
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
        thought = thought_of(answer)
        written = tokens_of_message(answer) + tokens_of(thought.text if thought else "")
        told, metadata = None, {**metadata, ESTIMATED: True}
    used = UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)
    details = None if told is None else told.get("input_token_details")
    if details and (cached := token_count(details.get("cache_read"))):
        used["input_token_details"] = InputTokenDetails(cache_read=min(cached, read))
    return answer.model_copy(update={"usage_metadata": used, "response_metadata": metadata})
