"""An agent at an A2A endpoint: versions 0.3 and 1.0 of the protocol, over JSON-RPC.

The request is of version 0.3 until the endpoint refuses it as an unknown method or version. Answers
of both versions are read. The reply that the user reads is, in this order: the question of a task
that requires input or the reason of one that is rejected, its artifacts, the message of its status,
the agent's message in its history after the user's last one.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat, takewhile
from typing import Annotated, Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

from langchain_core.messages import BaseMessage
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, field_validator
from pydantic_core import to_json

from ...nodes.models.recorder import note_new_ids
from ..common.content import files_of, name_of_file
from ..common.errors import AgentError
from .http_agent import make_reply_error, open_client

A2A: Final = "a2a:"
"""The beginning of the address of an A2A endpoint."""

_POLL_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Times in seconds between questions about a task that is not finished. The last one repeats."""

_REFUSED_VERSIONS: Final = (-32601, -32009)
"""Codes of errors: unknown method, and version that is not supported."""

_RUNNING: Final = ("submitted", "working")
"""The states of a task that is not finished."""

_ASKING: Final = ("input-required", "auth-required")
"""The states of a task that the next message continues."""

_ANSWERED: Final = ("completed", "rejected", *_ASKING)
"""The states of a task that contains a reply."""

_LANGGRAPH: Final = re.compile(r"(?P<root>.*)/a2a/(?P<name>[^/]+)/?")
"""The path of an assistant's endpoint on a LangGraph server, which accepts only ids."""


Many = TypeVar("Many")

_List: TypeAlias = Annotated[list[Many], BeforeValidator(lambda given: given or [])]
"""A list. A server may send null for an empty one."""


class _Message(BaseModel):
    """A message or an artifact."""

    role: str = ""
    parts: _List[dict[str, Any]] = []

    def text(self) -> str:
        """Return the texts of the parts. A file is described."""
        return "\n".join(filter(None, map(_read_part, self.parts)))


class _Status(BaseModel):
    """The status of a task."""

    state: str
    message: _Message | None = None

    @field_validator("state")
    @classmethod
    def _of_version_1(cls, state: str) -> str:
        return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


class _Task(BaseModel):
    """A task."""

    id: str | None = None
    context_id: str | None = Field(default=None, alias="contextId")
    status: _Status
    artifacts: _List[_Message] = []
    history: _List[_Message] = []

    def text(self) -> str:
        """Return the reply. Empty if there is none."""
        message = "" if self.status.message is None else self.status.message.text()
        artifacts = "\n".join(filter(None, (one.text() for one in self.artifacts)))
        asks = self.status.state != "completed"
        # Earlier messages of the agent are replies to earlier messages of the user.
        new = takewhile(lambda one: "user" not in one.role.lower(), reversed(self.history))
        said = (one.text() for one in new if "agent" in one.role.lower())
        return (message if asks else "") or artifacts or message or next(said, "")


class _Reply(_Message):
    """A message that is a reply without a task."""

    context_id: str | None = Field(default=None, alias="contextId")
    parts: list[dict[str, Any]]


class _Error(BaseModel):
    """An error of JSON-RPC."""

    code: int
    message: str = ""


class _Answer(BaseModel):
    """The answer to a request. Version 1.0 names the kind of result."""

    result: Mapping[str, Any] | None = None
    error: _Error | None = None

    def read(self) -> _Task | _Reply:
        """Return the task or the message.

        Raises:
            ValidationError: The answer contains neither.
        """
        found = self.result or {}
        task = found.get("task", found if "status" in found else None)
        if task is not None:
            return _Task.model_validate(task)
        return _Reply.model_validate(found.get("message", found))


def _make_old_parts(message: BaseMessage) -> Iterator[dict[str, Any]]:
    """Yield the text and the files of a message, in the form of version 0.3."""
    for part in _make_parts(message):
        if "text" in part:
            yield {"kind": "text", **part}
        else:
            names = {"bytes": "raw", "mimeType": "mediaType", "name": "filename"}
            file = {old: part[new] for old, new in names.items() if new in part}
            yield {"kind": "file", "file": file}


def _make_parts(message: BaseMessage) -> Iterator[dict[str, Any]]:
    """Yield the text and the files of a message, in the form of version 1.0."""
    files = files_of(message.content)
    if message.text or not files:
        yield {"text": message.text}
    for file in files:
        name = name_of_file(file)
        named = {} if name is None else {"filename": name}
        yield {"raw": file["base64"], "mediaType": file["mime_type"], **named}


