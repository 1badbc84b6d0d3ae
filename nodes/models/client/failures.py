"""Failed model calls: their repetition, and their descriptions, one sentence each.

OpenAI's client is imported only after it has raised an error.
"""

import json
from asyncio import sleep
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from random import random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ByteSize

from ....graphs.common.addresses import show_address
from ....graphs.common.errors import (
    DuologueError,
    ModelError,
    ModelUnavailableError,
    iter_causes,
)
from ....graphs.common.sanitize import excerpt
from ....graphs.common.settings import Settings
from ..gate import GatedCall
from ..refusals import (
    advise_on_credit,
    comes_from,
    excerpt_of,
    failed_in_reply,
    find_refusal,
    has_passed,
    is_api_error,
    is_clients,
    is_for_now,
    is_foreign,
    is_repeatable,
    is_status_error,
    is_unavailable,
    read_retry_seconds,
    read_too_long,
)

if TYPE_CHECKING:
    import openai

T = TypeVar("T")

_CALLBACKS: Final = "langchain_core.callbacks.manager"
"""The module that calls LangChain's callbacks, whose errors pass unchanged."""

_OPENAI = "api.openai.com"
"""Host of the server if no address is set."""


class UnreadableReplyError(ValueError):
    """A reply that can't be normalized. The message is the reason in a few words."""


class NoReplyError(UnreadableReplyError):
    """A reply that is not a JSON object. Its sender is usually not an API."""


class NoMessageError(UnreadableReplyError):
    """A reply of an API without a message. The next reply may have one."""


class TooLargeReplyError(UnreadableReplyError):
    """A reply with more bytes than the limit allows.

    The class is not derived from the HTTP client's errors, so that no client retries the call.

    Args:
        limit: The limit, in bytes.
        status: The HTTP status if the reply is an error.
    """

    def __init__(self, limit: int, status: int | None = None) -> None:
        what = "a reply" if status is None else f"an error ({status})"
        size = ByteSize(limit).human_readable(separator=" ")
        super().__init__(f"{what} of more than {size}; raise DUOLOGUE_MAX_REPLY_SIZE to read it")


def address_of(settings: Settings) -> str:
    """Return the address of the server in the settings, without secrets, for users."""
    return show_address(settings.base_url) if settings.base_url else _OPENAI


def name_of(label: str, address: str | None) -> str:
    """Return the subject of an error message: a server, or a model in a child of this process."""
    return f"the model server at {address}" if address else f"the model {label}"


@contextmanager
def convert_errors(label: str, convert: Callable[[Exception], ModelError | None]) -> Iterator[None]:
    """Turn exceptions inside the block into errors of duologue.

    Args:
        label: Name of the model.
        convert: Returns the error for an exception that is not about a prompt that is too long. The
            exception passes unchanged if None.
    """
    try:
        yield
    except DuologueError:
        raise
    except Exception as error:
        found = (
            None if has_passed(error, _CALLBACKS) else read_too_long(error, label) or convert(error)
        )
        if found is None:
            raise
        raise found from error


def failures(label: str, address: str | None) -> AbstractContextManager[None]:
    """Turn exceptions inside the block into a ModelError of one sentence.

    These pass unchanged: errors of duologue, errors of callbacks, and exceptions of packages that
    have no part in a model call. A program around the conversation raises the last to stop it.
    """

    def convert(error: Exception) -> ModelError | None:
        if is_foreign(error):
            return None
        import httpx2

        no_server = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol)
        is_unreachable = address is not None and isinstance(_http_error(error), no_server)
        # Other calls would fail as well: because of the key, the model or the address.
        is_lasting = is_unreachable or is_unavailable(error)
        what = _what_went_wrong(error, label, address)
        kind = ModelUnavailableError if is_lasting else ModelError
        return kind(f"{name_of(label, address)} {_describe_redirect(error)}{what}")

    return convert_errors(label, convert)


