"""Conversion of any model's answer to one form: its text, its thought and its token usage.

Models send a thought inside the text, in parts of the content, or in separate fields. The chat
models of users may send anything that LangChain accepts. `why_unstorable` checks whether
checkpoints, prompts and screens can contain a model's JSON. All functions are pure.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata

from ...graphs.common.content import Content, files_of, make_content, text_of
from ...graphs.common.content_input import keep_inline
from ...graphs.common.errors import ModelError
from ...graphs.common.sanitize import UNSTORABLE
from ...graphs.conversation.usage import ESTIMATED, token_count
from ...graphs.log.messages import storable
from ...graphs.speakers.reply_parts import STOP, THOUGHT, Reasoning, Thought
from ...graphs.text.thoughts import split
from ...graphs.text.words import tokens_of, tokens_of_message
from .stops import list_parts, read_stop, stop_of

_FIELD: Final = re.compile(r"reasoning|thinking|thought")
_TEXTS: Final = ("thinking", "reasoning", "reasoning_content", "text", "summary", "content")
_DEEPEST: Final = 6
_PIECES: Final = ("text", "summary", "data", "thinking")
_METADATA: Final = ("model_provider", "output_version")

THOUGHTS: Final = ("thinking", "redacted_thinking", "reasoning")
"""Types of content parts that are thought, not speech."""

_BLOCKS: Final = (*THOUGHTS, "reasoning_content")

REASONING: Final = ("reasoning_content", "reasoning")
"""Fields for a model's thought, next to the content."""

DETAILS: Final = ("reasoning_details", "thinking_blocks")
"""Fields in which gateways pass on other providers' thoughts. They must be returned unchanged."""

PARTS: Final = "thinking_parts"
"""Our field for the content parts that are thought."""

OPAQUE: Final = (*REASONING, *DETAILS, PARTS)
"""Fields of a message in OpenAI's form that contain a thought."""

RAW: Final = "raw_tool_calls"
"""Key of the calls of a streamed answer in its ``additional_kwargs``: one list for each event, with
the pieces exactly as they were sent. LangChain's own reading of a stream joins pieces of different
calls, and repairs invalid or truncated calls, but a partial call must not run.
"""

CALL_FIELDS: Final = "call_fields"
"""Key of the further fields of calls, by their ids, in ``additional_kwargs``."""

OPAQUE_OF_CALLS: Final = ("extra_content", "provider_specific_fields")
"""Fields of a call that contain a signature: at Google's address with OpenAI's API
(https://ai.google.dev/gemini-api/docs/openai), and through LiteLLM."""

_SIGNATURES: Final = "__gemini_function_call_thought_signatures__"
"""Key under which langchain-google-genai stores the signatures of calls, by their ids."""

FAMILY: Final = "duologue_family"
"""Key of the family of the model that answered, in an answer's ``response_metadata``."""


def separate_thought(answer: AIMessage, text: str) -> tuple[str, Thought | None]:
    """Return an answer's speech, without control tokens at its end, and its thought, or None."""
    read, blocks = split(text), list_parts(answer.content, *_BLOCKS)
    fields, calls = _thought_fields(answer), _call_fields(answer)
    if read.speech == read.text and not blocks and not fields and not calls:
        return read.text, None
    about = answer.response_metadata if blocks else {}
    given = {
        "text": read.text if read.speech != read.text else None,
        "blocks": blocks,
        "fields": fields,
        "calls": calls,
        "metadata": {name: about[name] for name in _METADATA if name in about},
    }
    thought = Thought(
        text="\n\n".join(filter(None, (read_outer_thought(answer).strip(), read.thought))),
        is_unopened=read.is_unopened,
        given=None if why_unstorable(given) else Reasoning.model_validate(given),
        family=answer.response_metadata.get(FAMILY),
    )
    return read.speech, thought


def read_outer_thought(answer: AIMessage) -> str:
    """Return the thought that an answer, or a streamed piece of one, contains outside its text."""
    found = _text(list_parts(answer.content, *_BLOCKS)) or next(
        filter(None, map(_text, _thought_fields(answer).values())), ""
    )
    return storable(found)


