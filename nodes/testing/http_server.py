"""An HTTP server that answers from a script. Its subclasses define the form of the API.

A test can hold chosen calls, and kill or cancel the client while they are in flight.
"""

import asyncio
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from ...graphs.common.errors import how_to_install
from ...graphs.common.threads import in_thread
from ..models.refusals import is_status_error
from .script import Prompt, Reply, Script, ScriptExhaustedError, Tape, as_prompt

try:
    import starlette.requests as http
    from starlette.responses import Response, StreamingResponse
    from starlette.types import Message, Receive, Scope, Send

    from .asgi import AppThread
except ImportError as error:
    raise ImportError(
        f"the scripted server needs more packages ({error}); {how_to_install('testing')}"
    ) from error


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
            return self._failed(error)
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
            return self._failed(_raised(error))
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

    def _failed(self, error: RefusedRequestError) -> Response:
        return _json(self.render_error(error), error.status)


async def _parts(parts: Iterable[bytes], *, broken: bool) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    if broken:
        raise _Broken


def _json(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    # Starlette's JSONResponse refuses NaN and lone surrogates.
    return Response(json.dumps(body), status, headers, "application/json")


def _raised(error: Exception) -> RefusedRequestError:
    if is_status_error(error):
        return RefusedRequestError(error.message, code=error.code, status=error.status_code)
    if isinstance(error, ScriptExhaustedError):
        return RefusedRequestError(str(error), code="script_exhausted")
    return RefusedRequestError(f"{type(error).__name__}: {error}", code="script_raised")