def _what_went_wrong(error: Exception, label: str, address: str | None) -> str:
    below = _http_error(error)
    if not is_clients(error):
        return _unreadable(error) if below is None else _what_broke(error, below, address)
    import openai

    match error:
        case openai.APITimeoutError():
            return "did not answer in time; increase DUOLOGUE_TIMEOUT or try again"
        case openai.APIConnectionError() if not address:
            return "has ended unexpectedly; try again"
        case openai.APIConnectionError():
            return _what_broke(error, below, address)
        case openai.APIStatusError():
            return _describe_refusal(error, label)
        case openai.APIError():
            return f"sent an error instead of an answer{_detail(error)}"
        case _:
            return f"failed: {_explain(error)}"


def _describe_refusal(error: "openai.APIStatusError", label: str) -> str:
    """Describe an error that a server reports by its HTTP status."""
    import openai

    match error:
        case _ if advice := advise_on_credit(error):
            return f"refuses calls, since its account has no credit{_detail(error)}{advice}"
        case openai.AuthenticationError():
            return "rejected the key; check OPENAI_API_KEY or DUOLOGUE_API_KEY"
        case openai.PermissionDeniedError():
            return f"refused the call (403){_detail(error) or '; check the permissions of its key'}"
        case openai.NotFoundError():
            # Some servers send 404 for unsupported features, too.
            return (
                f"has no model {label!r}{_detail(error)}; run `duologue models` to list its "
                "models, or check whether its address lacks /v1"
            )
        case openai.RateLimitError():
            return f"keeps refusing calls (429){_detail(error)}; try again later"
        case _ if failed_in_reply(error):
            return f"sent an error instead of an answer{_detail(error)}"
        case _:
            return f"answered with an error ({error.status_code}){_detail(error)}"


def _unreadable(error: Exception) -> str:
    """Return why a reply could not be read."""
    if isinstance(error, TooLargeReplyError):
        return f"sent {error}"
    if isinstance(error, NoReplyError | json.JSONDecodeError):
        return (
            f"does not answer like OpenAI's API ({_explain(error)}); check its address, which "
            "usually ends in /v1"
        )
    return f"does not answer like OpenAI's API: {_explain(error)}"


def _what_broke(error: Exception, below: BaseException | None, address: str | None) -> str:
    """Describe the failure of a connection, or of the data that it transferred."""
    import httpx2

    match below:
        case httpx2.TimeoutException():
            return "did not answer in time; increase DUOLOGUE_TIMEOUT or try again"
        case httpx2.DecodingError():
            return f"sent a body that can't be decompressed ({_explain(below)}); try again"
        case httpx2.TooManyRedirects():
            return f"keeps redirecting (last to {_show(below.request.url)}); check its address"
        case httpx2.UnsupportedProtocol():
            return "is not an HTTP address; check it"
        case _ if broke_off(error):
            return "keeps closing the connection in mid-answer; try again"
        case httpx2.RemoteProtocolError():
            return f"sent an incomplete HTTP answer ({_explain(below)}); try again"
        case httpx2.ReadError() | httpx2.WriteError():
            return "keeps closing the connection before it answers; try again"
        case _ if address == _OPENAI:
            return "can't be reached; check the network, and HTTPS_PROXY if you need a proxy"
        case _:
            return "can't be reached; check OPENAI_BASE_URL or DUOLOGUE_BASE_URL"


def _http_error(error: BaseException | None) -> BaseException | None:
    """Return the HTTP client's error among an error and its causes, or None."""
    return next((one for one in iter_causes(error) if comes_from(one, "httpx2")), None)


def _describe_redirect(error: Exception) -> str:
    """Return the address of a redirect as the beginning of a sentence. Empty if there is none."""
    below: Any = _http_error(error)
    if is_status_error(error):
        reached, is_elsewhere = error.response.url, bool(error.response.history)
    elif is_api_error(error) and below is not None and below._request is not None:
        import httpx2

        reached = below.request.url
        is_endless = isinstance(below, httpx2.TooManyRedirects)
        is_elsewhere = reached != error.request.url and not is_endless
    else:
        return ""
    if not is_elsewhere:
        return ""
    return f"redirects to {_show(reached)}, which "


def _show(url: object) -> str:
    """Return the address of a redirect without its query and its secrets."""
    return excerpt(show_address(str(url)).partition("?")[0])


