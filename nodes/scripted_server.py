"""An OpenAI-compatible HTTP server that answers from a script, for testing through a real client.

It also lets a test hold chosen calls in flight, to kill or cancel the client meanwhile. The script
is in `script.py`, the bodies it sends in `script_wire.py`, the sockets in `script_http.py`.
"""

import threading
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from .models.client.origin import is_status_error
from .script import Script, ScriptExhaustedError, Tape
from .script_http import Connection, Gone, HttpServer, Request
from .script_wire import completion, error_body, events, reply_error

__all__ = ["Request", "ScriptedServer"]


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

    Args:
        script: Replies in the order of the calls, or a function from the messages to a reply.
        models: The model ids that exist.
        api_key: The key clients must send; None accepts any.
        hold: Numbers of the calls to hold, as with the method `hold`.

    Attributes:
        requests: Every request so far, in order of arrival.

    Raises:
        TypeError: The script is neither a sequence of lines nor a function.
        OSError: No port can be had.
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
        self._http = HttpServer(self._handle)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base URL for clients, `http://127.0.0.1:PORT/v1`."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def calls(self) -> list[Request]:
        """The chat completions among the requests: `calls[n]` is call number n."""
        return self._tape.calls

    def hold(self, number: int) -> None:
        """Makes a call wait before it is answered, until `release`.

        Args:
            number: The call's number, from 0; it has no effect on a call already answered.
        """
        with self._changed:
            self._held.add(number)

    def release(self) -> None:
        """Lets every held call go on, and forgets holds for calls still to come."""
        with self._changed:
            self._held.clear()
            self._changed.notify_all()

    def wait_for(self, count: int, timeout: float = 10) -> None:
        """Blocks until this many calls have arrived, held ones included.

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
        """Stops the server at once, breaking every open connection, held ones included."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()
        self._http.hang_up()

    def _handle(self, wire: Connection, request: Request) -> None:
        with self._changed:
            self.requests.append(request)
        path = request.path.partition("?")[0]
        if self._api_key not in (None, request.headers.get("authorization", "")[len("Bearer ") :]):
            wire.fail(request, 401, "Incorrect API key provided.", "invalid_api_key")
        elif (wire.command, path) == ("GET", "/v1/models"):
            models = [
                {"id": model, "object": "model", "created": 0, "owned_by": "scripted"}
                for model in self._models
            ]
            wire.send(request, 200, {"object": "list", "data": models})
        elif (wire.command, path) != ("POST", "/v1/chat/completions"):
            wire.fail(request, 404, f"There is no {wire.command} {path}.", "unknown_url")
        elif not isinstance(request.body.get("messages"), list):
            wire.fail(request, 400, "The body is not a JSON object with a list of messages.")
        elif (model := request.body.get("model")) not in self._models:
            wire.fail(request, 404, f"The model `{model}` does not exist.", "model_not_found")
        else:
            self._complete(wire, request)

    def _complete(self, wire: Connection, request: Request) -> None:
        with self._changed:
            number = self._tape.record(request)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closing or number not in self._held)
        prompt, model = request.prompt, request.body["model"]
        try:
            reply = self._tape.answer(number, prompt)
        except Exception as error:  # whatever a script raises is the client's to see
            wire.send(request, *_refused(error))
            return
        with self._changed:
            self._changed.wait_for(lambda: self._closing, reply.delay)
            if self._closing:
                raise Gone
        wire.check()
        drop = reply.error == "drop"
        if isinstance(reply.error, int):
            body, headers = reply_error(reply)
            wire.send(request, reply.error, body, headers)
        elif request.body.get("stream"):
            options = request.body.get("stream_options") or {}
            said = events(
                reply, prompt, model, number, with_usage=bool(options.get("include_usage"))
            )
            # A broken stream has its opening and half of the text, so that there is what to lose.
            sent = islice(said, 1 + len(reply.pieces) // 2) if drop else said
            wire.stream(request, sent, drop=drop)
        elif drop:
            wire.send_half(completion(reply, prompt, model, number))
        else:
            wire.send(request, 200, completion(reply, prompt, model, number))


def _refused(error: Exception) -> tuple[int, dict[str, Any]]:
    if is_status_error(error):
        return error.status_code, error_body(error.status_code, error.message, error.code)
    if isinstance(error, ScriptExhaustedError):
        return 400, error_body(400, str(error), "script_exhausted")
    return 400, error_body(400, f"{type(error).__name__}: {error}", "script_raised")
