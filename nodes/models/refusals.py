"""Classification of failed model calls, whichever client raised the error.

A call may fail by an HTTP status, a broken connection, or a prompt that is too long. OpenAI's
client is not imported here, since that takes as long as the rest of this program. If it raised the
error, it is already imported. The patterns for prompts that are too long cover OpenAI and Azure,
llama.cpp and its Python server, vLLM, SGLang, TGI, LM Studio, Gemini, and gateways to Anthropic's
and other models. Ollama raises no error: it truncates the prompt.
"""

import math
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata

from ...graphs.common.errors import ContextTooLongError, ModelUnavailableError, iter_causes
from ...graphs.common.sanitize import excerpt
from .reported_errors import NO_CREDIT, lacks_credit, read_wait, status_of_field

if TYPE_CHECKING:
    import openai


_BUSY: Final = (429, 529)
"""HTTP statuses for too many calls. 529 is Anthropic's, for too many calls of all users together.
"""

_DOWN: Final = (502, 503)
"""HTTP statuses of a gateway whose server is down, and of a server that starts or is overloaded."""

_BROKEN: Final = frozenset(
    {
        "ClientConnectionError",  # aiohttp
        "ConnectError",  # httpx, and the next four
        "ConnectTimeout",
        "ReadError",
        "RemoteProtocolError",
        "WriteError",
        "ConnectionError",  # Python, requests, botocore
        "gaierror",
    }
)
"""Names of the exception classes for a server that can't be reached or breaks the connection."""

_UNAVAILABLE: Final = (401, NO_CREDIT, 403, 404)
"""HTTP statuses for a rejected key, no credit left, a forbidden model, and no such model."""

_REPEATED: Final = (408, 409)
"""HTTP statuses below 500 that OpenAI's client repeats, besides 429."""

_LONGEST_WAIT: Final = 120
"""Maximum wait in seconds that OpenAI's client accepts before it repeats a call."""

_READERS: Final = ("openai._streaming", f"{__package__}.client.reply_reader")
"""The modules that read replies, of OpenAI's client and of this project."""

_FLAGGED: Final = ("flagged", "moderation", "content_policy")
"""Words by which gateways say that a 403 is about one prompt only."""

_CLIENTS: Final = frozenset(
    {
        "duologue",
        # The packages of providers, and some that they use only for a part of their models.
        *("anthropic", "azure", "baseten_performance_client", "boto3", "botocore", "cohere"),
        *("fireworks", "google", "groq", "huggingface_hub", "ibm_watsonx_ai", "litellm"),
        *("llama_api_client", "mistralai", "ollama", "openai", "openrouter", "perplexity"),
        *("tokenizers", "together", "torch", "transformers", "vertexai"),
        # The libraries below them: HTTP, JSON, checks, retries.
        *("aiohttp", "anyio", "grpc", "h11", "h2", "httpcore", "httpcore2", "httpx", "httpx2"),
        *("jiter", "orjson", "proto", "pydantic", "pydantic_core", "requests", "simplejson"),
        *("sniffio", "socksio", "tenacity", "truststore", "urllib3", "websockets"),
        *("langchain", "langgraph", "langsmith"),
    }
)
"""The top-level packages whose exceptions mean that a model call failed. Packages whose name begins
with ``langchain_`` belong to them as well.
"""

_READ: Final = 10_000
"""Maximum number of characters of a server's message to search."""


class Refusal(NamedTuple):
    """The status and headers of an error response."""

    status: int
    headers: Mapping[str, str]

    @property
    def is_for_now(self) -> bool:
        """Return whether the refusal is temporary, so that later calls may succeed."""
        has_told = self.status == 503 and read_retry_seconds(self.headers) is not None
        return self.status in _BUSY or has_told

    @property
    def is_outage(self) -> bool:
        """Return whether the status means that the server is down."""
        return self.status in _DOWN


def find_refusal(error: BaseException) -> Refusal | None:
    """Return the refusal of a server that any client's exception reports, or None."""
    return next(
        (found for one in iter_causes(error) if (found := _refusal_in(one)) is not None), None
    )


def is_for_now(error: BaseException) -> bool:
    """Return whether a server refused a call, but accepts calls again after a while."""
    found = find_refusal(error)
    return found is not None and found.is_for_now


def is_outage(error: BaseException) -> bool:
    """Return whether a call failed because its server is down or not reachable."""
    found = find_refusal(error)
    if found is not None:
        return found.is_outage
    kinds = (each for one in iter_causes(error) for each in type(one).__mro__)
    return not _BROKEN.isdisjoint(each.__name__ for each in kinds)


