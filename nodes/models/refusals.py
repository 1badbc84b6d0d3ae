"""What a failed call tells by its HTTP status and headers, whichever client has raised it."""

import math
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

from ...graphs.common.errors import ModelUnavailableError

_BUSY: Final = (429, 529)
"""Too many calls; the second is Anthropic's, for all callers together."""

_UNAVAILABLE: Final = (401, 402, 403, 404)
"""A rejected key, no credit left, a forbidden model, no such model."""

_NO_CREDIT: Final = "insufficient_quota"
"""OpenAI's code, with 429, where credit is used up: it comes back by no waiting."""

_FLAGGED: Final = ("flagged", "moderation", "content_policy")
"""What gateways say in a 403 that is about one prompt."""

_READ: Final = 10_000
"""How much of what a server says is searched, in characters: it may send any length."""


class Refusal(NamedTuple):
    """The status of an answer that is none, and its headers."""

    status: int
    headers: Mapping[str, str]

    @property
    def is_for_now(self) -> bool:
        """Whether the server takes calls again after a while."""
        has_told = self.status == 503 and seconds_told(self.headers) is not None
        return self.status in _BUSY or has_told


def refusal(error: BaseException) -> Refusal | None:
    """Give what a server has said, by the exception that a client made of it."""
    return next((found for one in causes(error) if (found := _told(one)) is not None), None)


def is_for_now(error: BaseException) -> bool:
    """Whether a call was refused by a server that takes calls again after a while."""
    found = refusal(error)
    return found is not None and found.is_for_now and not _has_no_credit(error)


def is_unavailable(error: BaseException) -> bool:
    """Whether a model can't be had at all, whatever it is asked."""
    if any(isinstance(one, ModelUnavailableError) for one in causes(error)):
        return True
    found = refusal(error)
    if found is None or found.status not in _UNAVAILABLE:
        return _has_no_credit(error)
    return found.status != 403 or not any(word in text_of(error) for word in _FLAGGED)


def seconds_told(headers: Mapping[str, str]) -> float | None:
    """Read how long a server asks to wait, in seconds. None: it does not say."""
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


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and those that caused it."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__


def _told(error: BaseException) -> Refusal | None:
    """What one exception holds: the clients of OpenAI, Anthropic, Google, AWS and others."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, Mapping):
        about = response.get("ResponseMetadata")
        about = about if isinstance(about, Mapping) else {}
        status, headers = about.get("HTTPStatusCode"), about.get("HTTPHeaders")
    else:
        status = getattr(response, "status_code", None) or getattr(error, "status_code", None)
        status = status or getattr(error, "code", None)
        headers = getattr(response, "headers", None)
    if not isinstance(status, int) or not 400 <= status <= 599:
        return None
    return Refusal(int(status), headers if isinstance(headers, Mapping) else {})


def _has_no_credit(error: BaseException) -> bool:
    return any(getattr(one, "code", None) == _NO_CREDIT for one in causes(error))


def text_of(error: BaseException) -> str:
    """Return the text of an error and of its causes, with the bodies of answers, in lower case."""
    try:
        said = (f"{one} {getattr(one, 'body', '')}"[:_READ] for one in causes(error))
        return " ".join(said).casefold()
    except Exception:
        # Some errors fail at putting into words what could not be read.
        return ""
