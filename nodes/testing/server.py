"""An OpenAI-compatible HTTP server that answers from a script, for testing with a real client."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .http_server import HttpServer, Request
from .model_families import RefusedRequestError
from .openai_requests import check_chat_request
from .replies import Reply
from .script import Script
from .wire import completion, error_body, events

__all__ = ["Request", "ScriptedServer"]


class ScriptedServer(HttpServer[Request]):
    """A server on 127.0.0.1 that speaks OpenAI's chat completions from a script.

    It runs in a thread between `with` and its end, at a free port:

        with ScriptedServer(["Hello."]) as server:
            model = ChatOpenAI(base_url=server.url, api_key="any", model="scripted")
            assert model.invoke("Hi").content == "Hello."
        assert server.calls[0].prompt == [{"role": "user", "content": "Hi"}]

    Calls are the chat completions it accepts, numbered from 0 as they arrive; a client's retry is
    a further call. A request with a wrong key (401) or model (404), or that a strict server
    refuses (400), is only recorded. A used-up script and an exception in it are answered with 400,
    which clients don't retry.

    It needs the packages of the extra `testing`; without them, importing it says so.

    Args:
        script: Replies in the order of the calls, or a function from the messages to a reply, or
            from the messages and the `Request`, which does not tell what the call is for.
        models: The model ids that exist.
        api_key: The key clients must send; None accepts any.
        hold: Numbers of the calls to hold, as with the method `hold`.
        strict: Whether to refuse what OpenAI refuses: unknown parameters, wrong types, tool calls
            without results, parameters that the requested model does not support. A model's name,
            such as `"gpt-5"`, applies that model's rules to every model.

    Attributes:
        requests: Every request so far, in order of arrival.

    Raises:
        TypeError: The script is neither a sequence of lines nor a function.
        OSError: There is no free port.
    """

    request_type = Request

    def __init__(
        self,
        script: Script,
        *,
        models: Sequence[str] = ("scripted",),
        api_key: str | None = None,
        hold: Iterable[int] = (),
        strict: bool | str = False,
    ) -> None:
        super().__init__(script, hold=hold)
        self._models = tuple(models)
        self._api_key = api_key
        self._strict = strict

    @property
    def url(self) -> str:
        """The base URL for clients, `http://127.0.0.1:PORT/v1`."""
        return f"{self.origin}/v1"

    def check_request(self, method: str, request: Request) -> object | None:
        """Check a request: its key, its path, its model and, if strict, all of its body."""
        key = request.headers.get("authorization", "")[len("Bearer ") :]
        if self._api_key not in (None, key):
            raise RefusedRequestError(
                "Incorrect API key provided.", code="invalid_api_key", status=401
            )
        if (method, request.path) == ("GET", "/v1/models"):
            return {"object": "list", "data": [_described(model) for model in self._models]}
        if (method, request.path) != ("POST", "/v1/chat/completions"):
            raise RefusedRequestError(
                f"There is no {method} {request.path}.", code="unknown_url", status=404
            )
        if not isinstance(request.body.get("messages"), list):
            raise RefusedRequestError("The body is not a JSON object with a list of messages.")
        if (model := request.body.get("model")) not in self._models:
            raise RefusedRequestError(
                f"The model `{model}` does not exist.", code="model_not_found", status=404
            )
        if self._strict:
            rules_of = self._strict if isinstance(self._strict, str) else model
            check_chat_request(request.body, rules_of)
        return None

    def render_answer(self, reply: Reply, request: Request, number: int) -> object:
        """Return a `chat.completion`."""
        return completion(reply, request.prompt, request.body["model"], number)

    def stream_answer(self, reply: Reply, request: Request, number: int) -> Iterator[bytes]:
        """Yield the events of a stream of `chat.completion.chunk`."""
        options = request.body.get("stream_options") or {}
        said = events(
            reply,
            request.prompt,
            request.body["model"],
            number,
            with_usage=bool(options.get("include_usage")),
        )
        for event in said:
            yield f"data: {json.dumps(event)}\n\n".encode()
        if reply.error != "drop":
            yield b"data: [DONE]\n\n"

    def render_error(self, error: RefusedRequestError) -> dict[str, Any]:
        """Return an error in OpenAI's form."""
        body = error_body(error.status, error.message, error.code)
        return {"error": {**body["error"], "param": error.param}}


def _described(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": "scripted"}
