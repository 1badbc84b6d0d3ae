"""The HTTP plumbing under `scripted_server.py`: connections, requests, bytes, hanging up.

What is answered to which request is decided in `scripted_server.py`.
"""

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, TypeAlias

from .script import Prompt, as_prompt
from .script_wire import error_body

# The base class knows datagrams too; here it is always a socket.
_Socket: TypeAlias = socket.socket | tuple[bytes, socket.socket]
_JOIN_SECONDS = 2.0  # only a script function that still runs makes a closing server wait so long


class Gone(Exception):  # noqa: N818  (no error: the connection ends without an answer)
    """The client has left, or the script wants the connection broken."""


@dataclass(eq=False)
class Request:
    """One HTTP request that a `ScriptedServer` received.

    Attributes:
        path: The path, such as `/v1/chat/completions`.
        headers: The headers, their names in lower case.
        body: The JSON body; `{}` where there is none.
    """

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    _answered: bool = field(default=False, init=False, repr=False)
    _last: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def answered(self) -> bool:
        """Whether the last byte of an answer, an error's included, has been sent."""
        with self._last:  # a client that has read the last byte must find True here
            return self._answered

    @property
    def prompt(self) -> Prompt:
        """The messages as a script's function sees them."""
        return as_prompt(self.body.get("messages", []))

    def finish(self, send: Callable[[bytes], object], last: bytes) -> None:
        """Sends the last bytes of the answer and marks the request as answered."""
        with self._last:
            send(last)
            self._answered = True


class Connection(BaseHTTPRequestHandler):
    """One client's connection, with what is needed to answer its requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body would wait 40 ms for the headers' receipt
    server: "HttpServer"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
        """Says nothing: a test's output is not the place."""

    def do_GET(self) -> None:
        """Answers one request."""
        self._serve()

    def do_POST(self) -> None:
        """Answers one request."""
        self._serve()

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        body: Any = None
        with contextlib.suppress(ValueError):
            body = json.loads(raw)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, headers, body if isinstance(body, dict) else {})
        self.server.answer(self, request)

    def check(self) -> None:
        """Raises `Gone` if the client has left, which a first write would not notice."""
        self.connection.setblocking(False)
        try:
            if not self.connection.recv(1, socket.MSG_PEEK):
                raise Gone
        except BlockingIOError:
            pass  # nothing to read: still there and waiting
        finally:
            self.connection.setblocking(True)

    def send(
        self,
        request: Request,
        status: int,
        body: dict[str, Any],
        headers: dict[str, str] | None = None,
    ) -> None:
        """Sends a whole JSON answer."""
        data = json.dumps(body).encode()
        self._begin(status, {"Content-Length": str(len(data)), **(headers or {})})
        self.wfile.write(data[:-1])
        request.finish(self.wfile.write, data[-1:])

    def send_half(self, body: dict[str, Any]) -> None:
        """Sends half of a JSON answer and breaks the connection."""
        data = json.dumps(body).encode()
        self._begin(200, {"Content-Length": str(len(data))})
        self.wfile.write(data[: len(data) // 2])
        raise Gone

    def fail(self, request: Request, status: int, message: str, code: str | None = None) -> None:
        """Sends an error in OpenAI's shape."""
        self.send(request, status, error_body(status, message, code))

    def stream(self, request: Request, events: Iterable[dict[str, Any]], *, drop: bool) -> None:
        """Sends server-sent events, then `[DONE]`; or breaks the connection instead of it."""
        self._begin(
            200, {"Transfer-Encoding": "chunked"}, content_type="text/event-stream; charset=utf-8"
        )
        for event in events:
            self.wfile.write(_framed(json.dumps(event)))
        if drop:
            raise Gone
        self.wfile.write(_framed("[DONE]"))
        request.finish(self.wfile.write, b"0\r\n\r\n")

    def _begin(
        self, status: int, headers: dict[str, str], content_type: str = "application/json"
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": content_type, **headers}.items():
            self.send_header(name, value)
        self.end_headers()


def _framed(event: str) -> bytes:
    part = f"data: {event}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(part), part)


class HttpServer(ThreadingTCPServer):
    """The listening socket and its connections, each in a thread.

    Args:
        answer: Called in a connection's thread with each of its requests.

    Raises:
        OSError: No port can be had.
    """

    request_queue_size = 128  # many clients at once are what load tests are about

    def __init__(self, answer: Callable[[Connection, Request], None]) -> None:
        self.answer = answer
        self._open: dict[_Socket, threading.Thread] = {}
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), Connection)

    def process_request(self, request: _Socket, client_address: object) -> None:
        """Serves one connection in a thread that can't outlive the process."""
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True
        )
        with self._lock:
            self._open[request] = thread
        thread.start()

    def shutdown_request(self, request: _Socket) -> None:
        """Ends one connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Breaks every open connection and waits for their threads."""
        with self._lock:
            threads = list(self._open.values())
            for connection in self._open:
                if isinstance(connection, socket.socket):
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(_JOIN_SECONDS)

    def handle_error(self, request: _Socket, client_address: object) -> None:
        """Is silent about clients that leave; anything else is a bug and is printed."""
        if not isinstance(sys.exception(), (Gone, OSError)):
            super().handle_error(request, client_address)