def is_unavailable(error: BaseException) -> bool:
    """Return whether an error means that the model is unavailable for all requests."""
    if any(isinstance(one, ModelUnavailableError) for one in iter_causes(error)):
        return True
    found = find_refusal(error)
    if found is None or found.status not in _UNAVAILABLE:
        return False
    return found.status != 403 or not any(word in text_of(error) for word in _FLAGGED)


def advise_on_credit(error: BaseException) -> str:
    """Return the advice for an account without credit. Empty if an error has another reason."""
    found = find_refusal(error)
    is_about_credit = found is not None and found.status == NO_CREDIT
    return "; check the credit and the billing of the account" if is_about_credit else ""


def failed_in_reply(error: BaseException) -> bool:
    """Return whether a call failed after its reply had begun."""
    return any(has_passed(one, place) for one in iter_causes(error) for place in _READERS)


def is_repeatable(error: BaseException) -> bool:
    """Return whether OpenAI's client would repeat a call, also for an error inside a reply."""
    found = find_refusal(error)
    if found is None:
        return _is_one_of(error, "APIConnectionError") or comes_from(error, "httpx2")
    if (read_retry_seconds(found.headers) or 0) > _LONGEST_WAIT:
        return False
    told = found.headers.get("x-should-retry")
    is_temporary = found.status in (*_REPEATED, *_BUSY) or found.status >= 500
    return told == "true" or (is_temporary and told != "false")


