"""Errors as servers report them in JSON: the HTTP status that fits them, and the wait they ask for.

An error has its status in digits or in words, in fields of many names and at any depth. Pure
functions.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

NO_CREDIT: Final = 402
"""HTTP status for an account without credit. Waiting does not help."""

_UNNAMED: Final = 500
"""HTTP status for an error that states no reason."""

_STATUS: Final = re.compile(r"(?<!\d)[45]\d\d(?!\d)")

_NAMES: Final = ("code", "status_code", "status", "type", "error_type", "reason", "error")
"""Fields that contain a status or a word for it, in the order in which they count."""

_MESSAGES: Final = ("message", "detail", "error")
"""Fields that describe an error in a sentence."""

_DEEPEST: Final = 4

_READ: Final = 10_000
"""Maximum number of characters of a text to search."""

_HEAD: Final = 80
"""Number of characters of a message in which credit counts. The rest may quote the prompt."""

_WORDS: Final[tuple[tuple[int, re.Pattern[str]], ...]] = tuple(
    (status, re.compile(words))
    for status, words in (
        # OpenAI, DeepSeek, OpenRouter, Moonshot and Anthropic, in this order. OpenAI and Moonshot
        # send them with status 429, Anthropic with 400.
        (
            NO_CREDIT,
            r"insufficient ?(?:quota|balance|credit)|billing ?(?:hard ?limit|not ?active)"
            r"|payment ?required|exceeded current quota error|credit balance is too",
        ),
        (429, r"rate ?limit|too ?many ?(?:requests|tokens)|throttl|resource ?exhausted|quota"),
        (529, r"overload|(?:at|over|out of|no) capacity|capacity exceeded|engine busy|server busy"),
        # The second is a finish reason of DeepSeek, the third a state of llama.cpp and Hugging Face
        (503, r"unavailable|insufficient system resource|(?:is|still|currently) loading"),
        (504, r"time ?out|timed out|deadline ?exceeded"),
        (502, r"bad ?gateway|upstream|provider ?error|connection (?:error|reset|refused|closed)"),
        (400, r"context ?(?:length|window|size)|invalid ?(?:request|argument)|bad ?request"),
        (400, r"content ?(?:filter|policy)|unprocessable|too long"),
        (401, r"invalid ?(?:api ?)?key|unauthenticated|authentication|unauthori[sz]ed"),
        (403, r"permission|forbidden"),
        (404, r"not ?found|no such model|does not exist"),
        (_UNNAMED, r"server ?error|internal"),
    )
)
"""Words for a status, the first match first. They are in lower case, with a space between words."""

_WAIT: Final = re.compile(r"retry ?(?:after|delay) ?(ms|milliseconds|seconds|s)?")
_SECONDS: Final = re.compile(r"(\d+(?:\.\d+)?) ?(ms|milliseconds|s|seconds)?")


def read_status(error: object) -> int:
    """Return the HTTP status that fits an error: of its first field with a status, or of its words.

    An error that states no reason is the server's own.
    """
    if lacks_credit(error):
        return NO_CREDIT
    found = chain(map(status_of_field, _fields(error)), map(_status_in_words, _messages(error)))
    return next((status for status in found if status is not None), _UNNAMED)


def status_of_field(value: object) -> int | None:
    """Return the HTTP status in a field: a number, or a text with the number or words for it."""
    if isinstance(value, str):
        digits = _STATUS.search(value[:_READ])
        return int(digits[0]) if digits else _status_in_words(value)
    if isinstance(value, int | float) and 400 <= value <= 599 and value == int(value):
        return int(value)
    return None


def lacks_credit(error: object) -> bool:
    """Return whether an error says that the account has no credit left."""
    named = (value for value in _fields(error) if isinstance(value, str))
    heads = (text[:_HEAD] for text in _messages(error))
    return any(_status_in_words(text, _WORDS[:1]) for text in chain(named, heads))


def read_wait(error: object) -> float | None:
    """Return how many seconds an error asks to wait, or None if it does not say so."""
    for holder in _mappings(error):
        for name, value in holder.items():
            unit = _WAIT.fullmatch(_plain(str(name)))
            if unit is None or isinstance(value, bool):
                continue
            if found := _SECONDS.fullmatch(_plain(str(value)[:_READ])):
                is_short = (found[2] or unit[1] or "").startswith("m")
                return float(found[1]) / (1000 if is_short else 1)
    return None


def _mappings(error: object) -> Iterator[Mapping[Any, Any]]:
    """Yield the objects in an error, the outer ones first."""
    level: list[object] = [error]
    for _ in range(_DEEPEST):
        inner: list[object] = []
        for one in level:
            if isinstance(one, Mapping):
                yield one
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        level = inner


def _fields(error: object) -> Iterator[object]:
    """Yield the values of the fields that may contain a status, the outer ones first."""
    return (holder.get(name) for holder in _mappings(error) for name in _NAMES)


def _messages(error: object) -> Iterator[str]:
    if isinstance(error, str):
        yield error
    for holder in _mappings(error):
        yield from (text for name in _MESSAGES if isinstance(text := holder.get(name), str))


def _status_in_words(
    text: str, words: Iterable[tuple[int, re.Pattern[str]]] = _WORDS
) -> int | None:
    plain = _plain(text[:_READ])
    return next((status for status, pattern in words if pattern.search(plain)), None)


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text).strip().casefold()
