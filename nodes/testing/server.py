"""An OpenAI-compatible HTTP server that answers from a script, for testing with a real client.

Other servers derive from `HttpServer`, and define the form of their API. A test can hold chosen
calls, and kill or cancel the client while they are in flight.
"""

import asyncio
import json
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from ...graphs.common.errors import how_to_install
from ...graphs.common.threads import in_thread
from ..models.refusals import is_status_error
from .script import (
    Prompt,
    Reply,
    Script,
    ScriptExhaustedError,
    Tape,
    as_prompt,
    completion,
    error_body,
    events,
)

try:
    import starlette.requests as http
    import uvicorn
    from anyio.from_thread import start_blocking_portal
    from starlette.responses import Response, StreamingResponse
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    raise ImportError(
        f"the scripted server needs more packages ({error}); {how_to_install('testing')}"
    ) from error

_SECONDS_TO_CLOSE = 2.0  # reached only if the application does not notice that it is cancelled


class AppThread:
    """An application on a free port of 127.0.0.1, served from `start` to `close`.

    Raises:
        OSError: No port is free.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._stack = ExitStack()
        # With an explicit protocol, asyncio turns off Nagle's algorithm, which costs 40 ms per
        # answer.
        self._socket = self._stack.enter_context(socket.socket(proto=socket.IPPROTO_TCP))
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(128)
        self.port: int = self._socket.getsockname()[1]
        # A `log_config` would change the logging of the whole process.
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=3600,
        )
        self._uvicorn = uvicorn.Server(config)

    @property
    def connections(self) -> list[Any]:
        """The open connections, as uvicorn's protocol objects."""
        return list(self._uvicorn.server_state.connections)

    def start(self) -> None:
        """Start the thread."""
        portal = self._stack.enter_context(start_blocking_portal())
        # Cancelled, because uvicorn's own shutdown takes 0.2 s and waits for open connections.
        self._stack.callback(portal.start_task_soon(self._uvicorn.serve, [self._socket]).cancel)
        self._stack.callback(portal.call, self._break_connections)

    def close(self) -> None:
        """Break all connections and end the thread."""
        self._stack.close()

    async def hang_up(self, request: http.Request) -> None:
        """Close the connection of a request, and wait until the application is notified."""
        for connection in self.connections:
            if connection.client == request.scope["client"]:
                connection.transport.close()
        while (await request.receive())["type"] != "http.disconnect":
            pass

    async def _break_connections(self) -> None:
        for connection in self.connections:
            connection.transport.abort()
        if tasks := self._uvicorn.server_state.tasks:
            await asyncio.wait(tasks, timeout=_SECONDS_TO_CLOSE)


@dataclass(eq=False)
class Request:
    """One HTTP request that a `ScriptedServer` received.

    Attributes:
        path: The path, such as `/v1/chat/completions`.
        headers: The headers, with names in lower case.
        body: The JSON body. `{}` if there is none.
        answered: Whether the last byte of an answer, or of an error, has been sent.
    """

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    answered: bool = field(default=False, init=False)

    @property
    def prompt(self) -> Prompt:
        """The messages as a script's function receives them."""
        return as_prompt(self.body.get("messages", []))

    @property
    def streams(self) -> bool:
        """True if the client asks for a stream."""
        return bool(self.body.get("stream"))


