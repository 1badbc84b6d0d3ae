"""The clients that speak OpenAI's API, made once for each loop.

It loads the client of OpenAI, so `nodes.models.resolve` imports it in a thread, when there is one
to make. Which model a name means is there too.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import httpx2
import openai
from pydantic import SecretStr

from ....graphs.common.addresses import redacted
from ....graphs.common.errors import ModelUnavailableError
from ....graphs.common.sanitize import clean
from ....graphs.common.settings import MAX_REPLY_SIZE, Settings
from .chat_model import ChatModel
from .connections import close_with_loop, made_in
from .failures import address_of, failures, name_of
from .http_client import HttpClient
from .reply_size import LIMIT
from .retries import tries_told

_CONNECT_SECONDS = 10.0

_making = threading.Lock()


_T = TypeVar("_T")


class ApiClient(openai.AsyncOpenAI):
    """OpenAI's client, which limits a reply's size, and takes other forms of a list of models.

    Args:
        max_reply_size: The maximum size of a reply, in bytes.
        options: The options of the class above.
    """

    def __init__(
        self,
        *,
        max_reply_size: int = MAX_REPLY_SIZE,
        **options: Any,  # as in the class above
    ) -> None:
        super().__init__(**options)
        self._max_reply_size = max_reply_size

    async def _prepare_request(self, request: httpx2.Request) -> None:
        request.extensions = {**request.extensions, LIMIT: self._max_reply_size}
        await super()._prepare_request(request)

    @property
    def user_agent(self) -> str:
        """The name of the class above: some gateways let known clients through alone."""
        return super().user_agent.replace(type(self).__name__, openai.AsyncOpenAI.__name__, 1)

    def _process_response_data(self, *, data: object, cast_to: type[_T], response: Any) -> _T:  # noqa: ANN401
        if isinstance(data, list) and cast_to is not object:
            # Some servers list their models so.
            data = {"data": data}
        return super()._process_response_data(data=data, cast_to=cast_to, response=response)


def _http(loop: asyncio.AbstractEventLoop, *, is_ours: bool) -> HttpClient:
    """The loop's HTTP client; the one for our own child never goes through a proxy."""
    cached = made_in(loop)
    if is_ours not in cached:
        cached[is_ours] = HttpClient(trust_env=not is_ours)
    found: HttpClient = cached[is_ours]
    return found


def _api(settings: Settings, url: str | None, key: str, http: HttpClient) -> ApiClient:
    return ApiClient(
        api_key=key,
        base_url=url,
        timeout=_timeout(settings),
        max_retries=settings.max_retries,
        http_client=http,
        max_reply_size=settings.max_reply_size,
    )


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
    """Give the client for one model, made where there is none yet. Reads files, so it blocks."""
    limits = (settings.timeout, settings.max_retries, settings.max_reply_size, max_tokens)
    place = (url, key, name, *limits)
    with _making, failures(name, None if is_ours else redacted(url or "")):
        http = _http(loop, is_ours=is_ours)
        cached = made_in(loop)
        if place not in cached:
            api = _api(settings, url, key, http)
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
                root_async_client=api,
                async_client=api.chat.completions,
                http_socket_options=(),
            )
        found: ChatModel = cached[place]
        return found


def _timeout(settings: Settings) -> openai.Timeout:
    # Waiting for a connection that others use is no silence of the server's.
    connect = min(_CONNECT_SECONDS, settings.timeout)
    return openai.Timeout(settings.timeout, connect=connect, pool=None)


async def listed(settings: Settings, notify: Callable[[str], None]) -> list[str]:
    """Ask a server which models it has."""
    key = settings.api_key.get_secret_value() if settings.api_key else "none"
    loop = asyncio.get_running_loop()
    await close_with_loop()

    def made() -> ApiClient:
        with _making:
            return _api(settings, settings.base_url, key, _http(loop, is_ours=False))

    address = address_of(settings)
    retries = settings.max_retries
    with failures("models", address), tries_told(notify, name_of("models", address), retries):
        asking = await asyncio.to_thread(made)
        try:
            found = [model.id for model in (await asking.models.list()).data]
            # What can't be shown as it is can't be named, either.
            return [name for name in found if isinstance(name, str) and clean(name) == name]
        except openai.NotFoundError as error:
            raise ModelUnavailableError(
                f"the model server at {address} lists no models: check its address, which mostly "
                "ends in /v1, or name a model"
            ) from error
