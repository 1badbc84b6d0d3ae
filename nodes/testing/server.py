"""An OpenAI-compatible HTTP server that answers from a script, for testing with a real client.

A test can hold chosen calls, to kill or cancel the client while they are in flight.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...graphs.common.threads import in_thread
from ..models.client.origin import is_status_error
from .replies import Reply
from .script import Prompt, Script, ScriptExhaustedError, Tape, as_prompt
from .wire import completion, error_body, events, reply_error

try:
    import starlette.requests as http
    from starlette.responses import Response, StreamingResponse
    from starlette.types import Message, Receive, Scope, Send

    from .asgi import AppThread
except ImportError as error:
    raise ImportError(
        f"The scripted server needs more packages: install duologue[testing] ({error})"
    ) from error


@dataclass(eq=False)
class Request:
    """One HTTP request that a `ScriptedServer` received.

    Attributes:
        path: The path, such as `/v1/chat/completions`.
        headers: The headers, their names in lower case.
        body: The JSON body; `{}` where there is none.
        answered: Whether an answer, or an error, has been sent to its end.
    """

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    answered: bool = field(default=False, init=False)

    @property
    def prompt(self) -> Prompt:
        """The messages as a script's function sees them."""
        return as_prompt(self.body.get("messages", []))


class _Broken(Exception):  # noqa: N818  (no error: the script, or the end of the server, wants it)
    """The connection is to be closed before the end of an answer."""