def _read_part(part: Mapping[str, Any]) -> str:
    """Return a part of a message as text."""
    if "text" in part:
        return str(part["text"])
    if (data := part.get("data")) is not None:
        # LangGraph's servers send the value of an interrupt like this.
        value = data.get("value", data) if isinstance(data, Mapping) else data
        return value if isinstance(value, str) else to_json(value).decode()
    # Version 0.3 has an object for the file.
    file = part.get("file")
    fields = file if isinstance(file, Mapping) else part
    names = ("name", "filename", "uri", "url", "mimeType", "mediaType")
    return f"[file {next((fields[one] for one in names if fields.get(one)), 'without a name')}]"


class A2aAgent:
    """An agent at an A2A endpoint. It keeps one conversation of the endpoint (its context).

    A task that requires input continues with the next message.
    """

    __name__ = "A2A agent"

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_version_1 = False
        self._continued: dict[str, str] = {}

    async def __call__(self, messages: Sequence[BaseMessage]) -> str:
        """Send the newest message, wait for the end of the task, and return the reply."""
        message_id = uuid4().hex
        note_new_ids(message_id)
        async with open_client() as client:
            found = await self._send(client, messages[-1], message_id)
            for seconds in chain(_POLL_SECONDS, repeat(_POLL_SECONDS[-1])):
                if isinstance(found, _Reply) or found.status.state not in _RUNNING:
                    break
                await asyncio.sleep(seconds)
                found = self._read(await self._ask(client, "get", {"id": found.id}))
        self._continued = {} if found.context_id is None else {"contextId": found.context_id}
        if isinstance(found, _Task):
            if found.status.state not in _ANSWERED:
                raise self._refuse(
                    f"its task is {found.status.state}: {found.text() or 'no reason'}"
                )
            if found.status.state in _ASKING and found.id is not None:
                self._continued["taskId"] = found.id
        return found.text()

    async def _send(self, client: Any, given: BaseMessage, message_id: str) -> _Task | _Reply:  # noqa: ANN401
        """Send a message, in version 1.0 if the endpoint refuses 0.3, and by the assistant's id."""
        said = {"messageId": message_id, **self._continued}
        old = {"kind": "message", "role": "user", "parts": [*_make_old_parts(given)]}
        new = {"role": "ROLE_USER", "parts": [*_make_parts(given)]}
        is_found = False
        while True:
            message = said | (new if self._is_version_1 else old)
            wait: Any = {"returnImmediately": False} if self._is_version_1 else {"blocking": True}
            response = await self._ask(client, "send", {"message": message, "configuration": wait})
            try:
                error = _Answer.model_validate_json(response.content).error
            except ValidationError:
                error = None
            if error is not None and error.code in _REFUSED_VERSIONS and not self._is_version_1:
                self._is_version_1 = True
            elif response.is_success and error is None:
                return self._read(response)
            elif not is_found and (url := await self._find_assistant(client)) is not None:
                self._url, is_found = url, True
            else:
                raise self._refuse(f"it answered {response.status_code} {response.text}")

    async def _ask(self, client: Any, act: str, params: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Send a request, and return the response."""
        import httpx2

        request_id = uuid4().hex
        note_new_ids(request_id)
        methods = {"send": ("message/send", "SendMessage"), "get": ("tasks/get", "GetTask")}
        method = methods[act][self._is_version_1]
        asked = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        headers = {"A2A-Version": "1.0"} if self._is_version_1 else {}
        try:
            return await client.post(self._url, json=asked, headers=headers)
        except httpx2.HTTPError as error:
            raise self._refuse(repr(error)) from error

    def _read(self, response: Any) -> _Task | _Reply:  # noqa: ANN401
        try:
            return _Answer.model_validate_json(response.content).read()
        except ValidationError:
            raise self._refuse(f"it answered {response.status_code} {response.text}") from None

    async def _find_assistant(self, client: Any) -> str | None:  # noqa: ANN401
        """Return the address of a LangGraph server's assistant that the path names, or None."""
        parts = urlsplit(self._url)
        found = _LANGGRAPH.fullmatch(parts.path)
        if found is None or _is_uuid(found["name"]):
            return None
        import httpx2

        search = urlunsplit(parts._replace(path=f"{found['root']}/assistants/search"))
        try:
            response = await client.post(search, json={"graph_id": found["name"], "limit": 1})
            (assistant,) = response.json()
            name = str(assistant["assistant_id"])
        except (httpx2.HTTPError, ValueError, TypeError, KeyError):
            return None
        path = f"{found['root']}/a2a/{name}"
        return urlunsplit(parts._replace(path=path)) if _is_uuid(name) else None

    def _refuse(self, problem: str) -> AgentError:
        return make_reply_error("A2A endpoint", self._url, problem, "its address and its log")


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