def add_thought(message: AIMessage, thought: Thought) -> AIMessage:
    """Return a message together with a thought, in the form in which the model sent the thought."""
    given = thought.given
    if given is None:
        return message
    text: str = message.text
    if given.text is not None:
        said = split(given.text).speech.strip()
        is_whole = bool(said) and text.endswith(said)
        front = given.text if is_whole or not said else f"<think>\n{thought.text}\n</think>\n\n"
        text = f"{text.removesuffix(said)}{front}" if is_whole else f"{front}{text}"
    spoken = [{"type": "text", "text": text}] if text else []
    signatures = {key: one[_SIGNATURES] for key, one in given.calls.items() if _SIGNATURES in one}
    others = {key: one for key, one in given.calls.items() if _SIGNATURES not in one}
    by_call = {_SIGNATURES: signatures, CALL_FIELDS: others}
    return message.model_copy(
        update={
            "content": [*given.blocks, *spoken] if given.blocks else text,
            "additional_kwargs": given.fields | {name: one for name, one in by_call.items() if one},
            "response_metadata": {**given.metadata},
        }
    )


def _thought_fields(answer: AIMessage) -> dict[str, Any]:
    fields = answer.additional_kwargs
    names = (name for name in fields if _FIELD.search(name) and name != _SIGNATURES)
    return {name: _join_pieces(fields[name]) for name in names if fields[name]}


def _call_fields(answer: AIMessage) -> dict[str, Any]:
    """Return the opaque fields of an answer's calls, by the calls' ids."""
    extra = answer.additional_kwargs
    found: dict[str, Any] = {
        **(extra.get(CALL_FIELDS) or fields_of_calls(chain.from_iterable(extra.get(RAW) or ())))
    }
    signatures = extra.get(_SIGNATURES)
    for call_id, signature in signatures.items() if isinstance(signatures, Mapping) else ():
        found[str(call_id)] = {_SIGNATURES: signature}
    return found


