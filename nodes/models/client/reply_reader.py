"""Reading of HTTP responses with status 200: of any form of reply, normalized to OpenAI's form.

Servers answer a streaming request with plain JSON, a plain request with events, and either with an
error. Only fields that this project reads are kept, each with a value of the right type. A failure
that a reply reports, or that makes it unreadable, is raised like an HTTP status. All exceptions of
this module pass `failed_in_reply`, which knows the module by its name.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, TypeVar

import httpx2
import openai
from openai._streaming import ServerSentEvent

from ....graphs.common.sanitize import excerpt
from ....graphs.conversation.usage import token_count
from ..answers import DETAILS, OPAQUE_OF_CALLS, PARTS, REASONING, THOUGHTS
from ..refusals import excerpt_of
from ..reported_errors import read_status
from ..settings import server_at
from ..stops import is_stop
from .failures import (
    NoMessageError,
    NoReplyError,
    TooLargeReplyError,
    UnreadableReplyError,
    take_repeat,
)

_MOST_CALLS = 2**31
"""An index that is not below this limit is invalid and dropped."""


def failure_in(found: object) -> object:
    """Return the error that a server reports in a reply or an event with status 200, or None."""
    if isinstance(found, list):
        # Google sends an error in a list.
        found = next(iter(found), None)
        return failure_in(found) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        return None
    choice = _choice(found) or {}
    if told := found.get("error") or choice.get("error"):
        return told if isinstance(told, Mapping | str) else found
    feedback = found.get("promptFeedback")
    if choice == {} and isinstance(feedback, Mapping) and (word := feedback.get("blockReason")):
        # Google's native form, which some gateways pass on.
        return {"code": "content_filter", "message": feedback.get("blockReasonMessage") or word}
    is_message = not found.get("choices") and isinstance(found.get("message"), str)
    return found if is_message or found.get("object") == "error" else None


def whole_reply(found: object) -> dict[str, Any]:
    """Return a reply that is not streamed, in normalized form."""
    body = _object(found)
    choice = _choice(body) or {}
    message, ending = choice.get("message"), _ending(choice)
    # A filter may leave only the reason.
    if not isinstance(message, Mapping) and not is_stop(ending["finish_reason"]):
        raise _no_message(body)
    message = {"role": "assistant", **_message(_part_of(choice, "message"))}
    return _envelope(body, [{"index": 0, "message": message, **ending}])


def piece_of_reply(found: object, brought: set[str]) -> dict[str, Any]:
    """Return one event of a streamed reply, in normalized form.

    Args:
        found: The event.
        brought: The fields of the message that earlier events have brought in part, to which those
            of this event are added. A whole message repeats them.
    """
    body = _object(found)
    choice = _choice(body)
    if choice is None:
        return _envelope(body, [])
    delta = _message(_delta(choice, body))
    if isinstance(choice.get("delta"), Mapping):
        brought |= {name for name, value in delta.items() if value}
    else:
        delta = {name: value for name, value in delta.items() if name not in brought}
    return _envelope(body, [{"index": 0, "delta": delta, **_ending(choice)}])


def model_names(found: object) -> list[str]:
    """Return the names in a server's list of models.

    Args:
        found: The reply's JSON, or its text if its content type is not JSON.

    Raises:
        UnreadableReplyError: The reply is not a list of models.
    """
    if isinstance(found, str):
        found = read_json(found)
    # Some servers send only the list.
    models = found if isinstance(found, list) else _object(found).get("data")
    if not isinstance(models, list):
        raise UnreadableReplyError(f"the reply contains no list of models: {_quote(found)}")
    named = [one.get("id") for one in models if isinstance(one, Mapping)]
    names = [name for name in named if isinstance(name, str) and name.strip()]
    if models and not names:
        raise UnreadableReplyError(f"no model in the reply has an id: {_quote(found)}")
    return names


def read_json(text: str | bytes) -> object:
    """Return the JSON in a text.

    Raises:
        NoReplyError: The text is not JSON.
        UnreadableReplyError: It is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise UnreadableReplyError("the reply is nested too deeply") from None
    except ValueError:
        shown = text.decode(errors="replace") if isinstance(text, bytes) else text
        raise NoReplyError(f"the reply is not JSON: {excerpt(shown) or 'empty'}") from None


