"""Requests, answers and errors in the format of OpenAI's Chat Completions API. Pure functions.

A request can set the messages and the form of the answer, and nothing else. The file of the
conversation sets everything that concerns the models, so the sampling parameters have no effect.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple
from unicodedata import normalize

from ...nodes.models.refusals import find_refusal, is_for_now, is_outage
from ..common.content import Content, files_of, join_content, text_of
from ..common.content_input import read_content
from ..common.data import Data
from ..common.errors import (
    AnswerError,
    ContextTooLongError,
    DuologueError,
    ModelError,
    SessionError,
    SpecError,
)
from ..common.sanitize import excerpt
from ..common.validation import check_depth, validate
from ..conversation.usage import Usage
from ..view.local_server import MOST_TEXT

IGNORED: Final = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "max_tokens",
        "max_completion_tokens",
        "seed",
        "stop",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "logit_bias",
        "reasoning_effort",
        "verbosity",
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "metadata",
        "store",
        "service_tier",
        "parallel_tool_calls",
    }
)
"""Parameters that are accepted and have no effect."""


_OF_FILE: Final = "the file of the conversation sets the"

_UNSUPPORTED: Final[Mapping[str, tuple[Sequence[Any], str]]] = {
    "n": ([1], "only one answer is possible"),
    "tools": ([[]], f"{_OF_FILE} tools"),
    "functions": ([[]], f"{_OF_FILE} tools"),
    "tool_choice": (["none", "auto"], f"{_OF_FILE} tools"),
    "function_call": (["none", "auto"], f"{_OF_FILE} tools"),
    "response_format": ([{"type": "text"}], f"{_OF_FILE} format"),
    "logprobs": ([False], "log probabilities are not available"),
    "top_logprobs": ([0], "log probabilities are not available"),
    "modalities": ([["text"]], "the answer is text"),
    "audio": ([], "the answer is text"),
    "prediction": ([], "predictions are not supported"),
    "web_search_options": ([], f"{_OF_FILE} tools"),
}
"""Parameters that are not supported: the values that have no effect, so that they are accepted, and
the reason why other values are refused."""


MOST_MESSAGES: Final = 1000
"""Maximum number of messages in a request."""

MOST_PARTS: Final = 400
"""Maximum number of parts, such as texts and images, in all messages of a request."""

_MOST_FIELDS: Final = 100
"""Maximum number of fields of a request. Each unknown field is an error that is described."""


class HistoryMessage(NamedTuple):
    """A message of a request."""

    role: Literal["user", "assistant"]
    """The side that wrote the message. Messages of the system count as the user's."""
    content: Content
    """The text, or text and files. It is blank only if no message of the request has a text."""

    @property
    def text(self) -> str:
        """The text of the message."""
        return text_of(self.content)

    @property
    def has_files(self) -> bool:
        """Return whether the message contains images or other files."""
        return bool(files_of(self.content))


class _StreamOptions(Data):
    include_usage: bool = False
    include_obfuscation: bool = False


class _Body(Data):
    """The parameters that have an effect."""

    model: str
    messages: list[dict[str, Any]]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


class ChatRequest(NamedTuple):
    """A request for an answer."""

    model: str
    """The name of the served conversation."""
    messages: tuple[HistoryMessage, ...]
    """The messages, oldest first, without blank ones. Two messages of one side in a row are joined.
    Empty if the list is empty.
    """
    stream: bool
    """Whether the answer is streamed."""
    include_usage: bool
    """Whether a stream ends with the usage."""


