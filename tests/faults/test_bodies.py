"""Each fault in a reply's HTTP body is reported in one sentence that names it."""

import asyncio
import gzip
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from duologue.graphs import stream
from duologue.graphs.events import ConversationEnded, Notice
from support.faulty_server import Body, FaultyServer, Sent

from .faulty_talk import EVENTS, TALK, error_of, set_up, streamed, whole

JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
GZIP = {"Content-Encoding": "gzip"}
LONG = "\x1b[31mno\x07" * 200_000


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(monkeypatch)


SAID: dict[str, tuple[Sent, str] | tuple[Sent, str, str]] = {
    # The error for a whole reply, and the error for a streamed reply if it differs.
    "page": (
        Sent(b"<html>Welcome\x1b[31m", headers={"Content-Type": "text/html"}),
        "the reply is not JSON: <html>Welcome\\x1b[31m",
    ),
    "no body": (Sent(), "(the reply is not JSON: empty); check its address"),
    "half of the JSON": (
        Sent(b'{"choices": [{"mess'),
        """the reply is not JSON: {"choices": [{"mess); check its address""",
    ),
    "nested too deep": (
        Sent(b"data: " + b"[" * 100_000 + b"\n\n", headers=EVENTS),
        "the reply is nested too deeply",
    ),
    "no gzip": (Sent(b"not packed", headers=GZIP), "sent a body that can't be decompressed"),
    "half of the gzip": (
        Sent(gzip.compress(b'{"choices": []}')[:-9], headers=GZIP),
        "sent an error instead of an answer: the reply contains no message",
    ),
    "too short": (
        Sent(raw=JSON + b'Content-Length: 90\r\n\r\n{"a'),
        "sent an incomplete HTTP answer (peer closed connection",
        "keeps closing the connection in mid-answer",
    ),
    "broken chunks": (
        Sent(raw=JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
        "sent an incomplete HTTP answer (illegal chunk header",
        "keeps closing the connection in mid-answer",
    ),
    "hanging up": (Sent(raw=b""), "sent an incomplete HTTP answer (Server disconnected"),
    "redirects in a circle": (
        Sent(status=307, headers={"Location": "/v1/chat/completions?key=x"}),
        "URL/v1 keeps redirecting (last to URL/v1/chat/completions); check its address",
    ),
    "redirect to nobody": (
        Sent(status=307, headers={"Location": "http://127.0.0.1:9/v1?secret=x"}),
        "redirects to http://127.0.0.1:9/v1, which can't be reached; ",
    ),
    "redirect to what is not there": (
        Sent(status=307, headers={"Location": "/nowhere"}),
        "redirects to URL/nowhere, which has no model 'drawn'",
    ),
    "redirect to no server": (
        Sent(status=307, headers={"Location": "ftp://127.0.0.1/v1"}),
        "redirects to ftp://127.0.0.1/v1, which is not an HTTP address",
    ),
    "redirect without an address": (Sent(status=302), "answered with an error (302)"),
    "no message": (
        Sent(b'{"choices": [], "created": 1}'),
        'an error instead of an answer: the reply contains no message: {"choices": [], "created": ',
    ),
    "no object": (
        Sent(b"data: [1]\n\n", headers=EVENTS),
        "(the reply is a list, not a JSON object); check its address, which usually ends in /v1",
    ),
    "refusal without a reason": (Sent(status=403), "refused the call (403); check the permissions"),
    "error with status 200": (
        Sent(b'{"error": {"message": "no room\\u001b[2J"}}'),
        "sent an error instead of an answer: no room\\x1b[2J",
    ),
}


@pytest.mark.part(3)
@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("run", [whole, streamed])
def test_what_was_wrong_with_a_body_is_told(
    name: str, run: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, *words = SAID[name]

    def answer(path: str, _: Body) -> Sent:
        return Sent(status=404) if path == "/nowhere" else sent

    said = error_of(answer, run, monkeypatch)
    assert words[0 if run is whole else -1] in said
    assert "\x1b" not in said


@pytest.mark.parametrize(
    "event",
    [
        b'event: error\ndata: {"message": "boom"}\n\n',
        b'data: {"object": "error", "message": "boom", "code": 500}\n\n',
        b'data: {"choices": [{"delta": {}, "error": {"message": "boom"}}]}\n\n',
    ],
)
def test_half_an_answer_is_none_where_the_server_fails(
    event: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Sent(_event({"content": "bean"}) + event + END, headers=EVENTS)
    said = error_of(lambda *_: sent, streamed, monkeypatch)
    assert said.endswith("sent an error instead of an answer: boom")


@pytest.mark.parametrize("run", [whole, streamed])
@pytest.mark.parametrize("body", [json.dumps({"error": {"message": LONG}}).encode(), LONG.encode()])
def test_a_long_error_is_cut_and_says_how_long_it_was(
    body: bytes, run: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = error_of(lambda *_: Sent(body, status=400), run, monkeypatch)
    assert said.startswith("the model server at URL/v1 answered with an error (400): \\x1b[31mno")
    assert said.endswith(f"({len(LONG):,} characters in all)")
    assert len(said) < 500
    assert said.isprintable()


async def _white_space() -> AsyncGenerator[bytes, None]:
    while True:
        yield b" "
        await asyncio.sleep(0.05)


async def _letters() -> AsyncGenerator[bytes, None]:
    yield b'data: {"a": "'
    while True:
        yield b"a"
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("run", [whole, streamed])
@pytest.mark.parametrize(
    "sent",
    [
        Sent(parts=_white_space),
        Sent(parts=_letters, headers=EVENTS),
        Sent(parts=_white_space, status=500),
        Sent(parts=_white_space, status=307, headers={"Location": "/v1"}),
        Sent(raw=b"HTTP/1.1 200 OK\r\nServer: ", parts=_white_space),
    ],
    ids=["white space", "a line", "an error", "a redirect", "a header"],
)
def test_a_reply_that_never_ends_is_waited_for_as_long_as_silence(
    sent: Sent, run: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUOLOGUE_TIMEOUT", "0.3")
    said = error_of(lambda *_: sent, run, monkeypatch)
    assert "did not answer in time; increase DUOLOGUE_TIMEOUT" in said


def _event(delta: Body, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": delta, **fields}
    return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()


END = _event({}, finish_reason="stop") + b"data: [DONE]\n\n"


async def _words() -> AsyncGenerator[bytes, None]:
    for _ in range(12):
        yield _event({"content": "bean "})
        await asyncio.sleep(0.1)
    yield END


async def _comments_first() -> AsyncGenerator[bytes, None]:
    for _ in range(12):
        yield b": at "
        await asyncio.sleep(0.1)
        yield b"work\n\n"
    yield _event({"content": "bean "}) + END


@pytest.mark.exhaustive
@pytest.mark.parametrize("parts", [_words, _comments_first])
def test_a_stream_may_take_longer_in_all_as_long_as_it_goes_on(
    parts: Callable[[], AsyncGenerator[bytes, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUOLOGUE_TIMEOUT", "1")
    with FaultyServer(lambda *_: Sent(parts=parts, headers=EVENTS)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        streamed()


async def _comments() -> AsyncGenerator[bytes, None]:
    while True:
        yield b": at work\n\n"
        await asyncio.sleep(0.02)


async def _silence() -> AsyncGenerator[bytes, None]:
    yield _event({"content": "bean "})
    await asyncio.Event().wait()


async def _hanging_up() -> AsyncGenerator[bytes, None]:
    yield _event({"content": "bean "})
    raise ConnectionError


@pytest.mark.parametrize(
    ("parts", "how"),
    [
        pytest.param(_comments, "sent only comments for 3 s", marks=pytest.mark.exhaustive),
        (_silence, "was silent for 0.3 s"),
        (_hanging_up, "stopped in mid-answer"),
    ],
)
def test_whoever_follows_is_told_why_a_model_is_asked_once_more(
    parts: Callable[[], AsyncGenerator[bytes, None]], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUOLOGUE_TIMEOUT", "0.3")
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "1")
    notices: list[str] = []

    def run() -> None:
        for event in stream(TALK, store="memory:faulty"):
            if isinstance(event, Notice):
                notices.append(event.text)

    error_of(lambda *_: Sent(parts=parts, headers=EVENTS), run, monkeypatch)
    assert notices == [f"drawn {how}: trying again"]


def test_the_last_usage_that_a_stream_tells_is_that_of_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def event(written: int, **delta: str) -> bytes:
        usage = {"prompt_tokens": 9, "completion_tokens": written}
        body = {"choices": [{"delta": delta}] if delta else [], "usage": usage}
        return f"data: {json.dumps(body)}\n\n".encode()

    pieces = (event(0, role="assistant"), event(1, content="be"), event(2, content="an"), event(2))
    with FaultyServer(lambda *_: Sent(b"".join(pieces) + END, headers=EVENTS)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        *_, ended = stream(TALK, store="memory:faulty")
    assert isinstance(ended, ConversationEnded)
    used = ended.usage["drawn"]
    assert (used.input_tokens, used.output_tokens) == (18, 4)
