"""HTTP requests of agents in this process: their recording, their replay, and refused calls.

VCR.py patches the clients httpx, httpx2, requests, urllib3, http.client, aiohttp, httplib2, tornado
and boto3. This module decides which requests are recorded, without headers that could contain keys,
and finds the recorded response.
"""

import json
import logging
import os
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import BaseModel, Field

from ...nodes.models.recorder import is_calling_model
from ..common.errors import DuologueError, SpecError, how_to_install
from ..common.secrets_filter import SecretsFilter

_SHOWN: Final = 60
"""Number of characters of a text that an error shows around the first difference."""


def describe_difference(recorded: object, now: object, path: str = "") -> str:
    """Return the path and the two values of the first difference between two values of JSON."""
    match recorded, now:
        case dict(), dict():
            for name in dict.fromkeys((*recorded, *now)):
                if recorded.get(name) != now.get(name):
                    inner = f"{path}.{name}" if path else str(name)
                    return describe_difference(recorded.get(name), now.get(name), inner)
        case list(), list():
            for place, (one, other) in enumerate(zip(recorded, now, strict=False)):
                if one != other:
                    return describe_difference(one, other, f"{path}.{place}")
            if len(recorded) != len(now):
                return f"{path} has {len(now)} entries instead of {len(recorded)}"
        case str(), str():
            pairs = enumerate(zip(recorded, now, strict=False))
            short = min(len(recorded), len(now))
            place = next((at for at, (one, other) in pairs if one != other), short)
            start = max(0, place - _SHOWN // 3)
            cut = "…" if start else ""
            texts = [f"{cut}{text[start : start + _SHOWN]}" for text in (now, recorded)]
            return f"{path} is {texts[0]!r} instead of {texts[1]!r}"
    return f"{path} is {_shorten(now)} instead of {_shorten(recorded)}"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# VCR.py logs the address of each request, with its keys.
logging.getLogger("vcr").setLevel(logging.WARNING)

Report = Callable[[str], DuologueError]
"""Notes a difference from the recording. Returns the error to raise."""

_RESPONSE_HEADERS: Final = (
    *("content-type", "location", "link", "retry-after", "etag", "mcp-session-id"),
)
"""The headers of responses that are recorded. Others can contain keys, cookies or accounts."""


class Exchange(BaseModel):
    """A recorded request with its response."""

    method: str
    """The method, such as ``POST``."""
    url: str
    """The URL, without secrets."""
    body: Any = None
    """The body: the value of JSON, a text, or binary data in base64. None if it is empty."""
    status: int = 200
    """The status of the response."""
    reason: str = ""
    """The reason phrase of the response."""
    headers: dict[str, list[str]] = Field(default_factory=dict)
    """The headers of the response that clients need."""
    text: str | None = None
    """The text of the response. None if it is binary."""
    base64: str | None = None
    """The binary data of the response. None if it is text."""

    @property
    def request(self) -> dict[str, Any]:
        """Return the parts by which a request is found."""
        return {"method": self.method, "url": self.url, "body": self.body}


@dataclass
class HttpTape:
    """The HTTP requests of one simulation."""

    exchanges: list[Exchange]
    """The recorded requests. The list grows unless it is replayed."""
    is_replay: bool
    """Whether the recorded responses are replayed."""
    secrets: SecretsFilter
    """The filter of everything that is written or compared."""
    allowed: Sequence[str]
    """Hosts whose requests are neither recorded nor refused."""
    report: Report
    """Notes a difference from the recording."""
    ids: Mapping[str, str]
    """The names of ids that are new in each run, by which requests are compared."""
    _played: set[int] = field(default_factory=set)

    def describe(self, request: Any) -> dict[str, Any] | None:  # noqa: ANN401
        """Return the parts of a request of VCR.py, without secrets. None if it is not recorded."""
        if is_calling_model() or urlsplit(request.uri).hostname in self.allowed:
            return None
        self.secrets.headers(request.headers)
        # The ids are replaced first: the filter hides ids in addresses, which look random.
        sent = json.dumps({"url": request.uri, "body": _read_body(request.body)})
        for one, name in self.ids.items():
            sent = sent.replace(one, name)
        found = json.loads(sent)
        url, body = self.secrets.address(found["url"]), self.secrets.plain(found["body"])
        return {"method": request.method, "url": url, "body": body}

    def record(self, request: Mapping[str, Any], response: Mapping[str, Any]) -> None:
        """Record a response of a server, in VCR.py's form."""
        content: bytes = response["body"]["string"] or b""
        headers = {
            name.lower(): values if isinstance(values, list | tuple) else [values]
            for name, values in response["headers"].items()
        }
        is_json = "json" in str(headers.get("content-type", ""))
        kept = {
            name: [self.secrets.text(str(one)) for one in headers[name]]
            for name in _RESPONSE_HEADERS
            if name in headers
        }
        written: dict[str, Any] = {}
        try:
            written["text"] = self._filter_text(content.decode(), is_json=is_json)
        except UnicodeDecodeError:
            written["base64"] = b64encode(self.secrets.binary(content)).decode()
        status = response["status"]
        written |= {"status": status["code"], "reason": status["message"] or "", "headers": kept}
        self.exchanges.append(Exchange(**request, **written))

    def _filter_text(self, text: str, *, is_json: bool) -> str:
        if is_json:
            try:
                filtered = self.secrets.plain(found := json.loads(text))
            except ValueError:
                return self.secrets.text(text)
            return text if filtered == found else json.dumps(filtered, ensure_ascii=False)
        return self.secrets.text(text)

    def find(self, request: Mapping[str, Any]) -> int:
        """Return the place of the recorded request that is equal and was not replayed yet.

        Raises:
            RecordingError: There is none.
        """
        left = [place for place in range(len(self.exchanges)) if place not in self._played]
        same = next((one for one in left if self.exchanges[one].request == request), None)
        if same is not None:
            return same
        called = f"{request['method']} {request['url']}"
        if not left:
            raise self.report(f"the request {called} was not recorded")
        near = [one for one in left if self.exchanges[one].url == request["url"]] or left
        differs = describe_difference(self.exchanges[near[0]].request, request)
        raise self.report(f"the request {called} differs from request {near[0] + 1}: {differs}")

    def play(self, place: int) -> dict[str, Any]:
        """Return a recorded response in VCR.py's form."""
        self._played.add(place)
        found = self.exchanges[place]
        content = b64decode(found.base64) if found.base64 else (found.text or "").encode()
        return {
            "status": {"code": found.status, "message": found.reason},
            "headers": {**found.headers},
            "body": {"string": content},
            "url": found.url,
        }

    def check_end(self) -> None:
        """Raise RecordingError if recorded requests were not sent again."""
        for place, one in enumerate(self.exchanges):
            if place not in self._played:
                raise self.report(f"request {place + 1} ({one.method} {one.url}) is no longer sent")


def _read_body(body: object) -> Any:  # noqa: ANN401  # a value of JSON
    """Return the body of a request as a value of JSON."""
    if hasattr(body, "read"):
        body = body.read()
    elif not isinstance(body, str | bytes | bytearray) and hasattr(body, "__iter__"):
        body = b"".join(part.encode() if isinstance(part, str) else part for part in body)
    if not body:
        return None
    data = body.encode() if isinstance(body, str) else bytes(body)  # type: ignore[call-overload]
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
    try:
        return json.loads(text)
    except ValueError:
        pairs = parse_qsl(text, keep_blank_values=True)
        is_form = bool(pairs) and len(urlencode(pairs)) == len(text)
        return {"form": dict(pairs)} if is_form else text


def patch_clients(tape: HttpTape) -> AbstractContextManager[object]:
    """Return a context manager that records or replays the requests of this process.

    Raises:
        SpecError: VCR.py is not installed.
    """
    # Imported here, since it is optional and patches nothing until it is used.
    try:
        from vcr.cassette import Cassette
        from vcr.filters import decode_response
        from vcr.record_mode import RecordMode
        from vcr.request import Request
    except ImportError as error:
        raise SpecError(f"--simulate-record: needs VCR.py; {how_to_install('testing')}") from error

    class RecordedRequests(Cassette):  # type: ignore[misc]  # VCR.py has no types
        """The requests of one simulation, in its recording instead of a file of VCR.py."""

        def _load(self) -> None:
            self.rewound = True

        def _save(self, force: bool = False) -> None:
            pass

        def filter_request(self, request: Request) -> Request | None:
            return None if tape.describe(request) is None else request

        def can_play_response_for(self, request: Request) -> bool:
            described = tape.describe(request)
            return tape.is_replay and described is not None and tape.find(described) >= 0

        def play_response(self, request: Request) -> dict[str, Any]:
            return tape.play(tape.find(tape.describe(request) or {}))

        def append(self, request: Request, response: dict[str, Any]) -> None:
            described = tape.describe(request)
            if described is not None:
                tape.record(described, decode_response(response))

    mode = RecordMode.NONE if tape.is_replay else RecordMode.ALL
    patched: AbstractContextManager[object] = RecordedRequests.use(path="", record_mode=mode)
    return patched


_refused: list[tuple[frozenset[str], Report]] = []
"""The replays that refuse calls, at most one, with the allowed hosts and programs."""

_has_hook = False


@contextmanager
def refusing_calls(allowed: Sequence[str], report: Report) -> Iterator[None]:
    """Refuse connections and new processes of Python code inside the block, in all threads.

    Code in other languages that opens connections by itself, such as gRPC, is not noticed.

    Args:
        allowed: The hosts and programs that are not refused.
        report: Returns the error to raise.
    """
    global _has_hook
    if not _has_hook:
        # Hooks can't be removed. This one does nothing outside of such blocks.
        sys.addaudithook(_check_event)
        _has_hook = True
    local = {"127.0.0.1", "::1"} if "localhost" in allowed else set[str]()
    _refused.append((frozenset({*allowed, *local}), report))
    try:
        yield
    finally:
        _refused.pop()


def _check_event(event: str, args: tuple[Any, ...]) -> None:
    if not _refused or event not in _DESCRIPTIONS or _is_library_call():
        return
    allowed, report = _refused[-1]
    name, description = _DESCRIPTIONS[event](args)
    if name not in allowed:
        problem = report(f"a replay without calls was asked to {description}")
        # Clients close what they have opened if this error is one of the system.
        raise ConnectionRefusedError(str(problem)) from problem


_MACHINE: Final = ("platform", "uuid", "ctypes.util", "distro.distro")
"""The modules that start programs such as ``uname`` or ``lsb_release`` to describe this machine.
Clients send such a description: OpenAI's calls ``platform.platform()``."""

_PAIRS: Final = ("socketpair", "_fallback_socketpair")
"""The functions of `socket` that connect two sockets of this process, on Windows."""


def _is_library_call() -> bool:
    """Return whether Python's library makes the current call for itself, and reaches no server."""
    frame = sys._getframe(2)
    if frame.f_globals.get("__name__") == "socket":
        return frame.f_code.co_name in _PAIRS
    while frame.f_back is not None and frame.f_globals.get("__name__") in ("subprocess", "os"):
        frame = frame.f_back
    return frame.f_globals.get("__name__") in _MACHINE


def _describe_connection(args: tuple[Any, ...]) -> tuple[str, str]:
    address = args[1]
    if isinstance(address, tuple):
        return str(address[0]), f"connect to {address[0]}:{address[1]}"
    return str(address), f"connect to {address!r}"


def _describe_program(args: tuple[Any, ...]) -> tuple[str, str]:
    program = args[0] if args[0] else (args[1] or [""])[0]
    name = PurePath(str(program)).name
    return name, f"start the program {name!r}"


_DESCRIPTIONS: Final[Mapping[str, Callable[[tuple[Any, ...]], tuple[str, str]]]] = {
    "socket.connect": _describe_connection,
    "subprocess.Popen": _describe_program,
    "os.posix_spawn": _describe_program,
    "os.system": lambda args: _describe_program(tuple(os.fsdecode(args[0]).split()[:1])),
}
"""The events of Python that are refused: https://docs.python.org/3/library/audit_events.html"""
