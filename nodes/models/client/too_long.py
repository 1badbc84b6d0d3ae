"""How a model says that a prompt is longer than it takes: every server has its own way.

The shapes are those of OpenAI and Azure, llama.cpp and its Python server, vLLM, SGLang, TGI, LM
Studio, Gemini, and of gateways to Anthropic's models and others. Ollama says nothing: it cuts.
"""

import re
from typing import TYPE_CHECKING, Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage

from ....graphs.common.errors import ContextTooLongError
from ....graphs.spec.usage import ESTIMATED
from ..answers import is_cut_off, is_recorded
from .origin import is_api_error

if TYPE_CHECKING:
    import openai

_CODES = ("context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded")

_NUMBER = r"(\d[\d,]{0,15})"

_READ = 10_000
"""How much of what a server says is searched, in characters: it may send any length."""

_LIMITS = (
    rf"maximum context (?:length|window) (?:is|of) (?:only )?{_NUMBER}",
    rf"context length (?:is |of )?(?:only )?\(?{_NUMBER}",
    rf"context (?:window|size) (?:is |of )?\(?{_NUMBER}",
    rf"exceed context limit: {_NUMBER} \+ {_NUMBER} > {_NUMBER}",
    rf"(?:prompt|input) is too long: {_NUMBER} tokens > {_NUMBER}",
    rf"configured limit of {_NUMBER}",
    rf"maximum model length of {_NUMBER}",
    rf"maximum number of tokens allowed \({_NUMBER}",
    rf"`max_new_tokens` must be <= {_NUMBER}",
)
"""How the tokens that a model takes are told; the last number counts."""

_PROMPTS = (
    rf"{_NUMBER} in (?:the|your) (?:messages|prompt)",
    rf"messages resulted in {_NUMBER}",
    rf"{_NUMBER} (?:input tokens|of text input)",
    rf"Given: {_NUMBER} `inputs` tokens",
    rf"input \({_NUMBER} tokens\)",
    rf"(?:prompt|input) is too long: {_NUMBER} tokens",
    rf"exceed context limit: {_NUMBER} \+",
    rf"request \({_NUMBER} tokens\)",
    rf"keep the first {_NUMBER} tokens",
    rf"[Rr]equested tokens \({_NUMBER}\)",
    rf"decoder prompt \(length {_NUMBER}\)",
    rf"input token count \({_NUMBER}\)",
)
"""How the tokens of a prompt are told, without those kept free for the answer."""

_WORDS = re.compile(
    r"maximum context (?:length|window)|(?:model's|maximum) (?:context|model) length"
    r"|exceeds? (?:the )?(?:available |model's )?context|context (?:length|window) exceeded"
    r"|(?:prompt|input|length) is too long|context the overflows|keep from the initial prompt"
    r"|input token count .* exceeds the maximum|max_tokens must be at least 1, got -"
    r"|`inputs` tokens \+ `max_new_tokens`|Input tokens exceed|ContextWindowExceeded",
    re.IGNORECASE,
)
"""What is said nowhere but there. Words of rate limits, such as "too many tokens", are not."""


def as_too_long(error: BaseException, label: str) -> ContextTooLongError | None:
    """Recognise that a model refused a prompt as longer than it takes."""
    if not _is_too_long(error):
        return None
    fields = _fields(error)
    message = _message(error, fields)
    prompt = _whole(fields.get("n_prompt_tokens")) or _told(_PROMPTS, message)
    limit = _whole(fields.get("n_ctx")) or _told(_LIMITS, message)
    return ContextTooLongError(_sentence(label, prompt, limit), prompt_tokens=prompt, limit=limit)


def _is_too_long(error: BaseException) -> bool:
    if isinstance(error, ContextOverflowError):
        return True
    if not is_api_error(error) or _is_for_another_reason(error):
        return False
    text = f"{_cut(error.code)} {_cut(error.type)} {_cut(error.message)} {_cut(error.body)}"
    return any(code in text for code in _CODES) or _WORDS.search(text) is not None


def _is_for_another_reason(error: "openai.APIError") -> bool:
    """Whether it is something else that is wrong, whatever words it comes with."""
    import openai  # is loaded, or it would have raised nothing

    return isinstance(
        error,
        (
            openai.AuthenticationError,
            openai.PermissionDeniedError,
            openai.NotFoundError,
            openai.RateLimitError,
            openai.APIConnectionError,
        ),
    )


def _fields(error: BaseException) -> dict[str, Any]:
    """The fields of an error's body, which some servers wrap once more."""
    body = error.body if is_api_error(error) else None
    if isinstance(body, list):
        body = next(iter(body), None)
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    return body if isinstance(body, dict) else {}


def _message(error: BaseException, fields: dict[str, Any]) -> str:
    told = fields.get("message")
    if isinstance(told, str):
        return _cut(told)
    # Some bodies are a bare text, or name it otherwise.
    return f"{_cut(error)} {_cut(error.body)}" if is_api_error(error) else _cut(error)


def _cut(given: object) -> str:
    """The beginning of something, as text."""
    try:
        return str(given)[:_READ]
    except RecursionError:
        return ""


def _whole(given: object) -> int | None:
    return given if isinstance(given, int) and given > 0 else None


def _told(patterns: tuple[str, ...], message: str) -> int | None:
    for pattern in patterns:
        if found := re.search(pattern, message):
            return int(found[found.re.groups].replace(",", "")) or None
    return None


def _sentence(label: str, prompt: int | None, limit: int | None) -> str:
    has = "" if prompt is None else f" of {prompt} tokens"
    takes = "" if limit is None else f", which takes {limit}"
    return (
        f"the prompt{has} is too long for the model {label}{takes}: give the speaker a smaller "
        "`context`, or a model that takes more"
    )


def ran_out_of_room(answer: AIMessage, max_tokens: int | None) -> bool:
    """Whether an answer was cut off because the context was full, and not by its own limit."""
    if not is_cut_off(answer) or is_recorded(answer):
        return False
    used = None if answer.response_metadata.get(ESTIMATED) else answer.usage_metadata
    if used is None:
        return max_tokens is None
    # Where it took more room than the prompt, a shorter prompt would give it little more.
    most = used["input_tokens"] if max_tokens is None else max_tokens
    return used["output_tokens"] < most
