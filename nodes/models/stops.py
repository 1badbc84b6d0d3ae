"""Why a model stopped: the finish reasons of all providers, and errors that count as answers."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeGuard

from langchain_core.messages import AIMessage

from ...graphs.common.errors import iter_causes
from ...graphs.conversation.usage import token_count
from ...graphs.log.messages import storable
from ...graphs.speakers.reply_parts import STOP, Stop, StopCause

NO_END: Final = "no_end"
"""Our finish reason of an answer whose server sends no sign of its end."""

_REASONS: Final[Mapping[StopCause, Sequence[str]]] = {
    # OpenAI: openai/types/chat/chat_completion.py in its client, and `incomplete_details` in
    #   openai/types/responses/response.py.
    # Anthropic: https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons
    # Gemini: `FinishReason` in google/genai/types.py of its client.
    # Bedrock: `StopReason` in botocore/data/bedrock-runtime/2023-09-30/service-2.json.
    # Mistral: https://docs.mistral.ai/api (`finish_reason` of a choice).
    # OpenRouter: openrouter.ai/docs/api/reference/errors-and-debugging.
    # DeepSeek: https://api-docs.deepseek.com/api/create-chat-completion
    # Ollama: `DoneReason` and the handlers in server/routes.go, which answer so without a text.
    # vLLM: `FinishReason` in vllm/v1/engine/__init__.py.
    # Cohere: `ChatFinishReason` in its client.
    StopCause.NO_END: (NO_END,),
    StopCause.LENGTH: (
        *("length", "max_output_tokens"),  # OpenAI
        *("max_tokens", "model_context_window_exceeded"),  # Anthropic
        *("model_length", "error_limit"),  # Mistral, Cohere
    ),
    StopCause.FILTER: (
        "content_filter",  # OpenAI
        *("safety", "recitation", "blocklist", "prohibited_content", "spii"),  # Gemini
        *("model_armor", "image_safety", "image_prohibited_content", "image_recitation"),  # Gemini
        *("guardrail_intervened", "content_filtered"),  # Bedrock
        "error_toxic",  # Cohere
    ),
    StopCause.REFUSAL: ("refusal",),  # Anthropic
    StopCause.PAUSE: ("pause_turn",),  # Anthropic
    StopCause.CALL: (
        *("malformed_function_call", "unexpected_tool_call", "too_many_tool_calls"),  # Gemini
        "malformed_tool_use",  # Bedrock
    ),
    StopCause.FAILURE: (
        *("error", "insufficient_system_resource"),  # Mistral and OpenRouter, DeepSeek
        *("load", "unload"),  # Ollama
        *("abort", "timeout"),  # vLLM, Cohere
    ),
    StopCause.OTHER: (
        *("language", "other", "image_other", "no_image"),  # Gemini
        *("malformed_response", "missing_thought_signature"),  # Gemini
        *("malformed_model_output", "repetition"),  # Bedrock, vLLM
    ),
}
_CAUSES: Final = {reason: cause for cause, reasons in _REASONS.items() for reason in reasons}
"""The cause of each finish reason of a reply that is not complete, in lower case. A reason that is
not listed, such as ``stop`` or ``eos_token``, means a complete reply.
"""

_KEYS: Final = ("native_finish_reason", "finish_reason", "stop_reason", "stopReason", "done_reason")
"""Keys under which LangChain's clients store the finish reason: OpenRouter (the reason of the
model's provider, which says more), OpenAI and Gemini, Anthropic, Bedrock, Ollama.
"""

_REASON: Final = re.compile(
    # LangChain joins the reasons of several pieces, and some clients print Gemini's enum.
    rf"(?:(?:finishreason\.)?stop)*(?:(?:finishreason\.)?({'|'.join(_CAUSES)}))+"
)

_EXPLANATIONS: Final = ("explanation", "category")
"""Keys of Claude's ``stop_details``."""


