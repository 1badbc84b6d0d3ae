"""Clients for OpenAI's API, created once per event loop.

This module imports OpenAI's client, so adapters import it in a thread when they need a client.
"""

import asyncio
import json
import threading
from collections.abc import Callable

import openai
from pydantic import SecretStr

from ....graphs.common.addresses import OPENAI, remember_secrets
from ....graphs.common.errors import ModelUnavailableError
from ....graphs.common.sanitize import escape_invisible, excerpt
from ....graphs.common.settings import Settings
from ..connections import POOLS, Endpoint, clients_of_loop, close_with_loop
from .chat_model import ChatModel
from .failures import TooLargeReplyError, UnreadableReplyError, address_of, failures, repeat_call
from .http_client import HttpClient
from .reply_reader import model_names

_CONNECT_SECONDS = 10.0

_making = threading.Lock()


def _http(loop: asyncio.AbstractEventLoop, settings: Settings, *, uses_proxies: bool) -> HttpClient:
    """Return the loop's HTTP client."""
    pools = clients_of_loop(loop).setdefault(POOLS, {})
    key = uses_proxies, settings.max_reply_size
    if key not in pools:
        try:
            pools[key] = HttpClient(settings.max_reply_size, trust_env=uses_proxies)
        except (OSError, ValueError, ImportError) as error:
            raise ModelUnavailableError(
                f"no connection to a model can be made ({excerpt(str(error))}); check "
                "SSL_CERT_FILE, SSL_CERT_DIR and the proxies in the environment"
            ) from error
    found: HttpClient = pools[key]
    return found


def _api(settings: Settings, url: str | None, key: str, http: HttpClient) -> openai.AsyncOpenAI:
    remember_secrets(url or "")
    api = openai.AsyncOpenAI(
        api_key=key,
        # OpenAI's client would read its variable, even a blank one.
        base_url=url or OPENAI,
        timeout=_timeout(settings),
        # `repeat_call` repeats calls.
        max_retries=0,
        http_client=http,
    )
    # Runs `uname`, once per process.
    api.platform_headers()
    return api


def make_client(
    loop: asyncio.AbstractEventLoop, settings: Settings, endpoint: Endpoint, name: str
) -> ChatModel:
    """Return the client of one model, and create it at the first use. Reads files, so it blocks.

    Args:
        loop: The event loop that calls the model.
        settings: The limits on calls.
        endpoint: The server.
        name: The server's name for the model.
    """
    place = (endpoint, name, settings.timeout, settings.max_retries, settings.max_reply_size)
    with _making, failures(name, endpoint.shown):
        http = _http(loop, settings, uses_proxies=endpoint.uses_proxies)
        cached = clients_of_loop(loop)
        if place not in cached:
            api = _api(settings, endpoint.url, endpoint.key, http)
            cached[place] = ChatModel(
                model=name,
                base_url=endpoint.url or OPENAI,
                api_key=SecretStr(endpoint.key),
                timeout=_timeout(settings),
                max_retries=settings.max_retries,
                max_tokens=endpoint.max_tokens,
                stream_usage=True,
                limit_name=endpoint.limit_name,
                # The timeout above already limits the time between pieces.
                stream_chunk_timeout=None,
                root_async_client=api,
                async_client=api.chat.completions,
                http_socket_options=(),
            )
        found: ChatModel = cached[place]
        return found


def _timeout(settings: Settings) -> openai.Timeout:
    # Waiting for a free connection has no limit, since the server does not cause it.
    connect = min(_CONNECT_SECONDS, settings.timeout)
    return openai.Timeout(settings.timeout, connect=connect, pool=None)


async def fetch_model_names(settings: Settings, notify: Callable[[str], None]) -> list[str]:
    """Return the names of a server's models."""
    key = settings.api_key.get_secret_value() if settings.api_key else "none"
    loop = asyncio.get_running_loop()
    await close_with_loop()

    def make() -> openai.AsyncOpenAI:
        with _making:
            return _api(settings, settings.base_url, key, _http(loop, settings, uses_proxies=True))

    address = address_of(settings)
    with failures("models", address):
        asking = await asyncio.to_thread(make)
        try:
            # OpenAI's own `models.list` raises TypeError if the reply is not a list of models.
            found = await repeat_call(
                lambda: asking.get("/models", cast_to=object),
                label="models",
                address=address,
                retries=settings.max_retries,
                notify=notify,
            )
            names = model_names(found)
        except openai.NotFoundError as error:
            raise _no_list(address, "404") from error
        except TooLargeReplyError:
            raise
        except UnreadableReplyError as error:
            raise _no_list(address, str(error)) from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise _no_list(address, f"the reply is not JSON: {error}") from error
        # A name with invisible characters can't be typed by a user.
        return [name for name in names if escape_invisible(name) == name]


def _no_list(address: str, why: str) -> ModelUnavailableError:
    return ModelUnavailableError(
        f"the model server at {address} does not list its models ({excerpt(why)}); check its "
        "address, which usually ends in /v1, or name a model"
    )
