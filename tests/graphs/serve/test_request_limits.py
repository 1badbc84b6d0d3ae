"""Limits of requests to served conversations, which protect the server's other clients."""

import asyncio
import json
import threading
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import Session, chat
from duologue.nodes.testing import Prompt, Reply
from support.files import PNG
from support.served import SESSION, Connection, hang_up, serve, turns

SERVER = "duologue.graphs.serve.chat_completions"


def text_parts(count: int) -> list[dict[str, str]]:
    return [{"type": "text", "text": "a"}] * count


def asking(content: object = "Hello", **fields: object) -> dict[str, Any]:
    return {"model": "bees", "messages": [{"role": "user", "content": content}], **fields}


def image_of(size: int) -> list[dict[str, Any]]:
    data = b64encode(PNG + bytes(size - len(PNG))).decode()
    return [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}]


def alternating(count: int) -> dict[str, Any]:
    return {"model": "bees", "messages": turns(*["Hi"] * count)}


def fields(count: int) -> dict[str, int]:
    return {f"f{number}": 1 for number in range(count)}


ACCEPTED: dict[str, object] = {
    "messages": alternating(999),
    "messages of one side": {"model": "bees", "messages": asking()["messages"] * 1000},
    "parts": asking(text_parts(400)),
    "text": asking("a" * 300_000),
    "escapes": json.dumps(asking('\u00e9\n"\\' * 75_000)).encode(),
    "file": asking(image_of(5_900_000)),
    "white space": json.dumps(alternating(999), indent=4).encode(),
    "brackets in a text": asking("[{,]}" * 60_000),
}
"""Requests at the limits."""

TOO_MUCH = {
    "messages": (alternating(1001), "messages: must be at most 1,000, not 1,001"),
    "parts": (asking(text_parts(401)), "messages: must have at most 400 parts together, not 401"),
    "parts of many messages": (
        {"model": "bees", "messages": asking(text_parts(2))["messages"] * 201},
        "messages: must have at most 400 parts together, not 402",
    ),
    "texts as parts": (asking(["a"] * 401), "messages: must have at most 400 parts"),
    "text": (asking("a" * 300_001), "messages: must have at most 300,000 characters of text"),
    "text of parts": (asking(["a" * 150_001] * 2), "messages: must have at most 300,000 char"),
    "text in a file": (
        asking(
            [
                {
                    "type": "file",
                    "base64": b64encode(b"a" * 300_001).decode(),
                    "mime_type": "text/plain",
                }
            ]
        ),
        "messages",
    ),
    "ligatures": (asking("\ufdfa" * 17_000), "messages: must have at most 300,000 characters"),
    "fields": (asking(**fields(99)), "the body must have at most 100 fields"),
    "options": (asking(stream_options=fields(101)), "the body must have at most 100 fields"),
}
"""Requests over a limit, with the beginning of their errors."""