_BLOCKED: Final = frozenset({"content_filter", "invalid_prompt", "content_policy_violation"})
"""Codes of an error by which a provider says that it blocks the prompt: Azure
(https://github.com/compl-ai/compl-ai/issues/20), OpenAI for models that think, and LiteLLM.
"""

_BLOCKED_IN_WORDS: Final[Mapping[str, StopCause]] = {
    # Azure, also through LiteLLM: https://github.com/BerriAI/litellm/pull/16231
    "ResponsibleAIPolicyViolation": StopCause.PROMPT,
    # DeepSeek: https://github.com/deepseek-ai/awesome-deepseek-integration/issues/13
    "Content Exists Risk": StopCause.PROMPT,
    # Alibaba's Qwen: https://github.com/camel-ai/owl/issues/432
    "data_inspection_failed": StopCause.PROMPT,
    # Anthropic: https://github.com/anthropics/claude-code/issues/6195
    "Output blocked by content filtering policy": StopCause.FILTER,
}
"""Words in the body of an error by which a provider says that it blocks the prompt or the answer.
"""

_NO_DATA: Final = (
    "No data received from Ollama stream.",
    "No generations found in stream.",
    "No generation chunks were returned",
)
"""Texts of the errors of langchain-ollama and langchain-core for a stream without an answer, to
which langchain-ollama reduces Ollama's ``load``.
"""

_READ: Final = 10_000
"""Maximum number of characters of an error's body to search."""


def read_stop(answer: AIMessage) -> Stop | None:
    """Return why a model stopped before its answer was complete, or None if it is complete."""
    metadata = answer.response_metadata
    refusals = [answer.additional_kwargs.get("refusal")]
    refusals += [part.get("refusal") for part in list_parts(answer.content, "refusal")]
    said = storable(" ".join(filter(_is_said, refusals)))
    word, cause = _find_cause(metadata)
    if said:
        cause = StopCause.REFUSAL
    if cause is None:
        return None
    details, feedback = metadata.get("stop_details"), metadata.get("prompt_feedback")
    told = [details.get(name) for name in _EXPLANATIONS] if isinstance(details, Mapping) else []
    told.append(metadata.get("finish_message"))
    told.append(feedback.get("block_reason_message") if isinstance(feedback, Mapping) else None)
    explanation = storable(next(filter(_is_said, told), ""))
    return Stop(cause=cause, word=word, refusal=said, explanation=explanation)


