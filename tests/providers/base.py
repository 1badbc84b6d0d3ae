"""The base of the fakes of the providers' APIs.

A fake checks a request as the provider does, and answers in the provider's form. One script serves
every API: its function sees the messages in OpenAI's form, and a reply of plain JSON becomes the
call of the tool that a request forces.

Each rule of a fake names its source: a page of the provider's documentation, a file of its client's
or server's repository, or a report that quotes the error.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Self, TypeVar

from starlette.responses import Response

from duologue.nodes.testing import Prompt, Reply, Script, ScriptedToolCall
from duologue.nodes.testing.script import completion, events, openai_call, usage
from duologue.nodes.testing.server import HttpServer, RefusedRequestError, Request

__all__ = ("RefusedRequestError", "usage")


class ProviderRequest(Request):
    """A request of a provider's API, as a script reads it."""

    @property
    def model(self) -> str:
        """The model that is asked."""
        return str(self.body["model"])

    @property
    def forced_tool(self) -> str | None:
        """The tool that must be called. If None, the model may answer in words."""
        choice = self.body.get("tool_choice")
        if isinstance(choice, dict):
            return str(choice["function"]["name"])
        if choice in ("required", "any"):
            return str(self.body["tools"][0]["function"]["name"])
        return None

    @property
    def tools(self) -> list[str]:
        """The names of the tools that are offered."""
        return [each["function"]["name"] for each in self.body.get("tools") or ()]


RequestT = TypeVar("RequestT", bound=ProviderRequest)


class FakeServer(HttpServer[RequestT]):
    """A fake of one provider's API.

    Attributes:
        refused: The text of each error that the API's rules caused, in order.
    """

    models: ClassVar[tuple[str, ...]] = ()
    """The models that exist."""

    def __init__(self, script: Script, **options: Any) -> None:
        super().__init__(script, **options)
        self.refused: list[str] = []

    def __enter__(self) -> Self:
        return super().__enter__()

    @property
    def url(self) -> str:
        """The base URL that the provider's client takes."""
        return self.origin

    def check_request(self, method: str, request: RequestT) -> object | None:
        """Check a request by the API's rules, and record a refusal."""
        try:
            return self.apply_rules(method, request)
        except RefusedRequestError as error:
            self.refused.append(error.message)
            raise

    def apply_rules(self, method: str, request: RequestT) -> object | None:
        """Check a request by the API's rules."""
        raise NotImplementedError

    def respond(self, reply: Reply, request: RequestT, number: int) -> Response:
        """Return the response for a reply as a model of this API would send it."""
        return super().respond(self.adapt_reply(reply, request, number), request, number)

    def adapt_reply(self, reply: Reply, request: RequestT, number: int) -> Reply:
        """Turn plain text into the call of the tool that the request forces."""
        name = request.forced_tool
        if name is None or reply.tool_calls or reply.error or reply.refusal is not None:
            return reply
        call = ScriptedToolCall(name=name, args=reply.text or "{}", id=f"forced{number:03}")
        return reply.model_copy(update={"text": "", "chunks": None, "tool_calls": (call,)})


class OpenAILikeServer(FakeServer[ProviderRequest]):
    """A fake of an API that answers in the form of OpenAI's Chat Completions."""

    request_type = ProviderRequest
    path = "/v1/chat/completions"
    reasoning_field: ClassVar[str | None] = None
    """The field of an answer with the model's thoughts. The thoughts are not shown if None."""
    always_sends_usage = False
    """Whether the last piece of a stream has the usage, even if the request does not ask for it."""

    @property
    def url(self) -> str:
        """The base URL that the provider's client takes."""
        return self.origin + self.path.removesuffix("/chat/completions")

    def apply_rules(self, method: str, request: ProviderRequest) -> object | None:
        """Check the path and the key, then the body."""
        if (method, request.path) != ("POST", self.path):
            raise RefusedRequestError(f"Not found: {method} {request.path}", status=404)
        if not request.headers.get("authorization", "").startswith("Bearer "):
            raise RefusedRequestError("Unauthorized", status=401)
        self.check_body(request.body)
        return None

    def check_body(self, body: dict[str, Any]) -> None:
        """Check a body by the API's rules."""
        raise NotImplementedError

    def adapt_reply(self, reply: Reply, request: ProviderRequest, number: int) -> Reply:
        """Move the model's thoughts to the API's field."""
        reply = super().adapt_reply(reply, request, number)
        if reply.reasoning and self.reasoning_field is None:
            return reply.model_copy(update={"reasoning": ""})
        return reply.model_copy(update={"reasoning_field": self.reasoning_field or "reasoning"})

    def render_answer(self, reply: Reply, request: ProviderRequest, number: int) -> object:
        """Return a `chat.completion`."""
        return completion(reply, request.prompt, request.model, number)

    def make_chunks(
        self, reply: Reply, request: ProviderRequest, number: int
    ) -> Iterator[dict[str, Any]]:
        """Yield the `chat.completion.chunk` objects of a stream."""
        options = request.body.get("stream_options") or {}
        with_usage = self.always_sends_usage or bool(options.get("include_usage"))
        return events(reply, request.prompt, request.model, number, with_usage=with_usage)

    def stream_answer(self, reply: Reply, request: ProviderRequest, number: int) -> Iterator[bytes]:
        """Yield the events of a stream."""
        yield from map(make_event, self.make_chunks(reply, request, number))
        if reply.error != "drop":
            yield b"data: [DONE]\n\n"

    def render_error(self, error: RefusedRequestError) -> object:
        """Return an error in OpenAI's form."""
        kind = "authentication_error" if error.status == 401 else "invalid_request_error"
        return {"error": {"type": kind, **fields_of(error)}}


def fields_of(error: RefusedRequestError) -> dict[str, Any]:
    """Return an error's text, the field that it names first, and its code."""
    named = re.search(r"'([a-z_]+)[^' ]*'", error.message)
    return {"message": error.message, "param": named and named[1], "code": error.code}


def make_event(data: object, event: str | None = None) -> bytes:
    """Return a server-sent event."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def text_of(parts: Iterable[dict[str, Any]] | str | None, key: str = "text") -> str:
    """Return the text of a message's content, in parts or whole."""
    if parts is None or isinstance(parts, str):
        return parts or ""
    return "".join(str(part[key]) for part in parts if part.get(key) is not None)


def make_message(
    role: str, text: str, calls: Iterable[tuple[str, str, object]] = ()
) -> dict[str, Any]:
    """Return a message in OpenAI's form, with tool calls of an id, a name and arguments."""
    made = [openai_call(each, name, json.dumps(args)) for each, name, args in calls]
    return {"role": role, "content": text, **({"tool_calls": made} if made else {})}


def make_result(call_id: str, text: str) -> dict[str, Any]:
    """Return a tool's result in OpenAI's form."""
    return {"role": "tool", "content": text, "tool_call_id": call_id}


def words_of(prompt: Prompt) -> int:
    """Return the words of a prompt, which count as its tokens."""
    return usage(Reply(), prompt)["prompt_tokens"]