def _drop_nulls(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are set. Many clients send null for the others, also in objects."""
    return {
        name: _drop_nulls(value) if isinstance(value, Mapping) else value
        for name, value in given.items()
        if value is not None
    }


def read_request(body: object) -> ChatRequest:
    """Read the body of a request.

    Raises:
        SpecError: The body is not an object, a parameter is unknown, not valid or not supported,
            a message is not of the user, the assistant or the system, or a file in it is not
            accepted.
    """
    if not isinstance(body, dict):
        raise SpecError("the body must be a JSON object with model and messages")
    _check_counts(body)
    given = _drop_nulls(body)
    for name, (accepted, reason) in _UNSUPPORTED.items():
        if name in given and given[name] not in accepted:
            raise SpecError(f"{name}: is not supported, because {reason}; leave it out")
    left_out = IGNORED | _UNSUPPORTED.keys()
    known = {name: one for name, one in given.items() if name not in left_out}
    read = validate(_Body, known, check=check_depth)
    options = read.stream_options
    messages, left = list[HistoryMessage](), MOST_TEXT
    for place, one in enumerate(read.messages):
        messages.append(_read_message(place, one))
        left -= _measure(messages[-1].text)
        if left < 0:
            raise SpecError(
                f"messages: must have at most {MOST_TEXT:,} characters of text; send a shorter text"
            )
    return ChatRequest(
        read.model,
        tuple(_join_messages(messages) or messages[-1:]),
        bool(read.stream),
        options is not None and options.include_usage,
    )


def _check_counts(body: Mapping[str, Any]) -> None:
    """Refuse a request with so many fields, messages or parts that reading it takes long."""
    options, messages = body.get("stream_options"), body.get("messages")
    fields = max(len(one) for one in (body, options) if isinstance(one, dict))
    if fields > _MOST_FIELDS:
        raise SpecError(f"the body must have at most {_MOST_FIELDS} fields; leave some out")
    if not isinstance(messages, list):
        return
    if len(messages) > MOST_MESSAGES:
        raise SpecError(
            f"messages: must be at most {MOST_MESSAGES:,}, not {len(messages):,}; leave out the "
            "oldest, or send the header of a session, which keeps them"
        )
    contents = (one.get("content") for one in messages if isinstance(one, dict))
    parts = sum(len(one) for one in contents if isinstance(one, list))
    if parts > MOST_PARTS:
        raise SpecError(
            f"messages: must have at most {MOST_PARTS} parts together, not {parts:,}; join texts"
        )


def _read_message(place: int, given: Mapping[str, Any]) -> HistoryMessage:
    path, role = f"messages.{place}", given.get("role")
    if role in ("tool", "function") or given.get("tool_calls") or given.get("function_call"):
        raise SpecError(
            f"{path}: tool calls and their results are not supported, because the file of the "
            "conversation sets the tools; leave them out"
        )
    if role not in ("system", "developer", "user", "assistant"):
        named = repr(excerpt(role, 50)) if isinstance(role, str) else type(role).__name__
        raise SpecError(
            f"{path}.role: {named} is unknown; use user, assistant, system or developer"
        )
    content = given.get("content")
    if not isinstance(content, str | list | None):
        raise SpecError(f"{path}.content: must be a text or a list of parts; send text")
    # Files must be in it as base64; an address is not opened.
    read = "" if content is None else read_content(content, f"{path}.content")
    message = HistoryMessage("assistant" if role == "assistant" else "user", read)
    if message.has_files and role != "user":
        raise SpecError(f"{path}.content: only a message of the user can contain files; send text")
    return message


def _measure(text: str) -> int:
    """Return the length of a text as comparisons read it: they write out ligatures, up to 18 times.

    It is done in pieces, between which other threads can run.
    """
    if text.isascii() or len(text) > MOST_TEXT:
        return len(text)
    pieces = (text[start : start + 10_000] for start in range(0, len(text), 10_000))
    return sum(max(len(piece), len(normalize("NFKC", piece))) for piece in pieces)


def _join_messages(messages: Iterable[HistoryMessage]) -> list[HistoryMessage]:
    """Leave out blank messages, and join the messages of one side that follow one another."""
    found: list[HistoryMessage] = []
    shown = (one for one in messages if one.text.strip())
    for (role, has_files), same in groupby(shown, lambda one: (one.role, one.has_files)):
        # Texts are joined at once: in pairs, a long text would be copied for each message.
        contents = [one.content for one in same]
        for content in contents if has_files else ["\n\n".join(map(text_of, contents))]:
            if found and found[-1].role == role:
                content = join_content(found.pop().content, content)
            found.append(HistoryMessage(role, content))
    return found


_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class RefusedError(DuologueError):
    """An error, as a client receives it. The message names the problem and the remedy.

    Attributes:
        status: The HTTP status.
        code: OpenAI's or duologue's word for the problem, for programs.
    """

    def __init__(self, status: int, text: str, code: str | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.code = code

    @property
    def body(self) -> dict[str, Any]:
        """The body of the response."""
        return error_body(self.status, str(self), self.code)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response. Clients wait for some time after too many requests."""
        return {"Retry-After": "1"} if self.status == 429 else {}


def error_body(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """Return the body of an error. The field at the beginning of the message is its ``param``."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    field, colon, _ = message.partition(": ")
    param = field if status == 400 and colon and " " not in field else None
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def failure_of(error: Exception) -> RefusedError:
    """Return the response to an error of a run."""
    text = str(error)
    match error:
        case RefusedError():
            return error
        case ContextTooLongError():
            return RefusedError(400, text, "context_length_exceeded")
        case ModelError():
            return RefusedError(429 if is_for_now(error) else 502, text, "model_error")
        case AnswerError():
            return RefusedError(400, text)
        case SessionError():
            return RefusedError(409, text, "session_error")
        case SpecError() | DuologueError():
            return RefusedError(500, text)
    # A model that is a Python object raises the errors of its own client.
    if find_refusal(error) is None and not is_outage(error):
        return RefusedError(500, f"The conversation failed: {type(error).__name__}")
    status = 429 if is_for_now(error) else 502
    return RefusedError(status, f"The model did not answer: {type(error).__name__}", "model_error")


class Envelope(NamedTuple):
    """The fields that all parts of one answer share."""

    id: str
    created: int
    """The Unix time of the request, in seconds."""
    model: str

    def completion(self, text: str, ending: str, usage: Usage) -> dict[str, Any]:
        """Return a whole answer."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": ending, "logprobs": None}
        return {
            **self._asdict(),
            "object": "chat.completion",
            "choices": [choice],
            "usage": write_usage(usage),
        }

    def chunk(self, delta: dict[str, str], ending: str | None = None) -> dict[str, Any]:
        """Return a part of a streamed answer."""
        choice = {"index": 0, "delta": delta, "finish_reason": ending, "logprobs": None}
        return {**self._asdict(), "object": "chat.completion.chunk", "choices": [choice]}

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        """Return the part of a streamed answer that contains its usage."""
        counts = write_usage(usage)
        return {**self._asdict(), "object": "chat.completion.chunk", "choices": [], "usage": counts}


def write_usage(usage: Usage) -> dict[str, Any]:
    """Return the counts of tokens."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "audio_tokens": usage.audio_input_tokens,
        },
        "completion_tokens_details": {"audio_tokens": usage.audio_output_tokens},
    }


def describe_model(name: str, created: int) -> dict[str, Any]:
    """Return a served conversation in a list of models."""
    return {"id": name, "object": "model", "created": created, "owned_by": "duologue"}