def read_retry_seconds(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds a server asks to wait, or None if its headers do not say so."""
    for name, parts in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(name, "")) / parts
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        until = parsedate_to_datetime(headers.get("retry-after", "")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return max(0.0, until - time.time())


def _refusal_in(error: BaseException) -> Refusal | None:
    """Return the refusal in one exception of the clients of OpenAI, Anthropic, Google or AWS."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, Mapping):
        about = response.get("ResponseMetadata")
        about = about if isinstance(about, Mapping) else {}
        status, headers = about.get("HTTPStatusCode"), about.get("HTTPHeaders")
    else:
        status = getattr(response, "status_code", None) or getattr(error, "status_code", None)
        # OpenAI's client turns a number in the body of an error into a text.
        status = status or getattr(error, "code", None)
        headers = getattr(response, "headers", None)
    found = status_of_field(status)
    if found is None:
        return None
    told = {name: getattr(error, name, None) for name in ("code", "type", "message", "body")}
    # Clients keep only a part of the body.
    with suppress(Exception):
        told["reply"] = getattr(response, "json")()  # noqa: B009  # responses of several clients
    headers = headers if isinstance(headers, Mapping) else {}
    if read_retry_seconds(headers) is None and (seconds := read_wait(told)) is not None:
        headers = {**headers, "retry-after": f"{seconds:g}"}
    return Refusal(NO_CREDIT if lacks_credit(told) else found, headers)


def text_of(error: BaseException) -> str:
    """Return the text of an error and its causes, with the response bodies, in lower case."""
    parts = ((one, getattr(one, "body", "")) for one in iter_causes(error))
    return " ".join(_cut(part) for pair in parts for part in pair).casefold()


def comes_from(thing: object, module: str) -> bool:
    """Return whether an object's class, or a base class, is defined in a package or module."""
    homes = (each.__module__ for each in type(thing).__mro__)
    return any(home == module or home.startswith(f"{module}.") for home in homes)


def is_foreign(error: BaseException) -> bool:
    """Return whether an exception's class is neither Python's nor of a package of `_CLIENTS`.

    A program around a conversation can raise such an exception inside a model call, for example
    when a limit of the program is reached. The program must receive the exception unchanged, or it
    can't recognise the exception.
    """
    home = type(error).__module__.partition(".")[0]
    is_known = home in _CLIENTS or home in sys.stdlib_module_names
    return not is_known and not home.startswith("langchain_")


def _is_one_of(error: BaseException | None, *names: str) -> bool:
    """Return whether an error is of one of these classes of OpenAI's client."""
    of_client = (each for each in type(error).__mro__ if each.__module__.startswith("openai"))
    return any(each.__name__ in names for each in of_client)


def is_clients(error: BaseException) -> TypeGuard["openai.OpenAIError"]:
    """Return whether an error is of OpenAI's client."""
    return _is_one_of(error, "OpenAIError")


def is_api_error(error: BaseException) -> TypeGuard["openai.APIError"]:
    """Return whether an error of OpenAI's client is about a server's reply, or a missing reply."""
    return _is_one_of(error, "APIError")


def is_status_error(error: BaseException | None) -> TypeGuard["openai.APIStatusError"]:
    """Return whether an error of OpenAI's client is about an HTTP status."""
    return _is_one_of(error, "APIStatusError")


def answer_in(error: BaseException) -> AIMessage | None:
    """Return the answer that OpenAI's client rejected because it was cut off or filtered.

    None if the error has another cause.
    """
    if not _is_one_of(error, "ContentFilterFinishReasonError", "LengthFinishReasonError"):
        return None
    # Older clients have no completion for filtered answers.
    completion = getattr(error, "completion", None)
    if completion is None or not completion.choices:
        return AIMessage("")
    choice, used = completion.choices[0], completion.usage
    counted = used and UsageMetadata(
        input_tokens=used.prompt_tokens,
        output_tokens=used.completion_tokens,
        total_tokens=used.total_tokens,
    )
    return AIMessage(
        choice.message.content or "",
        usage_metadata=counted,
        response_metadata={"finish_reason": choice.finish_reason},
    )


_CODES = ("context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded")

_NUMBER = r"(\d[\d,]{0,15})"

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
"""Patterns of messages that contain a model's token limit: the last number of the match."""

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
"""Patterns of messages that contain the number of tokens in a prompt: the last number of the match.
It does not include the tokens reserved for the answer.
"""

_WORDS = re.compile(
    r"maximum context (?:length|window)|(?:model's|maximum) (?:context|model) length"
    r"|exceeds? (?:the )?(?:available |model's )?context|context (?:length|window) exceeded"
    r"|(?:prompt|input|length) is too long|context the overflows|keep from the initial prompt"
    r"|input token count .* exceeds the maximum|max_tokens must be at least 1, got -"
    r"|`inputs` tokens \+ `max_new_tokens`|Input tokens exceed|ContextWindowExceeded",
    re.IGNORECASE,
)
"""Phrases that occur only in messages about a prompt that is too long. Do not add words that rate
limits use as well, such as "too many tokens".
"""


def read_too_long(error: BaseException, label: str) -> ContextTooLongError | None:
    """Return the error for a prompt that is too long, or None if the call failed otherwise."""
    if not _is_too_long(error):
        return None
    fields = _fields(error)
    message = _message(error, fields)
    prompt = _whole(fields.get("n_prompt_tokens")) or _number_in(_PROMPTS, message)
    limit = _whole(fields.get("n_ctx")) or _number_in(_LIMITS, message)
    size = "" if prompt is None else f" of {prompt} tokens"
    most = "" if limit is None else f", whose limit is {limit}"
    return ContextTooLongError(
        f"the prompt{size} is too long for the model {label}{most}; shorten the system prompt, the "
        "task or the descriptions of tools, or use a model with a larger context",
        prompt_tokens=prompt,
        limit=limit,
    )


def _is_too_long(error: BaseException) -> bool:
    if isinstance(error, ContextOverflowError):
        return True
    if not is_api_error(error) or _is_one_of(error, *_OTHER_REASONS):
        return False
    text = " ".join(map(_cut, (error.code, error.type, error.message, error.body)))
    return any(code in text for code in _CODES) or _WORDS.search(text) is not None


_OTHER_REASONS: Final = (
    *("AuthenticationError", "PermissionDeniedError", "NotFoundError", "RateLimitError"),
    "APIConnectionError",
)
"""Classes of errors of OpenAI's client by which the prompt was not too long."""


def _fields(error: BaseException) -> dict[str, Any]:
    """Return the fields of an error's body. Some servers nest them in a list or under ``error``."""
    body = error.body if is_api_error(error) else None
    if isinstance(body, list):
        body = next(iter(body), None)
    inner = body.get("error") if isinstance(body, dict) else None
    found = inner if isinstance(inner, dict) else body
    return found if isinstance(found, dict) else {}


def _message(error: BaseException, fields: dict[str, Any]) -> str:
    told = fields.get("message")
    if isinstance(told, str):
        return _cut(told)
    # Some bodies are plain text, or have another field for the message.
    return f"{_cut(error)} {_cut(error.body)}" if is_api_error(error) else _cut(error)


def _cut(given: object) -> str:
    """Return the beginning of an object's text. Empty if it can't be converted to text."""
    return _text_of(given)[:_READ]


def _text_of(given: object) -> str:
    try:
        return str(given)
    except Exception:
        # Some objects raise, or are nested too deeply.
        return ""


def _whole(given: object) -> int | None:
    return given if isinstance(given, int) and given > 0 else None


def _number_in(patterns: tuple[str, ...], message: str) -> int | None:
    for pattern in patterns:
        if found := re.search(pattern, message):
            return int(found[found.re.groups].replace(",", "")) or None
    return None


def excerpt_of(thing: object) -> str:
    """Return an error or another object in a few words. Empty if it can't be converted to text."""
    return excerpt(_text_of(thing))


def has_passed(error: BaseException, module: str) -> bool:
    """Return whether an exception has passed through a function of a module."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == module:
            return True
        trace = trace.tb_next
    return False
