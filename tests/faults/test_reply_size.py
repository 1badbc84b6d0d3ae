"""A reply is read and unpacked up to a limit; beyond it, the call ends with one sentence."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import httpx2._decoders as decoders
import pytest
from langchain_core.messages import AIMessage
from langchain_core.utils.json import parse_partial_json

from duologue.graphs import (
    Batch,
    BatchRun,
    ModelError,
    Session,
    aconverse,
    astream,
    converse,
    load_conversation,
    run_batch,
    stream,
)
from duologue.graphs.events import ConversationEnded
from support.faulty_server import Body, FaultyServer, Sent

from .faulty_talk import EVENTS, SPEC, TALK, error_of, set_up, streamed, whole

LIMIT = 64 * 1024
WORDS = "sent a reply of more than 64.0 KiB; raise DUOLOGUE_MAX_REPLY_SIZE to read it"


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(monkeypatch, MAX_RETRIES="2", MAX_REPLY_SIZE="64KiB")


def reply(size: int, text: str = "Beans.") -> bytes:
    """Return a reply of this many bytes; white space around JSON has no meaning."""
    choice = {"message": {"content": text}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice]}).encode().ljust(size)


def event(text: str) -> bytes:
    return f"data: {json.dumps({'choices': [{'delta': {'content': text}}]})}\n\n".encode()


def events(size: int) -> bytes:
    """Return a streamed reply of this many bytes; a line that begins with a colon is a comment."""
    end = event("Beans.") + b"data: [DONE]\n\n"
    return b":".ljust(size - len(end) - 2, b".") + b"\n\n" + end


def deflated(body: bytes) -> bytes:
    return zlib.compress(body)


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "deflate": deflated,
    "gzip, gzip": lambda body: gzip.compress(gzip.compress(body)),
}


@pytest.mark.parametrize("coding", PACKED)
@pytest.mark.parametrize(
    ("run", "body", "headers"), [(whole, reply, {}), (streamed, events, EVENTS)]
)
def test_a_reply_may_have_as_many_bytes_as_the_limit_and_no_more(
    run: Callable[[], None],
    body: Callable[[int], bytes],
    headers: dict[str, str],
    coding: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Body] = []

    def answer(size: int) -> Callable[[str, Body], Sent]:
        packed = PACKED[coding](body(size))

        def sent(_: str, request: Body) -> Sent:
            asked.append(request)
            return Sent(packed, headers={**headers, "Content-Encoding": coding})

        return sent

    with FaultyServer(answer(LIMIT)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        run()
    asked.clear()
    assert error_of(answer(LIMIT + 1), run, monkeypatch) == f"the model server at URL/v1 {WORDS}"
    # The call is not repeated, because the next reply would be as long.
    assert len(asked) == 1


class Endless:
    """A body without an end, and the number of bytes sent."""

    def __init__(self, front: bytes, piece: bytes, pack: Callable[[], Any] | None = None) -> None:
        self._front, self._piece, self._pack = front, piece, pack
        self.sent = 0

    async def parts(self) -> AsyncGenerator[bytes, None]:
        packer = self._pack() if self._pack else None
        piece = self._front
        while True:
            packed = piece if packer is None else packer.compress(piece)
            self.sent += len(packed)
            if packed:
                yield packed
            piece = self._piece


FOREVER = [
    ("a text", reply(0)[:-30], b"bean " * 2000, {}, 200),
    ("white space", b"", b" " * 10_000, {}, 200),
    ("an event", b'data: {"choices": [{"delta": {"content": "', b"bean " * 2000, EVENTS, 200),
    ("tiny events", b"", event("bean ") * 100, EVENTS, 200),
    ("empty events", b"", b"data: {}\n\n" * 100, EVENTS, 200),
    ("comments", b"", b": at work\n\n" * 100, EVENTS, 200),
    ("lines", b"", b"\n" * 10_000, EVENTS, 200),
    ("an error", b'{"error": {"message": "', b"bean " * 2000, {}, 400),
    ("an error of the server", b"", b"bean " * 2000, {}, 500),
]


@pytest.mark.parametrize("run", [whole, streamed])
@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize(
    ("front", "piece", "headers", "status"),
    [row[1:] for row in FOREVER],
    ids=[row[0] for row in FOREVER],
)
def test_a_body_that_never_ends_is_read_up_to_the_limit(
    front: bytes,
    piece: bytes,
    headers: dict[str, str],
    status: int,
    coding: str,
    run: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "0")
    pack = None if coding == "identity" else lambda: zlib.compressobj(wbits=31)
    body = Endless(front, piece, pack)
    headers = {**headers, "Content-Encoding": coding}
    said = error_of(
        lambda *_: Sent(parts=body.parts, headers=headers, status=status), run, monkeypatch
    )
    what = "a reply" if status == 200 else f"an error ({status})"
    assert said == f"the model server at URL/v1 {WORDS.replace('a reply', what)}"
    # The sockets' buffers accept some MiB that are never read.
    assert body.sent < 64 * 2**20


def test_a_stream_that_goes_on_behind_its_end_is_read_up_to_the_limit_and_its_reply_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = Endless(event("Beans.") + b"data: [DONE]\n\n", b"x" * 10_000)
    with FaultyServer(lambda *_: Sent(parts=body.parts, headers=EVENTS)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        *_, ended = stream(TALK, store="memory:reply-size")
    assert isinstance(ended, ConversationEnded)
    assert body.sent < 64 * 2**20


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of the pieces that any decoder of httpx has unpacked."""
    sizes: list[int] = []

    def counting(kind: type[decoders.ContentDecoder]) -> type[decoders.ContentDecoder]:
        class Counting(kind):  # type: ignore[valid-type, misc]
            def decode(self, data: bytes) -> Iterator[bytes]:
                for piece in super().decode(data):
                    sizes.append(len(piece))
                    yield piece

        return Counting

    for coding in ("gzip", "deflate"):
        counted = counting(decoders.SUPPORTED_DECODERS[coding])
        monkeypatch.setitem(decoders.SUPPORTED_DECODERS, coding, counted)
    return sizes


