"""An agent behind an A2A endpoint, as a function of the messages of one conversation."""

from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import uuid4

from langchain_core.messages import BaseMessage
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

from ...nodes.models.recorder import note_new_ids
from ..common.addresses import show_address
from ..common.errors import SpecError
from ..common.sanitize import excerpt

A2A: Final = "a2a:"
"""The beginning of the address of an A2A endpoint."""

_CONNECT_SECONDS: Final = 10.0
"""Maximum time in seconds until a connection to the endpoint is made."""

_ANSWERED: Final = ("completed", "input-required")
"""The states of a task that contains an answer."""


class _Message(BaseModel):
    """A message or an artifact."""

    parts: list[dict[str, Any]] = []


class _Status(BaseModel):
    """The status of a task. A message without a task counts as completed."""

    state: str = "completed"
    message: _Message | None = None


class _Result(_Message):
    """A message, or a task."""

    id: str | None = None
    context_id: str | None = Field(default=None, alias="contextId")
    status: _Status = _Status()
    artifacts: list[_Message] = []

    def texts(self) -> Iterator[str]:
        """Yield the texts of the artifacts of a task, or of its status, or of a message."""
        for part in (part for one in self._sources() for part in one.parts):
            if "text" in part:
                yield str(part["text"])
            elif isinstance(data := part.get("data"), dict):
                # LangGraph's servers send the value of an interrupt like this.
                value = data.get("value", data)
                yield value if isinstance(value, str) else to_json(value).decode()

    def _sources(self) -> Sequence[_Message]:
        if self.artifacts:
            return self.artifacts
        return [self if self.status.message is None else self.status.message]


class _Answer(BaseModel):
    """The answer to a request."""

    result: _Result


class A2aAgent:
    """An agent at an A2A endpoint. It keeps one conversation of the endpoint (its context).

    A task that requires input continues with the next message. Based on A2A 0.3, section 7.1
    (``message/send``), which waits for the end of the task.
    """

    __name__ = "A2A agent"

    def __init__(self, url: str) -> None:
        self._url = url
        self._continued: dict[str, str] = {}

    async def __call__(self, messages: Sequence[BaseMessage]) -> str:
        """Send the newest message, and return the text of the answer."""
        # Imported here, since most agents need no client.
        import httpx2

        message_id, request_id = uuid4().hex, uuid4().hex
        note_new_ids(message_id, request_id)
        part = {"kind": "text", "text": messages[-1].text}
        said = {"kind": "message", "role": "user", "messageId": message_id, "parts": [part]}
        params = {"message": said | self._continued, "configuration": {"blocking": True}}
        asked = {"jsonrpc": "2.0", "id": request_id, "method": "message/send", "params": params}
        # The simulation has a limit of its own for the time of a reply.
        limits = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        async with httpx2.AsyncClient(timeout=limits) as client:
            try:
                response = await client.post(self._url, json=asked)
            except httpx2.HTTPError as error:
                raise self._refuse(repr(error)) from error
        try:
            result = _Answer.model_validate_json(response.content).result
        except ValidationError:
            raise self._refuse(f"it answered {response.status_code} {response.text}") from None
        text = "\n".join(result.texts())
        if result.status.state not in _ANSWERED:
            raise self._refuse(f"its task is {result.status.state}: {text}")
        self._continued = {} if result.context_id is None else {"contextId": result.context_id}
        if result.status.state == "input-required" and result.id is not None:
            self._continued["taskId"] = result.id
        return text

    def _refuse(self, problem: str) -> SpecError:
        return SpecError(
            f"agent: the A2A endpoint {show_address(self._url)} does not reply: "
            f"{excerpt(problem)}; check its address and its log"
        )
