"""Agents behind HTTP: OpenAI-compatible servers, and endpoints with any form of JSON."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from langchain_core.messages import BaseMessage, convert_to_openai_messages
from pydantic import JsonValue
from pydantic_core import to_json

from ...nodes.models.recorder import note_new_ids
from ..common.addresses import (
    USED_SECRETS,
    check_address,
    hide_addresses,
    remember_secrets,
    show_address,
)
from ..common.content import files_of
from ..common.errors import AgentError, SpecError, name_type
from ..common.sanitize import excerpt

if TYPE_CHECKING:
    import httpx2
    from langchain_openai import ChatOpenAI

HTTP: Final = ("http://", "https://")
"""The beginnings of the address of a server."""

_CONNECT_SECONDS: Final = 10.0
"""Maximum time in seconds until a connection is made."""


@dataclass(frozen=True)
class ModelServer:
    """An OpenAI-compatible server that is an agent."""

    url: str = field(repr=False)
    """The base URL of the server."""
    model: str | None = None
    """The name of its model. ``agent`` if None."""
    key_env: str | None = None
    """The environment variable with its key. The server receives no key if None."""

    def __str__(self) -> str:
        return f"{show_address(self.url)} (model {self.model or 'agent'!r})"

    def connect(self) -> "ChatOpenAI":
        """Return the model at the server.

        Raises:
            SpecError: The address is not valid, or the environment variable is not set.
        """
        # Imported here, since the import takes long.
        from langchain_openai import ChatOpenAI

        # Without a name, the server must not receive a key of the environment.
        key = "none" if self.key_env is None else read_variable(self.key_env, "agent_key_env")
        url = read_address(self.url)
        return ChatOpenAI(base_url=url, model=self.model or "agent", api_key=lambda: key)


def name_server(agent: object, model: str | None, key_env: str | None) -> object:
    """Return an agent; a server's address with its model and its key, if they are named.

    Raises:
        SpecError: The agent is no URL of an OpenAI-compatible server, but they are named.
    """
    if model is None and key_env is None:
        return agent
    if not isinstance(agent, str) or not agent.startswith(HTTP):
        name = "agent_model" if key_env is None else "agent_key_env"
        raise SpecError(f"{name}: only an agent that is a URL has a model and a key; remove it")
    return ModelServer(agent, model, key_env)


def read_address(url: str) -> str:
    """Return an agent's address, whose secrets are hidden from now on.

    Raises:
        SpecError: The address is not valid.
    """
    try:
        checked = check_address(url)
    except ValueError as error:
        raise SpecError(f"agent: {show_address(url)!r} {error}") from None
    remember_secrets(checked)
    return checked


def read_variable(name: str, field_name: str) -> str:
    """Return an environment variable, which is hidden from now on.

    Raises:
        SpecError: It is not set, or no header can contain it.
    """
    # Keys are often pasted with a line end.
    value = os.environ.get(str(name), "").strip()
    if not value:
        raise SpecError(
            f"{field_name}: the environment variable {name!r} is not set; set it, or name another"
        )
    if not (value.isascii() and value.isprintable()):
        raise SpecError(
            f"{field_name}: the environment variable {name!r} contains a character that no header "
            "can contain; use printable ASCII characters"
        )
    USED_SECRETS.add(value)
    return value


def open_client() -> "httpx2.AsyncClient":
    """Return a client for an agent's endpoint. Only the time to connect is limited.

    The simulation limits the time of a reply.
    """
    # Imported here, since most agents need no client.
    import httpx2

    return httpx2.AsyncClient(timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS))


def make_reply_error(what: str, url: str, problem: str, remedy: str) -> AgentError:
    """Return the error for an endpoint that does not reply, without secrets.

    Args:
        what: The kind of endpoint.
        url: The address.
        problem: The cause.
        remedy: The things that the user should check.
    """
    told = excerpt(hide_addresses(problem))
    return AgentError(
        f"agent: the {what} {show_address(url)} does not reply: {told}; check {remedy}"
    )


@dataclass(frozen=True)
class HttpAgent:
    """An agent behind an HTTP endpoint that accepts and returns any form of JSON.

    Each reply is one POST request. These texts in the values of ``request`` are replaced:
    ``{message}`` by the user's newest message, and ``{conversation}`` by an id of the conversation;
    a value that is only ``{messages}`` is replaced by all messages, as dicts with ``role`` and
    ``content``; a value that is only ``{files}`` is replaced by the newest message's images and
    other files, as ``data:`` addresses.

    Raises:
        SpecError: The address or an argument is not valid.

    Example:
        >>> from duologue.graphs.scenarios import HttpAgent
        >>> shop = HttpAgent(
        ...     "http://127.0.0.1:8000/ask",
        ...     request={"question": "{message}", "session": "{conversation}"},
        ...     reply="answer.text",
        ...     headers_env={"X-Api-Key": "SHOP_KEY"},
        ... )
        >>> shop.reply
        'answer.text'
    """

    url: str = field(repr=False)
    """The address of the endpoint."""
    request: Mapping[str, JsonValue] = field(default_factory=lambda: {"message": "{message}"})
    """The body of each request."""
    reply: str = "reply"
    """The path to the reply's text in the response: names and, for lists, numbers from 0, with dots
    between them. If empty, the whole response is the text."""
    headers_env: Mapping[str, str] = field(default_factory=dict)
    """The environment variables with the values of headers, by the headers' names."""
    conversation: str = field(default_factory=lambda: uuid4().hex, repr=False)
    """The id of the conversation. `simulate` makes a new one for each simulation."""

    __name__ = "HTTP agent"

    def __post_init__(self) -> None:
        kinds = {"url": str, "request": Mapping, "reply": str, "headers_env": Mapping}
        for name, kind in kinds.items():
            if not isinstance(given := getattr(self, name), kind):
                what = "text" if kind is str else "a dict"
                raise SpecError(f"{name}: must be {what}, not {name_type(given)}")
        object.__setattr__(self, "url", read_address(self.url))
        if self.reply and not self.reply.strip("."):
            raise SpecError("reply: must be a path such as 'answer.text', or empty")

    def begin(self) -> "HttpAgent":
        """Return the agent for a new conversation.

        Raises:
            SpecError: An environment variable of a header is not set.
        """
        self._read_headers()
        return replace(self, conversation=uuid4().hex)

    async def __call__(self, messages: Sequence[BaseMessage]) -> str:
        """Send the newest message, and return the text of the reply.

        Raises:
            AgentError: The endpoint can't be reached, answers with an error, its response does
                not contain the reply, or its request has no place for the user's files.
        """
        import httpx2

        note_new_ids(self.conversation)
        written = to_json(self.request).decode()
        sends_files = '"{files}"' in written or '"{messages}"' in written
        if files_of(messages[-1].content) and not sends_files:
            # `call` would describe another error as a failure of the agent's code.
            raise AgentError(
                "agent.request: the user's message has a file, which this request does not send; "
                "add a value '{files}' or '{messages}'"
            )
        headers = self._read_headers()
        async with open_client() as client:
            try:
                body = _fill(self.request, messages, self.conversation)
                response = await client.post(self.url, json=body, headers=headers)
            except httpx2.HTTPError as error:
                raise self._refuse(repr(error)) from error
        if not response.is_success:
            raise self._refuse(f"it answered {response.status_code} {response.text}")
        try:
            found = response.json()
        except ValueError:
            if not self.reply:
                return str(response.text)
            raise self._refuse(f"it answered no JSON: {response.text}") from None
        return self._find_reply(found)

    def _read_headers(self) -> dict[str, str]:
        return {
            header: read_variable(variable, f"headers_env.{header}")
            for header, variable in self.headers_env.items()
        }

    def _find_reply(self, found: Any) -> str:  # noqa: ANN401  # any JSON
        """Return the text at the path of the reply."""
        whole = found
        for step in filter(None, self.reply.split(".")):
            try:
                found = found[int(step)] if isinstance(found, list) else found[step]
            except (LookupError, TypeError, ValueError):
                raise self._refuse(
                    f"its response has no {step!r} of the path {self.reply!r}: {whole}"
                ) from None
        if found is not None and not isinstance(found, str):
            raise self._refuse(f"{self.reply!r} of its response is no text: {whole}")
        return found or ""

    def _refuse(self, problem: str) -> AgentError:
        return make_reply_error("endpoint", self.url, problem, "its address, request and reply")


def _fill(value: Any, messages: Sequence[BaseMessage], conversation: str) -> Any:  # noqa: ANN401
    """Return a part of a request with its values."""
    if value == "{messages}":
        found = convert_to_openai_messages([*messages])
        return [{"role": one["role"], "content": one["content"]} for one in found]
    if value == "{files}":
        files = files_of(messages[-1].content)
        return [f"data:{one['mime_type']};base64,{one['base64']}" for one in files]
    if isinstance(value, str):
        # In one step, since a message may contain the text of a placeholder.
        parts = value.split("{message}")
        said = messages[-1].text
        return said.join(part.replace("{conversation}", conversation) for part in parts)
    if isinstance(value, Mapping):
        return {key: _fill(one, messages, conversation) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_fill(one, messages, conversation) for one in value]
    return value