@pytest.mark.parametrize("run", [whole, streamed])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "gzip, gzip"])
@pytest.mark.parametrize("status", [200, 500])
def test_a_small_body_that_unpacks_to_a_huge_one_is_stopped_while_unpacking(
    status: int,
    coding: str,
    run: Callable[[], None],
    unpacked: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "0")
    packed = PACKED[coding](reply(40 * 2**20))
    assert len(packed) < LIMIT
    sent = Sent(packed, headers={"Content-Encoding": coding}, status=status)
    assert "of more than 64.0 KiB" in error_of(lambda *_: sent, run, monkeypatch)
    # One piece of httpx is unpacked; for "gzip, gzip" the packed body is unpacked before it.
    assert 0 < sum(unpacked) < 2 * 2**20


def test_a_layer_that_unpacks_to_another_layer_is_limited_too(
    unpacked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The inner layer is huge and unpacks to nothing: it repeats deflate's empty block.
    empty = zlib.compressobj(wbits=31)
    inner = empty.flush(zlib.Z_SYNC_FLUSH) + b"\0\0\0\xff\xff" * 4_000_000
    sent = Sent(gzip.compress(inner), headers={"Content-Encoding": "gzip, gzip"})
    assert WORDS in error_of(lambda *_: sent, whole, monkeypatch)
    assert sum(unpacked) < 2 * 2**20


def test_a_body_that_is_packed_too_many_times_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "0")
    sent = Sent(reply(0), headers={"Content-Encoding": ", ".join(["gzip"] * 500)})
    said = error_of(lambda *_: sent, whole, monkeypatch)
    assert said.endswith(
        "sent a body that can't be decompressed (it has 500 layers of compression); try again"
    )