class ScriptedServer:
    """A server on 127.0.0.1 that speaks OpenAI's chat completions from a script.

    It runs in a thread between `with` and its end, at a free port:

        with ScriptedServer(["Hello."]) as server:
            model = ChatOpenAI(base_url=server.url, api_key="any", model="scripted")
            assert model.invoke("Hi").content == "Hello."
        assert server.calls[0].prompt == [{"role": "user", "content": "Hi"}]

    Calls are the chat completions it accepts, numbered from 0 as they arrive; a client's retry is
    a further call. A request with a wrong key (401) or model (404) is only recorded. A used-up
    script and an exception in it are answered with 400, which clients don't retry.

    It needs the packages of the extra `testing`; without them, importing it says so.

    Args:
        script: Replies in the order of the calls, or a function from the messages to a reply, or
            from the messages and the `Request`, which does not tell what the call is for.
        models: The model ids that exist.
        api_key: The key clients must send; None accepts any.
        hold: Numbers of the calls to hold, as with the method `hold`.

    Attributes:
        requests: Every request so far, in order of arrival.

    Raises:
        TypeError: The script is neither a sequence of lines nor a function.
        OSError: There is no free port.
    """

    def __init__(
        self,
        script: Script,
        *,
        models: Sequence[str] = ("scripted",),
        api_key: str | None = None,
        hold: Iterable[int] = (),
    ) -> None:
        self.requests: list[Request] = []
        self._models = tuple(models)
        self._api_key = api_key
        self._tape = Tape[Request](script)
        self._changed = threading.Condition()
        self._held = set(hold)
        self._closing = False
        self._thread = AppThread(self._app)

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base URL for clients, `http://127.0.0.1:PORT/v1`."""
        return f"http://127.0.0.1:{self._thread.port}/v1"

    @property
    def calls(self) -> list[Request]:
        """The chat completions among the requests: `calls[n]` is call number n."""
        return self._tape.calls

    def hold(self, number: int) -> None:
        """Make a call wait before it is answered, until `release`.

        Args:
            number: The call's number, from 0; it has no effect on a call already answered.
        """
        with self._changed:
            self._held.add(number)

    def release(self) -> None:
        """Let every held call go on, and forget holds for calls still to come."""
        with self._changed:
            self._held.clear()
            self._changed.notify_all()

    def wait_for(self, count: int, timeout: float = 10) -> None:
        """Block until this many calls have arrived, held ones included.

        Args:
            count: The number of calls.
            timeout: The longest wait, in seconds.

        Raises:
            TimeoutError: Fewer calls arrived in that time; says how many.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.calls) >= count, timeout):
                raise TimeoutError(
                    f"{len(self.calls)} of {count} calls arrived within {timeout:g} seconds"
                )

    def close(self) -> None:
        """Stop the server at once, breaking every open connection, held ones included."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.close()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = http.Request(scope, receive)

        async def send_on(message: Message) -> None:
            # Set first: a client that has read the last byte must find it so.
            if message["type"] == "http.response.body" and not message.get("more_body"):
                request.answered = True
            await send(message)

        try:
            body = None
            with suppress(ValueError):
                body = await asked.json()
            request = Request(
                scope["path"], dict(asked.headers), body if isinstance(body, dict) else {}
            )
            response = await self._respond(asked.method, request)
            # uvicorn hears of a client that has left one round of the loop after its socket does.
            await asyncio.sleep(0)
            if not await asked.is_disconnected():
                await response(scope, receive, send_on)
        except _Broken:
            await self._thread.hang_up(asked)
        except (http.ClientDisconnect, asyncio.CancelledError):
            pass  # a client that leaves, or the end of the server: uvicorn would print them

    async def _respond(self, method: str, request: Request) -> Response:
        with self._changed:
            self.requests.append(request)
        key = request.headers.get("authorization", "")[len("Bearer ") :]
        if self._api_key not in (None, key):
            return _failed(401, "Incorrect API key provided.", "invalid_api_key")
        if (method, request.path) == ("GET", "/v1/models"):
            models = [
                {"id": model, "object": "model", "created": 0, "owned_by": "scripted"}
                for model in self._models
            ]
            return _json({"object": "list", "data": models})
        if (method, request.path) != ("POST", "/v1/chat/completions"):
            return _failed(404, f"There is no {method} {request.path}.", "unknown_url")
        if not isinstance(request.body.get("messages"), list):
            return _failed(400, "The body is not a JSON object with a list of messages.")
        if (model := request.body.get("model")) not in self._models:
            return _failed(404, f"The model `{model}` does not exist.", "model_not_found")
        with self._changed:
            number = self._tape.record(request)
            self._changed.notify_all()
        # A call may be held, and the script's function may wait.
        return await in_thread(self._complete, request, number)

    def _complete(self, request: Request, number: int) -> Response:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or number not in self._held)
        try:
            reply = self._tape.answer(number, request.prompt)
        except Exception as error:  # the client is told what a script raises
            return _raised(error)
        with self._changed:
            if self._changed.wait_for(lambda: self._closing, reply.delay):
                raise _Broken
        return _answer(reply, request, number)


def _answer(reply: Reply, request: Request, number: int) -> Response:
    if isinstance(reply.error, int):
        body, headers = reply_error(reply)
        return _json(body, reply.error, headers)
    broken, model = reply.error == "drop", request.body["model"]
    if request.body.get("stream"):
        options = request.body.get("stream_options") or {}
        with_usage = bool(options.get("include_usage"))
        said = events(reply, request.prompt, model, number, with_usage=with_usage)
        lines = [*map(json.dumps, said), *([] if broken else ["[DONE]"])]
        parts = _parts((f"data: {line}\n\n".encode() for line in lines), broken=broken)
        return StreamingResponse(parts, media_type="text/event-stream")
    whole = _json(completion(reply, request.prompt, model, number))
    if not broken:
        return whole
    half = bytes(whole.body[: len(whole.body) // 2])
    return StreamingResponse(_parts([half], broken=True), headers=whole.headers)


async def _parts(parts: Iterable[bytes], *, broken: bool) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    if broken:
        raise _Broken


def _json(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    # Not starlette's JSONResponse, which refuses NaN and lone surrogates.
    return Response(json.dumps(body), status, headers, "application/json")


def _failed(status: int, message: str, code: str | None = None) -> Response:
    return _json(error_body(status, message, code), status)


def _raised(error: Exception) -> Response:
    if is_status_error(error):
        return _failed(error.status_code, error.message, error.code)
    if isinstance(error, ScriptExhaustedError):
        return _failed(400, str(error), "script_exhausted")
    return _failed(400, f"{type(error).__name__}: {error}", "script_raised")