def fields_of_calls(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the opaque fields of calls by the calls' ids, from the parts of the calls."""
    found: dict[str, Any] = {}
    ids: dict[object, str] = {}
    last = ""
    for part in parts:
        place = part.get("index")
        last = ids[place] = str(part["id"]) if part["id"] else ids.get(place, last)
        if fields := {name: part[name] for name in OPAQUE_OF_CALLS if part.get(name)}:
            found[last] = fields
    return found


def _join_pieces(found: object) -> object:
    """Return the value of a field. If it is a list that was streamed, join its pieces."""
    if not isinstance(found, list) or not all(isinstance(piece, list) for piece in found):
        return found
    whole: list[Any] = []
    for part in chain.from_iterable(found):
        last = whole[-1] if whole else None
        if (
            not isinstance(part, Mapping)
            or not isinstance(last, dict)
            or any(last.get(name) != part.get(name) for name in ("type", "index"))
        ):
            whole.append(dict(part) if isinstance(part, Mapping) else part)
            continue
        for name, value in part.items():
            before = last.get(name)
            is_piece = name in _PIECES and isinstance(before, str) and isinstance(value, str)
            if value is not None:
                last[name] = f"{before}{value}" if is_piece else value
    return whole


def _text(found: object, depth: int = 0) -> str:
    """Return the text in a part of an answer. Each provider has its own form."""
    if isinstance(found, str):
        return found
    if depth == _DEEPEST:
        return ""
    if isinstance(found, list):
        parts = [_text(one, depth + 1) for one in found]
        kinds = [one.get("type") for one in found if isinstance(one, Mapping)]
        is_paragraphs = "summary_text" in kinds
        return ("\n\n" if is_paragraphs else "").join(filter(None, parts))
    if isinstance(found, Mapping):
        texts = (_text(found[name], depth + 1) for name in _TEXTS if name in found)
        return next(filter(None, texts), "")
    return ""


def normalise_answer(found: object, label: str) -> AIMessage:
    """Return an answer as a message of text and files, with its thought in a separate field."""
    if not isinstance(found, AIMessage):
        raise ModelError(f"{label} answered with a {type(found).__name__}, not a message")
    text, extra = storable(str(found.text)), found.additional_kwargs
    has_marks = "<" in text or "◁" in text
    is_plain = isinstance(found.content, str) and not has_marks and not any(extra.values())
    if not is_plain:
        text, thought = separate_thought(found, text)
        extra = {**extra, THOUGHT: thought}
    stop = read_stop(found)
    if stop is not None:
        extra = {**extra, STOP: stop}
    return found.model_copy(update={"content": _add_files(text, found), "additional_kwargs": extra})


_FILES: Final = ("image", "image_url", "audio", "input_audio", "file")
"""The types of blocks in which models return files."""


def _add_files(text: str, answer: AIMessage) -> Content:
    """Return the text and the files of an answer. OpenRouter returns files outside the content.

    A line of text describes each file, also one that is not kept, so such an answer is not blank.
    """
    images = answer.additional_kwargs.get("images")
    if isinstance(answer.content, str) and not images:
        return text
    found: list[str | dict[str, Any]] = [
        part for parts in (answer.content, images) for part in list_parts(parts, *_FILES)
    ]
    if not found:
        return text
    kept = keep_inline(found)
    return make_content("\n".join(filter(None, (text, text_of(kept)))), files_of(kept))


def ran_out_of_room(answer: AIMessage, max_tokens: int | None) -> bool:
    """Return whether an answer was cut off because the context was full, not by ``max_tokens``."""
    stop = stop_of(answer)
    if stop is None or not stop.is_of_length:
        return False
    used = None if answer.response_metadata.get(ESTIMATED) else answer.usage_metadata
    if used is None:
        return max_tokens is None
    # If the answer is longer than the prompt, a shorter prompt would give it little more room.
    most = used["input_tokens"] if max_tokens is None else max_tokens
    return used["output_tokens"] < most


def get_thought(answer: AIMessage, *, goes_back: bool = False) -> Thought | None:
    """Return the thought of a normalised answer, or None if it has none.

    Args:
        answer: The answer.
        goes_back: Whether the answer has calls, so that its model may need the original form again.
    """
    found: Thought | None = answer.additional_kwargs.get(THOUGHT)
    if found is None or goes_back:
        return found
    return found.model_copy(update={"given": None}) if found.text else None


def structured_text(found: Any, label: str) -> AIMessage:  # noqa: ANN401
    """Return a structured answer as a message of text.

    Args:
        found: The message, or a dict that contains the message as ``raw`` and the parsed values as
            ``parsed``.
        label: Name of the model in errors.
    """
    raw, parsed = (found["raw"], found["parsed"]) if type(found) is dict else (found, None)
    answer = normalise_answer(raw, label)
    # Some clients make the model call a function, possibly with introductory text.
    is_called = parsed is not None and (not answer.text or bool(answer.tool_calls))
    text = json.dumps(parsed, ensure_ascii=False) if is_called else str(answer.text)
    return answer.model_copy(
        update={"content": storable(text), "tool_calls": [], "invalid_tool_calls": []}
    )


def count_usage(
    answer: AIMessage, prompt: Sequence[BaseMessage], request: Sequence[object] = ()
) -> AIMessage:
    """Return an answer with its token usage, which is estimated if the model reports none.

    Args:
        answer: The answer.
        prompt: The prompt.
        request: Other parts of the request, which may say how long a cache keeps the prompt.
    """
    reported: Mapping[str, Any] = answer.usage_metadata or {}
    metadata = answer.response_metadata
    read = token_count(reported.get("input_tokens"))
    written = token_count(reported.get("output_tokens"))
    if read is None or written is None:
        read = sum(map(tokens_of_message, prompt))
        thought = get_thought(answer)
        written = tokens_of_message(answer) + tokens_of(thought.text if thought else "")
        reported, metadata = {}, {**metadata, ESTIMATED: True}
    used = UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)
    if (details := reported.get("input_token_details")) and (kinds := _kinds_in(details, read)):
        if "cache_creation" in kinds and not any(name in kinds for name in _FOR_A_TIME):
            # Claude's streams do not report the time, by which the price differs:
            # github.com/anthropics/anthropic-sdk-typescript/issues/793.
            contents = [one.content for one in prompt]
            if _is_kept_for_an_hour([*request, *contents]):
                kinds["ephemeral_1h_input_tokens"] = kinds.pop("cache_creation")
        used["input_token_details"] = cast("InputTokenDetails", kinds)
    if (details := reported.get("output_token_details")) and (kinds := _kinds_in(details, written)):
        used["output_token_details"] = cast("OutputTokenDetails", kinds)
    return answer.model_copy(update={"usage_metadata": used, "response_metadata": metadata})


