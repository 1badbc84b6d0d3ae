"""The clients that speak OpenAI's API, made once for each loop.

It loads the client of OpenAI, so `duologue.nodes.models` imports it in a thread, when there is one
to make. Which model a name means is there too.
"""

import asyncio
import threading
from collections.abc import Callable

import openai
from pydantic import SecretStr

from duologue.graphs.errors import ModelError
from duologue.graphs.settings import Settings
from duologue.graphs.store_errors import redacted
from duologue.nodes.chat_model import ChatModel
from duologue.nodes.connections import close_with_loop, made_in
from duologue.nodes.failing import address_of, failures, name_of
from duologue.nodes.retries import tell_try, tries_told

_CONNECT_SECONDS = 10.0

_making = threading.Lock()


def _http(loop: asyncio.AbstractEventLoop, *, is_ours: bool) -> openai.DefaultAsyncHttpxClient:
    """The loop's HTTP client; the one for our own child never goes through a proxy."""
    cached = made_in(loop)
    if is_ours not in cached:
        cached[is_ours] = openai.DefaultAsyncHttpxClient(
            trust_env=not is_ours, event_hooks={"request": [tell_try]}
        )
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
        cached = made_in(loop)
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


async def listed(settings: Settings, notify: Callable[[str], None]) -> list[str]:
    """Ask a server which models it has.

    Args:
        settings: Its address and key.
        notify: Is told of each further try.

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
                max_retries=retries,
                http_client=_http(loop, is_ours=False),
            )

    address = address_of(settings)
    retries = settings.max_retries
    with failures("models", address), tries_told(notify, name_of("models", address), retries):
        asking = await asyncio.to_thread(made)
        try:
            return [model.id for model in (await asking.models.list()).data]
        except openai.NotFoundError as error:
            raise ModelError(
                f"the model server at {address} lists no models: check its address, which mostly "
                "ends in /v1, or name a model"
            ) from error