class RefusedRequestError(Exception):
    """A request that a server answers with an HTTP error instead of a reply.

    Attributes:
        message: The text of the error, as the server sends it.
        code: The server's error code. None if the error has no code.
        status: The HTTP status.
    """

    def __init__(self, message: str, *, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status


RequestT = TypeVar("RequestT", bound=Request)


class _Broken(Exception):  # noqa: N818  (not an error: the script or a shutdown requests it)
    """A signal to close a connection before its answer is complete."""


class HttpServer(ABC, Generic[RequestT]):
    """A server on 127.0.0.1 that answers from a script while its `with` block is active.

    It runs in a thread. A subclass implements one API: the requests it accepts, and the form of its
    answers and errors.

    Args:
        script: Replies in the order of the calls, or a function from the messages to a reply, or
            from the messages and the request to a reply.
        hold: Numbers of the calls to delay until `release`, as the method `hold` does.

    Attributes:
        requests: Every request so far, in order of arrival.

    Raises:
        TypeError: The script is neither a sequence of answers nor a function, or one of its answers
            has a type that no script accepts.
        OSError: No port is free.
    """

    request_type: type[RequestT]
    """The class of the requests."""
    stream_type = "text/event-stream"
    """The media type of a streamed answer."""

    def __init__(self, script: Script, *, hold: Iterable[int] = ()) -> None:
        self.requests: list[RequestT] = []
        self._tape = Tape[RequestT](script)
        self._changed = threading.Condition()
        self._held = set(hold)
        self._closing = False
        self._thread = AppThread(self._app)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def origin(self) -> str:
        """The server's address without a path: `http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self._thread.port}"

    @property
    def calls(self) -> list[RequestT]:
        """The requests that reached the script, in order: `calls[n]` is call number n."""
        return self._tape.calls

    def hold(self, number: int) -> None:
        """Delay the answer to a call until `release`.

        Args:
            number: The call's number, from 0. A call that is already answered is not affected.
        """
        with self._changed:
            self._held.add(number)

    def release(self) -> None:
        """Answer every held call, and cancel the holds on later calls."""
        with self._changed:
            self._held.clear()
            self._changed.notify_all()

    def wait_for(self, count: int, timeout: float = 10) -> None:
        """Block until this many calls have arrived, held calls included.

        Args:
            count: The number of calls.
            timeout: The longest wait, in seconds.

        Raises:
            TimeoutError: Fewer calls arrived in time. The message contains their number.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.calls) >= count, timeout):
                raise TimeoutError(
                    f"{len(self.calls)} of {count} calls arrived within {timeout:g} seconds"
                )

    def close(self) -> None:
        """Stop the server at once and break every open connection, also those of held calls."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.close()

    @abstractmethod
    def check_request(self, method: str, request: RequestT) -> object | None:
        """Check a request before it becomes a call.

        Args:
            method: The HTTP method.
            request: The request.

        Returns:
            None if the script answers the request, or a JSON body if no script is needed.

        Raises:
            RefusedRequestError: The API refuses the request.
        """

    @abstractmethod
    def render_answer(self, reply: Reply, request: RequestT, number: int) -> object:
        """Return the JSON body of an answer that is not streamed."""

    @abstractmethod
    def stream_answer(self, reply: Reply, request: RequestT, number: int) -> Iterable[bytes]:
        """Return the parts of a streamed answer.

        If the reply breaks the connection, the parts end in the middle of the answer.
        """

    @abstractmethod
    def render_error(self, error: RefusedRequestError) -> object:
        """Return the JSON body of an error."""

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        http_request = http.Request(scope, receive)

        async def send_on(message: Message) -> None:
            # Set before the last byte is sent: a client that has read it must find `answered` true.
            if message["type"] == "http.response.body" and not message.get("more_body"):
                request.answered = True
            await send(message)

        try:
            body = None
            with suppress(ValueError):
                body = await http_request.json()
            request = self.request_type(
                scope["path"], dict(http_request.headers), body if isinstance(body, dict) else {}
            )
            response = await self._respond(http_request.method, request)
            # uvicorn notices a disconnected client one iteration of the event loop later than the
            # socket.
            await asyncio.sleep(0)
            if not await http_request.is_disconnected():
                await response(scope, receive, send_on)
        except _Broken:
            await self._thread.hang_up(http_request)
        except (http.ClientDisconnect, asyncio.CancelledError):
            pass  # the client disconnected, or the server closes; uvicorn would print either

    async def _respond(self, method: str, request: RequestT) -> Response:
        with self._changed:
            self.requests.append(request)
        try:
            body = self.check_request(method, request)
        except RefusedRequestError as error:
            return self._fail(error)
        if body is not None:
            return _json(body)
        with self._changed:
            number = self._tape.record(request)
            self._changed.notify_all()
        # A call may be held, and the script's function may block.
        return await in_thread(self._complete, request, number)

    def _complete(self, request: RequestT, number: int) -> Response:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or number not in self._held)
        try:
            reply = self._tape.answer(number, request.prompt)
        except Exception as error:  # the client receives any exception of the script as an error
            refused = RefusedRequestError(f"{type(error).__name__}: {error}", code="script_raised")
            if is_status_error(error):
                refused = RefusedRequestError(
                    error.message, code=error.code, status=error.status_code
                )
            elif isinstance(error, ScriptExhaustedError):
                refused = RefusedRequestError(str(error), code="script_exhausted")
            return self._fail(refused)
        with self._changed:
            if self._changed.wait_for(lambda: self._closing, reply.delay):
                raise _Broken
        return self.respond(reply, request, number)

    def respond(self, reply: Reply, request: RequestT, number: int) -> Response:
        """Return the response for a reply."""
        if isinstance(reply.error, int):
            headers = (
                {"Retry-After": f"{reply.retry_after:g}"} if reply.retry_after is not None else {}
            )
            message = reply.message or f"Scripted error {reply.error}"
            error = RefusedRequestError(message, code=reply.code, status=reply.error)
            body = self.render_error(error) if reply.body is None else reply.body
            return _json(body, reply.error, headers)
        broken = reply.error == "drop"
        if request.streams:
            parts = _parts(self.stream_answer(reply, request, number), broken=broken)
            return StreamingResponse(parts, media_type=self.stream_type)
        whole = _json(self.render_answer(reply, request, number))
        if not broken:
            return whole
        half = bytes(whole.body[: len(whole.body) // 2])
        return StreamingResponse(_parts([half], broken=True), headers=whole.headers)

    def _fail(self, error: RefusedRequestError) -> Response:
        return _json(self.render_error(error), error.status)


async def _parts(parts: Iterable[bytes], *, broken: bool) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    if broken:
        raise _Broken


def _json(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    # Starlette's JSONResponse refuses NaN and lone surrogates.
    return Response(json.dumps(body), status, headers, "application/json")


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