def _is_said(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and bool(text.strip())


def stop_of(answer: AIMessage) -> Stop | None:
    """Return the stop of a normalised answer, or None if the answer is complete."""
    found: Stop | None = answer.additional_kwargs.get(STOP)
    return found


def with_stop(answer: AIMessage, stop: Stop | None) -> AIMessage:
    """Return an answer together with its stop."""
    kept = {key: value for key, value in answer.additional_kwargs.items() if key != STOP}
    extra = kept if stop is None else {**kept, STOP: stop}
    return answer.model_copy(update={"additional_kwargs": extra})


def with_refusal(answer: AIMessage) -> AIMessage:
    """Return an answer whose text is the model's refusal, if it has no other text."""
    stop = stop_of(answer)
    if stop is None or not stop.refusal or answer.text.strip():
        return answer
    return answer.model_copy(update={"content": stop.refusal})


def settle_stop(
    answer: AIMessage, stop: Stop, max_tokens: int | None, *, has_thought: bool
) -> AIMessage:
    """Return an answer with the stop that follows from the whole answer.

    If there is only a thought, it has used up the token limit. A call that the provider did not
    accept is dropped, since Gemini may send it nevertheless.
    """
    if stop.cause is StopCause.CALL:
        return answer.model_copy(update={"tool_calls": [], "invalid_tool_calls": []})
    has_words = bool(answer.text.strip() or answer.tool_calls or answer.invalid_tool_calls)
    if not stop.is_of_length or has_words or not has_thought:
        return answer
    changes = {"cause": StopCause.THOUGHT, "max_tokens": max_tokens}
    return with_stop(answer, stop.model_copy(update=changes))


def has_hidden_thought(found: object) -> bool:
    """Return whether a model's answer contains a thought that its provider or client keeps back.

    The tokens of an answer without content are those of a thought.
    """
    answer = found["raw"] if isinstance(found, dict) else found
    if not isinstance(answer, AIMessage) or not (used := answer.usage_metadata):
        return False
    is_empty = not answer.content and bool(token_count(used.get("output_tokens")))
    return is_empty or bool((used.get("output_token_details") or {}).get("reasoning"))


def list_parts(content: object, *kinds: str) -> list[dict[str, Any]]:
    """Return the parts of a message's content that have one of these types."""
    if not isinstance(content, list):
        return []
    return [one for one in content if isinstance(one, dict) and one.get("type") in kinds]


def is_stop(reason: object) -> bool:
    """Return whether a finish reason means that a reply is not complete."""
    return _match(_read_word(reason)) is not None


@lru_cache(64)
def _match(reason: str) -> re.Match[str] | None:
    # `casefold` keeps the length of these words, so the match has the places of the reason.
    return _REASON.fullmatch(reason.casefold())


def _read_word(value: object) -> str:
    """Return a reason as text. Some clients report an enum, which may be a text, too."""
    return str(getattr(value, "value", value) or "")


def _find_cause(metadata: Mapping[str, Any]) -> tuple[str, StopCause | None]:
    """Return the provider's word and the cause in an answer's metadata."""
    feedback = metadata.get("prompt_feedback")
    blocked = feedback.get("block_reason") if isinstance(feedback, Mapping) else None
    # The first value of Gemini's enum means that no reason is known.
    if blocked and not (word := _read_word(blocked)).endswith("UNSPECIFIED"):
        return storable(word), StopCause.PROMPT
    incomplete = metadata.get("incomplete_details")
    # OpenAI's Responses API reports the reason in `incomplete_details`.
    further = incomplete.get("reason") if isinstance(incomplete, Mapping) else None
    for reason in (*map(metadata.get, _KEYS), further):
        word = reason if type(reason) is str else _read_word(reason) if reason else ""
        if word and (found := _match(word)) is not None:
            # The word once, in the provider's letters.
            return word[slice(*found.span(1))], _CAUSES[found[1]]
    return "", None


def read_blocked(error: BaseException) -> AIMessage | None:
    """Return the answer that an error of any client stands for, or None.

    It is blank if the provider has blocked the prompt, or if a stream had no answer.
    """
    for one in iter_causes(error):
        # LangChain's `ModelRefusalError`, which its older versions do not have.
        if isinstance(refused := getattr(one, "raw_message", None), AIMessage):
            return refused
        if isinstance(one, ValueError) and str(one) in _NO_DATA:
            return AIMessage("", response_metadata={"finish_reason": "load"})
        body, code = getattr(one, "body", None), getattr(one, "code", None)
        said = "" if body is None else str(body)[:_READ]
        is_blocked = body is not None and isinstance(code, str) and code in _BLOCKED
        word = (
            code if is_blocked else next((each for each in _BLOCKED_IN_WORDS if each in said), "")
        )
        if word:
            return _blocked_answer(word, body)
    return None


def _blocked_answer(word: str, body: object) -> AIMessage:
    """Return the blank answer for an error by which a provider blocks the prompt or the answer."""
    told = body.get("message") if isinstance(body, Mapping) else None
    said = told if isinstance(told, str) else ""
    if _BLOCKED_IN_WORDS.get(word) is StopCause.FILTER:
        reason = {"finish_reason": "content_filter", "finish_message": said or word}
        return AIMessage("", response_metadata=reason)
    feedback = {"block_reason": word, "block_reason_message": said}
    return AIMessage("", response_metadata={"prompt_feedback": feedback})