VALUES = {
    "empty lists": b"[" + b",".join([b"[]"] * 70_000) + b"]",
    "objects": b"[" + b",".join([b"{}"] * 70_000) + b"]",
    "numbers": b"[" + b",".join([b"1"] * 101_000) + b"]",
    "a number": b"9" * 201_000,
    "deep lists": b"[" * 101_000 + b"]" * 101_000,
    "keys": b"{" + b",".join(b'"%d":1' % number for number in range(67_000)) + b"}",
    "one key": b"{" + b",".join([b'"a":1'] * 67_000) + b"}",
    "strings": b"[" + b",".join([b'""'] * 100_001) + b"]",
    "white space": b"1" + b" " * 200_001,
    # Each text looks as if it contained the values behind it.
    "after an escaped backslash": b'["\\\\",' + b",".join([b"[]"] * 70_000) + b"]",
    "after escaped quotes": b'["\\"\\\\\\"",' + b",".join([b"[]"] * 70_000) + b',""]',
    "an open string": b"[" + b"[]," * 70_000 + b'"',
}
"""JSON with so many values that reading it would take long."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ACCEPTED)
async def test_a_request_at_a_limit_is_answered(store: str, name: str) -> None:
    async with serve(store, ["They dance."], bees=chat()) as served:
        response = await served.post(ACCEPTED[name])
    assert response.status_code == 200, response.text


async def test_a_request_over_a_limit_is_refused_before_its_content_is_read(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []

    def note(message: object, *_: object) -> None:
        read.append(message)

    async with serve(store, [], bees=chat()) as served:
        for body, problem in TOO_MUCH.values():
            response = await served.post(body)
            assert response.status_code == 400
            assert response.json()["error"]["message"].startswith(problem)
        for reading in ("read_content", "validate"):
            monkeypatch.setattr(f"duologue.graphs.serve.openai_format.{reading}", note)
        for name in ("messages", "parts", "fields", "options"):
            assert (await served.post(TOO_MUCH[name][0])).status_code == 400
        monkeypatch.setattr(f"{SERVER}.read_request", note)
        for values in VALUES.values():
            for sent in (values, b'{"model": "bees", "messages": [], "user": %b}' % values):
                response = await served.post(sent)
                assert response.status_code == 400
                assert "more than 200,000 bytes outside its strings" in response.text
    assert read == served.model.calls == []


def test_the_page_names_the_limits_of_these_tests() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "studio.md").read_text(encoding="utf-8")
    for limit in (
        *("8,000,000 bytes", "300,000 characters of text", "1,000 messages", "400 parts"),
        *("200,000 bytes of JSON", "60 seconds"),
    ):
        assert limit in " ".join(page.split())


async def test_a_long_body_is_refused_before_all_of_it_arrives(store: str) -> None:
    async with serve(store, [], bees=chat()) as served:
        announced = Connection(served, **{"Content-Length": "8000001"})
        assert (await announced.status(), announced.received) == (413, 0)
        sent = Connection(served)
        for _ in range(9):
            sent.send(b" " * 1_000_000, more=True)
        assert (await sent.status(), sent.received) == (413, 9)
        assert b"The request is longer than 8,000,000 bytes" in sent.sent[1]["body"]


async def test_requests_whose_bodies_arrive_count_as_open(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{SERVER}._MOST_WAITING", 1)
    body = json.dumps(asking()).encode()
    async with serve(store, ["They dance."] * 3, most_runs=1, bees=chat()) as served:
        slow = [Connection(served) for _ in range(2)]
        for one in slow:
            await asyncio.wait_for(one.begins.wait(), 60)
        refused = Connection(served)
        assert (await refused.status(), refused.received) == (429, 0)
        for one in slow:
            one.send(body[:20], more=True)
            one.send(body[20:], more=False)
        assert [await one.status() for one in slow] == [200, 200]
        assert (await served.post(body)).status_code == 200


async def test_a_body_that_is_too_slow_or_never_complete_is_refused(
    store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(store, [], bees=chat()) as served:
        gone = Connection(served)
        gone.send(b"{", more=True)
        gone.leave()
        assert await gone.status() == 400
        limits: list[float | None] = []
        wait = asyncio.timeout

        def hurry(seconds: float | None) -> asyncio.Timeout:
            limits.append(seconds)
            return wait(0.05)

        monkeypatch.setattr(asyncio, "timeout", hurry)
        slow = Connection(served)
        slow.send(b"{", more=True)
        assert await slow.status() == 408
    assert (limits, caplog.records) == ([60], [])


async def test_large_conversations_run_apart_from_those_of_other_clients(store: str) -> None:
    loops: list[bool] = []

    def says(prompt: Prompt) -> Reply:
        loops.append(threading.current_thread() is threading.main_thread())
        return Reply(text=f"They dance {len(loops)} times.")

    async def runs_here(bodies: Iterable[object], **headers: str) -> list[bool]:
        loops.clear()
        for body in bodies:
            assert (await served.post(body, **headers)).status_code == 200
        return loops

    async with serve(store, says, bees=chat()) as served:
        assert await runs_here([asking(), alternating(31)]) == [True, True]
        assert await runs_here([asking("word " * 12_000), alternating(61)]) == [False, False]
        streamed = await served.post(asking("word " * 12_000, stream=True))
        assert "They dance 3 times." in "".join(
            json.loads(line[6:])["choices"][0]["delta"].get("content", "")
            for line in streamed.text.split("\n\n")
            if line.startswith("data: {")
        )
        started = await served.post(asking("word " * 5_000), **{SESSION: "new"})
        headers = {SESSION: started.headers[SESSION]}
        # A session becomes large with its messages.
        grows = await runs_here([asking(f"{n} " + "word " * 5_000) for n in range(2)], **headers)
        assert grows == [False, False]
    assert len(Session(started.headers[SESSION], store=store).state().messages) == 6


async def test_a_large_run_ends_if_its_client_has_gone(store: str) -> None:
    never = Reply(text="Later.", delay=3600)
    async with serve(store, [never, "They dance."], most_runs=1, bees=chat()) as served:
        body = json.dumps(asking("word " * 12_000)).encode()
        await hang_up(served, body)
        # With one run at a time, this would wait for the first.
        assert (await served.post(body)).status_code == 200