def _detail(error: "openai.APIError") -> str:
    """Return the message in the body of an error, after a colon."""
    body = error.body
    message = body.get("message") if isinstance(body, dict) else None
    told = excerpt_of(message if isinstance(message, str) else body) if body else ""
    return told and f": {told}"


def _explain(error: BaseException) -> str:
    """Return the message of an exception, with its type if the message alone is unclear."""
    if isinstance(error, RecursionError):
        return "the reply is nested too deeply"
    said = excerpt_of(error)
    if isinstance(error, json.JSONDecodeError):
        return f"the reply is not JSON: {said}"
    is_plain = isinstance(error, UnreadableReplyError) or comes_from(error, "httpx2")
    return said if is_plain and said else f"{type(error).__name__}: {said}".rstrip(": ")


def broke_off(error: BaseException) -> bool:
    """Return whether a connection broke during a reply."""
    if not (is_api_error(error) and failed_in_reply(error)):
        return False
    from openai import APIConnectionError

    return isinstance(error, APIConnectionError)


_BREAKS: Final = 2
"""Maximum number of retries after an interrupted answer."""

_REFUSALS: Final = 10
"""Maximum number of refusals of a call at a gate, for each of its tries. A server refuses it for
now."""

_LONGEST_PAUSE: Final = 8.0
"""Maximum number of seconds before a retry, if the server asks for none."""

_repeats: ContextVar[Iterator[bool]] = ContextVar("_repeats")
"""Yields True once if the current call may be repeated because its reply has no end."""


def take_repeat() -> bool:
    """Return whether the current call may be repeated since its reply has no end: once."""
    return next(_repeats.get(iter(())), False)


async def repeat_call(
    once: Callable[[], Awaitable[T]],
    *,
    label: str,
    address: str | None,
    retries: int,
    notify: Callable[[str], None],
    gate: GatedCall | None = None,
) -> T:
    """Make a call. Repeat it if it fails for now: on the way, by a status, or inside its reply.

    Args:
        once: Makes the call once.
        label: Name of the model.
        address: Address of its server, or None.
        retries: Maximum number of retries.
        notify: Called with a notice when the call is repeated.
        gate: The object through which each attempt passes a gate. None if it passes no gate.
    """
    token = _repeats.set(iter((True,) if retries else ()))
    # Each kind of failure has a separate limit.
    refusals = breaks = others = 0
    try:
        while True:
            try:
                return await (once() if gate is None else gate.make_call(once))
            except Exception as error:
                is_refused = gate is not None and is_for_now(error)
                is_broken = not is_refused and broke_off(error)
                if not (is_refused or is_broken or is_repeatable(error)):
                    raise
                refusals += is_refused
                breaks += is_broken
                others += not (is_refused or is_broken)
                most_refusals = _REFUSALS * (1 + retries)
                if refusals > most_refusals or breaks > min(_BREAKS, retries) or others > retries:
                    raise
                is_told = is_refused or failed_in_reply(error)
                if is_told:
                    notify(_describe_retry(label, error))
                # A gate delays the calls that a server refuses.
                await sleep(0 if is_refused or is_broken else _pause_before(others, error))
            if not is_told:
                name = name_of(label, address)
                at = f"{name[:1].upper()}{name[1:]}"
                notify(f"{at} is busy or can't be reached: try {others + 1} of {1 + retries}.")
    finally:
        _repeats.reset(token)


def _pause_before(number: int, error: Exception) -> float:
    """Return the number of seconds before a retry, as OpenAI's client computes it.

    A wait of zero is a time in the past, which says nothing.
    """
    found = find_refusal(error)
    asked = None if found is None else read_retry_seconds(found.headers)
    # The times of many callers must differ.
    own = min(0.5 * 2.0 ** min(number - 1, 10), _LONGEST_PAUSE) * (1 - 0.25 * random())  # noqa: S311
    return asked or own


def _describe_retry(label: str, error: Exception) -> str:
    """Return a notice that a model is called again, and why."""
    import httpx2

    below = _http_error(error)
    how = "stopped in mid-answer"
    if isinstance(below, httpx2.TimeoutException):
        how = str(below) or "was silent"
    elif find_refusal(error) is not None:
        how = "refuses calls for now" if is_for_now(error) else "sent an error instead of an answer"
    return f"{label} {how}: trying again"