def _quote(found: object) -> str:
    return excerpt(_as_json(found), 80)


def _delta(choice: Mapping[str, Any], body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a message that an event adds. Some servers send the whole message."""
    for name in ("delta", "message"):
        if isinstance(choice.get(name), Mapping):
            found: Mapping[str, Any] = choice[name]
            return found
    if choice.get("finish_reason") or body.get("usage") or "delta" in choice:
        return {}
    raise _no_message(body)


def _no_message(body: Mapping[str, Any]) -> NoMessageError:
    return NoMessageError(f"the reply contains no message: {excerpt(_as_json(body))}")


def _object(found: object) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        what = "null" if found is None else f"a {type(found).__name__}"
        raise NoReplyError(f"the reply is {what}, not a JSON object")
    return found


def _choice(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the first choice; requests never ask for more."""
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, Mapping) else None


def _envelope(body: Mapping[str, Any], choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": _if_text(body.get("id")) or "",
        "choices": choices,
        "usage": _usage(body.get("usage")),
        "model": _if_text(body.get("model")) or "",
        "system_fingerprint": _if_text(body.get("system_fingerprint")),
        "service_tier": _if_text(body.get("service_tier")),
    }


def _ending(choice: Mapping[str, Any]) -> dict[str, Any]:
    reason, native = choice.get("finish_reason"), choice.get("native_finish_reason")
    logprobs = choice.get("logprobs")
    return {
        # The reason of OpenRouter's provider says more than OpenRouter's own.
        "finish_reason": native if is_stop(native) else _if_text(reason) or None,
        "logprobs": logprobs if isinstance(logprobs, Mapping) else None,
    }


