"""An OpenAI-compatible HTTP server that answers from a script, for testing with a real client."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .http_server import HttpServer, RefusedRequestError, Request
from .script import Reply, Script
from .wire import completion, error_body, events

__all__ = ["Request", "ScriptedServer"]


class ScriptedServer(HttpServer[Request]):
    """A server on 127.0.0.1 that answers OpenAI's Chat Completions from a script.

    It runs in a thread, at a free port, as long as the `with` block is active:

        with ScriptedServer(["Hello."]) as server:
            model = ChatOpenAI(base_url=server.url, api_key="any", model="scripted")
            assert model.invoke("Hi").content == "Hello."
        assert server.calls[0].prompt == [{"role": "user", "content": "Hi"}]

    A call is a Chat Completions request that the server accepts. Calls are numbered from 0, in the
    order in which they arrive; a client's retry is a further call. A request with a wrong key (401)
    or model (404) is recorded in `requests` but is not a call.
    If the script has no reply left, or raises an exception, the server answers 400, which clients
    do not retry. An exception with an HTTP status, such as `openai.RateLimitError`, keeps its
    status.

    The server needs the packages of the extra `testing`. Without them, importing this module raises
    an ImportError that names the extra.

    Args:
        script: Replies in the order of the calls, or a function from the messages to a reply, or
            from the messages and the `Request` to a reply. A `Request` has no `purpose`.
        models: The ids of the models that the server offers.
        api_key: The key that clients must send. If None, any key is accepted.
        hold: Numbers of the calls to delay until `release`, as the method `hold` does.

    Attributes:
        requests: Every request so far, in order of arrival.

    Raises:
        TypeError: The script is neither a sequence of answers nor a function, or one of its answers
            has a type that no script accepts.
        OSError: No port is free.
    """

    request_type = Request

    def __init__(
        self,
        script: Script,
        *,
        models: Sequence[str] = ("scripted",),
        api_key: str | None = None,
        hold: Iterable[int] = (),
    ) -> None:
        super().__init__(script, hold=hold)
        self._models = tuple(models)
        self._api_key = api_key

    @property
    def url(self) -> str:
        """The base URL for clients, `http://127.0.0.1:PORT/v1`."""
        return f"{self.origin}/v1"

    def check_request(self, method: str, request: Request) -> object | None:
        """Check a request's key, path and model."""
        key = request.headers.get("authorization", "")[len("Bearer ") :]
        if self._api_key not in (None, key):
            raise RefusedRequestError(
                "Incorrect API key provided.", code="invalid_api_key", status=401
            )
        if (method, request.path) == ("GET", "/v1/models"):
            about = {"object": "model", "created": 0, "owned_by": "scripted"}
            return {"object": "list", "data": [{"id": model, **about} for model in self._models]}
        if (method, request.path) != ("POST", "/v1/chat/completions"):
            raise RefusedRequestError(
                f"There is no {method} {request.path}; this server answers only GET /v1/models and "
                "POST /v1/chat/completions.",
                code="unknown_url",
                status=404,
            )
        if not isinstance(request.body.get("messages"), list):
            raise RefusedRequestError("The body is not a JSON object with a list of messages.")
        if (model := request.body.get("model")) not in self._models:
            raise RefusedRequestError(
                f"The model `{model}` does not exist.", code="model_not_found", status=404
            )
        return None

    def render_answer(self, reply: Reply, request: Request, number: int) -> object:
        """Return a `chat.completion` object."""
        return completion(reply, request.prompt, request.body["model"], number)

    def stream_answer(self, reply: Reply, request: Request, number: int) -> Iterator[bytes]:
        """Yield the events of a stream of `chat.completion.chunk` objects."""
        options = request.body.get("stream_options") or {}
        parts = events(
            reply,
            request.prompt,
            request.body["model"],
            number,
            with_usage=bool(options.get("include_usage")),
        )
        for event in parts:
            yield f"data: {json.dumps(event)}\n\n".encode()
        if reply.error != "drop":
            yield b"data: [DONE]\n\n"

    def render_error(self, error: RefusedRequestError) -> dict[str, Any]:
        """Return the body of an error in OpenAI's form."""
        return error_body(error.status, error.message, error.code)
