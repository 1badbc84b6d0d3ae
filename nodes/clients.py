"""The clients that speak OpenAI's API: made once for each loop, with one sentence for a failure.

Which model a name means is in `duologue.nodes.models`.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import openai
from pydantic import SecretStr

from duologue.graphs.errors import ModelError
from duologue.graphs.settings import Settings
from duologue.graphs.store_base import redacted
from duologue.nodes.chat_model import ChatModel
from duologue.nodes.too_long import as_too_long

UNREADABLE = (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError)
"""What the client raises for an answer that can't be read as the schema it was asked for."""

_CONNECT_SECONDS = 10.0

_ODD = (AttributeError, KeyError, TypeError, ValueError)
"""What the clients raise, unexplained, for an answer that is not OpenAI's API."""


def address_of(settings: Settings) -> str:
    """Give a server's address as users may see it: never with a password in it."""
    return redacted(settings.base_url) if settings.base_url else "api.openai.com"


@contextmanager
def failures(label: str, address: str | None) -> Iterator[None]:
    """Turn the client's exceptions inside the block into one sentence each.

    Args:
        label: The model's name.
        address: Where its server is. None: in a child of this process.

    Raises:
        ContextTooLongError: The model refused the prompt as too long.
        ModelError: The block failed; says how and what to do. `UNREADABLE` passes.
    """
    at = f"the model server at {address}" if address else f"the model {label}"
    try:
        yield
    except UNREADABLE:
        raise
    except openai.OpenAIError as error:
        if (too_long := as_too_long(error, label)) is not None:
            raise too_long from error
        raise ModelError(f"{at} {_what_went_wrong(error, label, is_ours=not address)}") from error
    except _ODD as error:
        raise ModelError(
            f"{at} does not answer as OpenAI's API does: check its address, which mostly ends in "
            f"/v1 ({type(error).__name__}: {str(error)[:200]})"
        ) from error


@contextmanager
def refusals(label: str) -> Iterator[None]:
    """Recognise inside the block that a model of the user's own refused a prompt as too long.

    Args:
        label: The model's name.

    Raises:
        ContextTooLongError: It did. What else it raises is the user's to read, and passes.
    """
    try:
        yield
    except Exception as error:
        if (too_long := as_too_long(error, label)) is not None:
            raise too_long from error
        raise


def _what_went_wrong(error: openai.OpenAIError, label: str, *, is_ours: bool) -> str:
    match error:
        case openai.AuthenticationError() | openai.PermissionDeniedError():
            return "rejected the key: check OPENAI_API_KEY or DUOLOGUE_API_KEY"
        case openai.NotFoundError():
            return (
                f"has no model {label!r}: `duologue models` lists what it has; or its address "
                "lacks /v1"
            )
        case openai.APITimeoutError():
            return "did not answer in time: raise DUOLOGUE_TIMEOUT or try again"
        case openai.APIConnectionError() if is_ours:
            return "is gone: its process has ended; try again"
        case openai.APIConnectionError() if broke_off(error):
            return "keeps breaking off in mid-answer: try again"
        case openai.APIConnectionError():
            return "can't be reached: check OPENAI_BASE_URL or DUOLOGUE_BASE_URL"
        case openai.RateLimitError():
            return f"keeps refusing for now (429): {_detail(error)}"
        case openai.APIStatusError():
            return f"answered with an error ({error.status_code}): {_detail(error)}"
        case _:
            return f"broke off: {error}"


def _detail(error: openai.APIStatusError) -> str:
    body = error.body
    message = body.get("message") if isinstance(body, dict) else None
    return str(message or error.message)


def broke_off(error: BaseException) -> bool:
    """Whether a connection broke while an answer streamed in, which the client does not mend."""
    cause: BaseException | None = error
    while cause is not None:
        trace = cause.__traceback__
        while trace is not None:
            # Where the client reads a stream; a failure before that it has retried itself.
            if trace.tb_frame.f_globals.get("__name__") == "openai._streaming":
                return isinstance(error, openai.APIConnectionError)
            trace = trace.tb_next
        cause = cause.__cause__
    return False