_FOR_A_TIME: Final = ("ephemeral_1h_input_tokens", "ephemeral_5m_input_tokens")
"""LangChain's names for tokens that were written to Claude's cache for a known time."""

_TIERS: Final = ("", "priority_", "flex_")
"""The texts that LangChain puts before the name of a kind, by the service tier of OpenAI."""


def _kinds_in(details: Mapping[str, object], total: int) -> dict[str, int]:
    """Return the tokens that are billed apart, by kind. Together they are at most the total."""
    found, left = dict[str, int](), total
    for kind in ("cache_read", *_FOR_A_TIME, "cache_creation", "audio"):
        counts = (token_count(details.get(f"{tier}{kind}")) for tier in _TIERS)
        count = sum(filter(None, counts))
        if kind == "cache_creation":
            # Some clients count the tokens of a known time here, too.
            count = max(0, count - sum(found.get(name, 0) for name in _FOR_A_TIME))
        if count := min(count, left):
            found[kind] = count
            left -= count
    return found


def _is_kept_for_an_hour(request: object) -> bool:
    """Return whether a part of a request tells Claude's cache to keep the prompt for an hour."""
    if isinstance(request, Mapping):
        control = request.get("cache_control")
        if isinstance(control, Mapping) and control.get("ttl") == "1h":
            return True
        request = [*request.values()]
    return isinstance(request, list) and any(map(_is_kept_for_an_hour, request))


_LEAST, _MOST = -(2**63), 2**64 - 1
"""Smallest and largest integer in msgpack, the format of checkpoints."""
_MOST_LEVELS = 100
"""Maximum nesting depth. Logs that are nested deeper than about 200 levels can't be read."""

TOO_DEEP = f"they are nested more than {_MOST_LEVELS} levels deep"
TOO_LARGE = "a whole number has more than 64 bits; write it as text"


def why_unstorable(fields: dict[str, Any]) -> str | None:
    """Return why fields can't be stored, sent again or shown, or None if they can."""
    # Without recursion, since deeply nested fields would exceed Python's limit.
    left: list[tuple[str, int, Any]] = [("", 1, fields)]
    while left:
        at, depth, value = left.pop()
        if depth > _MOST_LEVELS:
            return TOO_DEEP
        inside: list[tuple[str, Any]] = []
        if isinstance(value, dict):
            keys = [
                _fault_of(key) if isinstance(key, str) else "a key is not text" for key in value
            ]
            if fault := next(filter(None, keys), None):
                return f"{_name_place(at)}{fault}"
            inside = list(value.items())
        elif isinstance(value, list):
            inside = [(str(place), each) for place, each in enumerate(value)]
        elif fault := _fault_of(value):
            return f"{_name_place(at)}{fault}"
        left.extend((f"{at}.{key}".lstrip("."), depth + 1, each) for key, each in inside)
    return None


def _name_place(place: str) -> str:
    return f"at {place}, " if place else ""


def _fault_of(value: object) -> str | None:
    """Return what is wrong with a single value, or None."""
    match value:
        case None | bool():
            return None
        case str():
            if (found := UNSTORABLE.search(value)) is None:
                return None
            fault = "U+0000" if found[0] == "\0" else "half a surrogate pair"
            return f"a text contains {fault}"
        case int():
            return None if _LEAST <= value <= _MOST else TOO_LARGE
        case float():
            return None if math.isfinite(value) else "a number is not finite"
        case _:
            return f"a {type(value).__name__} is not JSON"