def _if_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _message(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a message, or a piece of one, contains."""
    content = found.get("content")
    sound = {
        "content": None if content is None else _text(content),
        "refusal": _if_text(found.get("refusal")),
        "tool_calls": _calls(found) or None,
        **_thoughts(found),
    }
    return {name: value for name, value in sound.items() if value is not None}


def _text(content: object) -> str:
    """Return the text of a content, which some servers send in parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return _as_json(content)
    texts = []
    for part in content:
        kind = part.get("type", "text") if isinstance(part, Mapping) else None
        if kind in ("text", "output_text"):
            part = part.get("text")
        elif kind in THOUGHTS:
            part = ""
        if isinstance(part, str):
            texts.append(part)
    if content and not texts:
        shown = excerpt(_as_json(content))
        raise UnreadableReplyError(f"the reply has no text in its content: {shown}")
    return "".join(texts)


def _thoughts(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the thoughts in a message, or in a piece of one."""
    found: dict[str, Any] = {
        name: text for name in REASONING if (text := _if_text(message.get(name)))
    }
    found |= {name: given for name in DETAILS if isinstance(given := message.get(name), list)}
    content = message.get("content")
    parts = [
        part
        for part in (content if isinstance(content, list) else ())
        if isinstance(part, Mapping) and part.get("type") in THOUGHTS
    ]
    return {**found, PARTS: parts} if parts else found


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise UnreadableReplyError("it is nested too deeply") from None


def _calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return calls, or parts of calls. Arguments that are not text are converted to JSON text."""
    found = message.get("tool_calls")
    if not found and isinstance(older := message.get("function_call"), Mapping):
        # The form that OpenAI's API had before `tool_calls`.
        found = [{"function": older}]
    return [_call(call) for call in found] if isinstance(found, list) else []


def _call(found: object) -> dict[str, Any]:
    call: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    function, call_id, index = _part_of(call, "function"), call.get("id"), call.get("index")
    arguments = function.get("arguments")
    is_place = type(index) is int and 0 <= index < _MOST_CALLS
    is_text = arguments is None or isinstance(arguments, str)
    return {
        **({"index": index} if is_place else {}),
        **{name: one for name in OPAQUE_OF_CALLS if isinstance(one := call.get(name), Mapping)},
        "id": str(call_id) if isinstance(call_id, str | int) else None,
        "name": _if_text(function.get("name")),
        "arguments": arguments if is_text else _as_json(arguments),
    }


def _usage(found: object) -> dict[str, Any] | None:
    """Return token usage, or None if prompt or completion tokens are missing."""
    if not isinstance(found, Mapping):
        return None
    read, written = (token_count(found.get(f"{part}_tokens")) for part in ("prompt", "completion"))
    if read is None or written is None:
        return None
    parts = _part_of(found, "prompt_tokens_details")
    by_time = _part_of(parts, "cache_creation_token_details")
    named = [one for one in (found, _part_of(found, "cache_creation"), parts, by_time) if one]
    kinds = {
        kind: max(token_count(part.get(name)) or 0 for name in names for part in named)
        for kind, names in _KINDS.items()
    }
    in_cache = kinds["cached_tokens"] + kinds["cache_write_tokens"]
    if in_cache > read:
        # As in Anthropic's API, which counts only the other tokens of the prompt.
        read += in_cache
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {kind: count for kind, count in kinds.items() if count} or None,
        "completion_tokens_details": {
            name: count
            for name, each in _part_of(found, "completion_tokens_details").items()
            if (count := token_count(each)) is not None
        }
        or None,
    }


_KINDS: Mapping[str, Sequence[str]] = {
    # DeepSeek: api-docs.deepseek.com, "Context Caching". LiteLLM: docs.litellm.ai, "Prompt
    # Caching". OpenRouter: openrouter.ai/docs, "Usage Accounting".
    "cached_tokens": ("cached_tokens", "cache_read_input_tokens", "prompt_cache_hit_tokens"),
    "cache_write_tokens": (
        "cache_write_tokens",
        "cache_creation_tokens",
        "cache_creation_input_tokens",
    ),
    "ephemeral_1h_input_tokens": ("ephemeral_1h_input_tokens",),
    "audio_tokens": ("audio_tokens",),
}
"""The kinds of prompt tokens that providers bill apart, and the servers' names for each."""


def _part_of(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = found.get(name)
    return part if isinstance(part, Mapping) else {}


S = TypeVar("S")
T = TypeVar("T")

_MARK: Final = b"\xef\xbb\xbf"
"""The byte-order mark of UTF-8, with which some servers begin."""

_FIELD: Final = re.compile(rb":|(?:data|event|id|retry) ?:")
"""The beginning of a stream of events: a comment or a field."""

_DRAIN: Final = 0.1
"""Maximum seconds to wait for the end of a body after its last event."""

_BROKEN: Final = 500
_DOWN: Final = 502
"""HTTP statuses for an API that sends no message, and for a server that sends no JSON."""


class ReplyReader:
    """A reader of one response, with or without events.

    Args:
        response: The response. Its body may have been read.
        client: The client that sent the request.
    """

    def __init__(self, response: httpx2.Response, client: openai.AsyncOpenAI) -> None:
        self.is_unended = False
        """Whether the reply was accepted without a finish reason and without ``[DONE]``."""
        self._response = response
        self._client = client
        self._server = server_at(str(client.base_url))
        self._has_end = False
        self._parts = self._read_body()
        self._begin: bytes | None = None
        """The part of the body by which its form was found."""

    async def is_stream(self) -> bool:
        """Return whether the body is a stream of events."""
        if self._begin is None:
            self._begin = b""
            async for part in self._parts:
                self._begin = (self._begin + part).removeprefix(_MARK).lstrip()
                if len(self._begin) >= len("event :"):
                    break
        if self._begin.startswith((b"{", b"[")):
            return False
        kind = self._response.headers.get("content-type", "").partition(";")[0].strip()
        return kind == "text/event-stream" or _FIELD.match(self._begin) is not None

    async def read_whole(self) -> dict[str, Any]:
        """Return a reply in plain JSON, in normalized form."""
        parts = [self._begin or b"", *[part async for part in self._parts]]
        reply = self._check(whole_reply, self._call(read_json, b"".join(parts)))
        self._server.has_answered = True
        return reply

    async def read_pieces(self) -> AsyncGenerator[dict[str, Any]]:
        """Yield the pieces of a reply in any form, in normalized form.

        A stream without a finish reason and without ``[DONE]`` counts as a broken connection. If
        the repeated call ends so, too, the server is one that sends neither, and its replies are
        accepted as cut off.
        """
        if not await self.is_stream():
            reply = await self.read_whole()
            for choice in reply["choices"]:
                choice["delta"] = choice.pop("message")
            yield reply
            return
        # The fields that events have brought in part.
        form = partial(piece_of_reply, brought=set())
        has_choice = False
        async with aclosing(self._read_objects()) as objects:
            async for found in objects:
                piece = self._check(form, found)
                for choice in piece["choices"]:
                    has_choice = self._server.has_answered = True
                    self._has_end = self._has_end or choice["finish_reason"] is not None
                yield piece
        if not has_choice:
            raise self._fail("the reply contains no message", _BROKEN)
        if self._has_end:
            return
        if not self._server.sends_no_end and take_repeat():
            broken = httpx2.RemoteProtocolError("the stream has no end")
            raise openai.APIConnectionError(request=self._response.request) from broken
        self._server.sends_no_end = self.is_unended = True

    async def _read_body(self) -> AsyncGenerator[bytes]:
        request = self._response.request
        try:
            async for part in self._response.aiter_bytes():
                yield part
        except httpx2.TimeoutException as error:
            raise openai.APITimeoutError(request=request) from error
        except httpx2.RequestError as error:
            raise openai.APIConnectionError(request=request) from error

    async def _read_rest(self) -> AsyncGenerator[bytes]:
        yield self._begin or b""
        async for part in self._parts:
            yield part
        # Some servers end the last event without an empty line.
        yield b"\n\n"

    async def _read_objects(self) -> AsyncGenerator[object]:
        """Yield the JSON of each event."""
        async for event in self._client._make_sse_decoder().aiter_bytes(self._read_rest()):
            data = event.data.strip()
            if data.startswith("[DONE]"):
                self._has_end = True
                # Read the end of the body, so that the connection can be used again.
                with suppress(openai.APIError, TooLargeReplyError, TimeoutError):
                    async with asyncio.timeout(_DRAIN):
                        async for _ in self._parts:
                            pass
                return
            if data or event.event == "error":
                yield self._read_event(event)

    def _read_event(self, event: ServerSentEvent) -> object:
        if event.event != "error":
            return self._call(read_json, event.data)
        try:
            found = json.loads(event.data)
        except (ValueError, RecursionError):
            found = event.data
        return found if failure_in(found) else {"error": found or "it states no reason"}

    def _check(self, form: Callable[[object], dict[str, Any]], found: object) -> dict[str, Any]:
        """Return a reply or an event in normalized form. Raise the error that it reports."""
        if failure := failure_in(found):
            raise self._fail(failure, read_status(failure))
        return self._call(form, found)

    def _call(self, read: Callable[[S], T], found: S) -> T:
        try:
            return read(found)
        except NoMessageError as error:
            raise self._fail(str(error), _BROKEN) from error
        except NoReplyError as error:
            if not self._server.has_answered:
                # The address may be wrong.
                raise
            raise self._fail(str(error), _DOWN) from error

    def _fail(self, failure: object, status: int) -> openai.APIStatusError:
        """Return the exception that OpenAI's client raises for an error with an HTTP status."""
        response = self._response
        response.status_code = status
        words = f"Error code: {status} - {excerpt_of(failure)}"
        return self._client._make_status_error(words, body=failure, response=response)