# An HTTP connection belongs to the event loop it was made in, so each loop has its own clients.
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, Any]] = WeakKeyDictionary()
_making = threading.Lock()


def _http(loop: asyncio.AbstractEventLoop, *, is_ours: bool) -> openai.DefaultAsyncHttpxClient:
    """The loop's HTTP client; the one for our own child never goes through a proxy."""
    cached = _clients.setdefault(loop, {})
    if is_ours not in cached:
        cached[is_ours] = openai.DefaultAsyncHttpxClient(trust_env=not is_ours)
    found: openai.DefaultAsyncHttpxClient = cached[is_ours]
    return found


def client(
    loop: asyncio.AbstractEventLoop,
    settings: Settings,
    url: str | None,
    key: str,
    name: str,
    max_tokens: int | None = None,
    *,
    is_ours: bool = False,
) -> ChatModel:
    """Give the client for one model, made where there is none yet. Reads files, so it blocks.

    Args:
        loop: The event loop it is used in.
        settings: Timeout and retries.
        url: The server's address. None: OpenAI.
        key: Its key.
        name: The model's name.
        max_tokens: The longest answer, in tokens, where a call names none.
        is_ours: Whether the server is a child of this process.

    Returns:
        The client.
    """
    place = (url, key, name, settings.timeout, settings.max_retries, max_tokens)
    with _making, failures(name, None if is_ours else redacted(url or "")):
        http = _http(loop, is_ours=is_ours)
        cached = _clients[loop]
        if place not in cached:
            cached[place] = ChatModel(
                model=name,
                base_url=url,
                api_key=SecretStr(key),
                timeout=_timeout(settings),
                max_retries=settings.max_retries,
                max_tokens=max_tokens,
                stream_usage=True,
                # The timeout above counts between pieces already, in the user's own seconds.
                stream_chunk_timeout=None,
                http_async_client=http,
                http_socket_options=(),
            )
        found: ChatModel = cached[place]
        return found


def _timeout(settings: Settings) -> openai.Timeout:
    return openai.Timeout(settings.timeout, connect=min(_CONNECT_SECONDS, settings.timeout))


async def close_with_loop() -> None:
    """Have the connections of the running event loop closed when it ends."""
    cached = _clients.setdefault(asyncio.get_running_loop(), {})
    if _CLOSING not in cached:
        cached[_CLOSING] = _open_until_closed(cached)
        await anext(cached[_CLOSING])


_CLOSING = "closing"


async def _open_until_closed(cached: dict[object, Any]) -> AsyncGenerator[None, None]:
    """Close connections when it is closed itself, as a loop does at its end with what is open."""
    try:
        yield
    finally:
        connections = [cached[is_ours] for is_ours in (False, True) if is_ours in cached]
        cached.clear()
        for connection in connections:
            await connection.aclose()


async def listed(settings: Settings) -> list[str]:
    """Ask a server which models it has.

    Args:
        settings: Its address and key.

    Returns:
        The models' names, in the server's order.

    Raises:
        ModelError: It can't be asked.
    """
    key = settings.api_key.get_secret_value() if settings.api_key else "none"
    loop = asyncio.get_running_loop()
    await close_with_loop()

    def made() -> openai.AsyncOpenAI:
        with _making:
            return openai.AsyncOpenAI(
                api_key=key,
                base_url=settings.base_url,
                timeout=_timeout(settings),
                max_retries=settings.max_retries,
                http_client=_http(loop, is_ours=False),
            )

    address = address_of(settings)
    with failures("models", address):
        asking = await asyncio.to_thread(made)
        try:
            return [model.id for model in (await asking.models.list()).data]
        except openai.NotFoundError as error:
            raise ModelError(
                f"the model server at {address} lists no models: check its address, which mostly "
                "ends in /v1, or name a model"
            ) from error