@pytest.mark.parametrize(
    "sent",
    [
        Sent(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n"),
        Sent(reply(LIMIT + 1), status=307, headers={"Location": "/v1/chat/completions"}),
    ],
    ids=["an announced size, before the body is read", "a redirect"],
)
def test_other_replies_are_limited_too(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    assert WORDS in error_of(lambda *_: sent, whole, monkeypatch)


@pytest.mark.exhaustive
async def test_other_coroutines_go_on_while_a_reply_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DUOLOGUE_MAX_REPLY_SIZE", "4MiB")
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async def ask_streaming() -> None:
        async for _ in astream(TALK, store="memory:reply-size"):
            pass

    body = Endless(b"", event("bean " * 2000))
    with FaultyServer(lambda *_: Sent(parts=body.parts, headers=EVENTS)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        for asking in (aconverse(TALK, store="memory:reply-size"), ask_streaming()):
            counting = asyncio.create_task(count())
            with pytest.raises(ModelError, match=r"more than 4\.0 MiB"):
                await asking
            counting.cancel()
            # The loop runs at least once per read from a socket.
            assert rounds > 4 * 2**20 // 2**18
            rounds = 0


LONG = 9_000
"""Number of characters of a call's arguments in pieces; JSON repair tries at most 4,000."""


@pytest.mark.part(1)
@pytest.mark.parametrize("size", [3, 1000, LONG])
def test_a_streamed_call_with_long_broken_arguments_is_kept_and_not_mended(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mended: list[int] = []

    def counting(text: str, **options: bool) -> object:
        mended.append(len(text))
        return parse_partial_json(text, **options)

    monkeypatch.setattr("langchain_core.messages.ai.parse_partial_json", counting)
    arguments = '{"expression": "2 * 3"' + "beans" * LONG
    pieces = [arguments[at : at + size] for at in range(0, LONG, size)]
    calls: list[Body] = [
        {"index": 0, "id": "c", "function": {"name": "calculator", "arguments": ""}}
    ]
    calls += [{"index": 0, "function": {"arguments": piece}} for piece in pieces]
    deltas = [{"choices": [{"delta": {"tool_calls": [call]}}]} for call in calls]
    lines = "".join(f"data: {json.dumps(delta)}\n\n" for delta in deltas)
    sent = iter([lines.encode() + b"data: [DONE]\n\n", *[events(200)] * 9])
    speakers = [{"name": "Ann", "tools": ["calculator"]}, {"name": "Bob"}]
    talk = load_conversation({**SPEC, "speakers": speakers})
    monkeypatch.setenv("DUOLOGUE_MAX_REPLY_SIZE", "1MiB")
    with FaultyServer(lambda *_: Sent(next(sent), headers=EVENTS)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        *_, ended = stream(talk, store=f"memory:broken-{size}", session="s")
    assert isinstance(ended, ConversationEnded)
    assert max(mended, default=0) <= 4_000
    [broken] = [
        call
        for message in Session("s", store=f"memory:broken-{size}").state().messages
        if isinstance(message, AIMessage)
        for call in message.invalid_tool_calls
    ]
    assert broken["args"] == "".join(pieces)


@pytest.mark.exhaustive
def test_the_pieces_of_a_long_stream_are_joined_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [f"{number} " for number in range(1_301)]
    lines = b"".join(map(event, words)) + b"data: [DONE]\n\n"
    monkeypatch.setenv("DUOLOGUE_MAX_REPLY_SIZE", "1MiB")
    with FaultyServer(lambda *_: Sent(lines, headers=EVENTS)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        list(stream(TALK, store="memory:pieces", session="s"))
    (_, said), *_ = Session("s", store="memory:pieces").state().transcript
    assert said.split() == "".join(words).split()


def test_a_session_goes_on_behind_a_reply_that_was_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = LIMIT + 1
    with FaultyServer(lambda *_: Sent(reply(size))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with pytest.raises(ModelError, match=WORDS):
            converse(TALK, store="memory:reply-size", session="s")
        # The setting is read at each run.
        monkeypatch.setenv("DUOLOGUE_MAX_REPLY_SIZE", str(size))
        assert Session("s", store="memory:reply-size").resume().outcome is not None


def test_a_batch_goes_on_behind_a_reply_that_was_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(_: str, body: Body) -> Sent:
        return Sent(reply(LIMIT + 1 if "tulips" in json.dumps(body) else 0))

    batch = Batch(conversation=SPEC, vary={"task": TASKS})
    with FaultyServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        status = run_batch(batch, name="b", store="memory:reply-size")
        url = server.url
    assert (status.finished, status.failed, status.stopped) == (2, 1, None)
    rows = BatchRun("b", store="memory:reply-size").rows()
    assert [row["error"] for row in rows if row["error"]] == [f"the model server at {url} {WORDS}"]


TASKS = ["Plan beans.", "Plan tulips.", "Plan a lawn."]
