"""The local page: its access control, its lists, its pages and its actions."""

import asyncio
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from duologue.graphs import (
    Conversation,
    MaxMessages,
    Result,
    Session,
    Speaker,
    chat,
    converse,
)
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from pages import HOSTILE
from support.files import PNG, block_of
from support.html import Seen
from support.served import ORIGIN, PORT, TOKEN, view
from support.stores import BatchRow, CellRow, open_store
from support.tables import read_rows

COOKIE = f"duologue-view-{PORT}"
OPEN = {"token": TOKEN}


SECURE = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@pytest.fixture
def store(request: pytest.FixtureRequest) -> str:
    return f"memory:{abs(hash(request.node.nodeid))}"


@pytest.fixture
def model() -> ScriptedChatModel:
    return ScriptedChatModel(script=["Mint grows in shade.", "Sage does not."])


@pytest.fixture
def stranger(store: str, model: ScriptedChatModel) -> Iterator[TestClient]:
    """Yield a client without a cookie."""
    with view(store, model) as client:
        yield client


@pytest.fixture
def user(stranger: TestClient) -> TestClient:
    """Return a client that has opened the address with the token."""
    assert stranger.get("/", params=OPEN).status_code == 200
    stranger.headers["Origin"] = ORIGIN
    return stranger


def sums(store: str, session: str = "sums", **call: Any) -> None:
    """Create a session that waits for a decision on a call."""
    called = ScriptedToolCall(name="calculator", args={"expression": "2*3"} | call, id="c1")
    model = ScriptedChatModel(script=[Reply(tool_calls=[called])])
    talk = chat("How many?", tools=["calculator"], interrupt_on={"calculator": True})
    converse(talk, session=session, store=store, model=model)


def shade(store: str, session: str = "shade") -> None:
    """Create a session that waits for the user's message."""
    converse(chat(), session=session, store=store, model=ScriptedChatModel(script=[]))


def question(store: str, session: str) -> str:
    return Session(session, store=store).state().pending[0].id


def test_the_token_is_exchanged_for_a_cookie_that_no_script_and_no_other_site_has(
    stranger: TestClient,
) -> None:
    opened = stranger.get("/sessions/x", params=OPEN)
    cookie = opened.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {*cookie.split("; ")}
    assert TOKEN not in cookie + opened.text
    assert 'content="0; url=/sessions/x"' in opened.text
    assert stranger.get("/").status_code == 200


@pytest.mark.part(5)
@pytest.mark.parametrize("path", ["/", "/sessions/shade", "/sessions/shade/events", "/nowhere"])
@pytest.mark.parametrize(
    ("token", "cookie"), [("", ""), (TOKEN[:-1], ""), (f"{TOKEN} ", "x"), ("ü", TOKEN)]
)
def test_nobody_reads_without_the_token(
    stranger: TestClient, store: str, path: str, token: str, cookie: str
) -> None:
    shade(store)
    stranger.cookies.set(COOKIE, cookie)
    refused = stranger.get(path, params={"token": token})
    assert (refused.status_code, refused.headers.get("set-cookie")) == (401, None)
    assert "shade" not in refused.text


@pytest.mark.parametrize("act", ["answer", "stop"])
def test_nobody_writes_without_the_cookie_even_by_the_token(
    stranger: TestClient, store: str, act: str
) -> None:
    shade(store)
    sent = stranger.post(
        f"/sessions/shade/{act}",
        params=OPEN,
        headers={"Origin": ORIGIN},
        data={"question": question(store, "shade"), "text": "exit"},
    )
    assert sent.status_code == 401
    assert Session("shade", store=store).state().pending


@pytest.mark.part(3)
@pytest.mark.parametrize("headers", read_rows(__file__, "other_pages"))
def test_what_another_page_sends_does_nothing(
    user: TestClient, store: str, headers: dict[str, str]
) -> None:
    shade(store)
    for act in ("answer", "stop"):
        form = {"question": question(store, "shade"), "text": "exit"}
        sent = user.post(f"/sessions/shade/{act}", data=form, headers=headers)
        assert sent.status_code == 403
    assert Session("shade", store=store).state().pending
    del user.headers["Origin"]
    assert user.post("/sessions/shade/stop").status_code == 403


def test_another_page_can_link_here_but_not_load_what_is_here(user: TestClient) -> None:
    for site in ("cross-site", "same-site"):
        assert user.get("/", headers={"Sec-Fetch-Site": site}).status_code == 403
        visit = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
        assert user.get("/", headers=visit).status_code == 200


@pytest.mark.parametrize("host", read_rows(__file__, "other_hosts"))
def test_a_name_that_was_pointed_here_gets_nowhere(user: TestClient, host: str) -> None:
    opened = f"/?{urlencode(OPEN)}"
    for method, path in (("GET", "/"), ("GET", opened), ("POST", "/sessions/x/stop")):
        refused = user.request(method, path, headers={"Host": host, "Origin": f"http://{host}"})
        assert (refused.status_code, refused.headers.get("set-cookie")) == (421, None)


def test_no_answer_may_be_kept_framed_or_read_elsewhere(user: TestClient, store: str) -> None:
    shade(store)
    for path in ("/", "/sessions/shade", "/nowhere", "/sessions/unknown", "/sessions/a%20b"):
        headers = user.get(path, headers={"Origin": "http://evil.example"}).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert {name: headers[name] for name in SECURE} == SECURE
        assert not [name for name in headers if name.startswith("access-control")]


def test_what_is_not_there_is_said(user: TestClient) -> None:
    for path in ("/nowhere", "/sessions/unknown", "/sessions/a%20b", "/sessions/unknown/events"):
        assert user.get(path).status_code == 404
    assert user.get("/sessions/unknown/stop").status_code == 405
    assert user.get("/?after=%5B1&show=%3Cb%3E").status_code == 200


@pytest.mark.part(2)
@pytest.mark.parametrize("first", range(5))
def test_hostile_texts_stay_texts(user: TestClient, store: str, first: int) -> None:
    text = "\n\n".join(HOSTILE[first::5])
    talk = Conversation(
        title=" ".join("".join(one if one.isprintable() else " " for one in text).split()),
        task=text,
        speakers=[{"name": "Ann", "replies": [{"kind": "human"}]}, {"name": "Ben"}],
    )
    converse(talk, session="s", store=store, model=ScriptedChatModel(script=[]))
    sums(store, expression=text, **{text: text})
    lot(store, "\n".join(HOSTILE))
    sessions = ("/", f"/?{urlencode({'q': text, 'show': text})}", "/sessions/s", "/sessions/sums")
    batches = ("/batches", "/batches/lot", "/batches/lot?status=%3Cb%3E&after=%5B-1%5D")
    for path in (*sessions, *batches):
        page = Seen(user.get(path).text)
        # All elements are those of the page itself, without images, frames or foreign links.
        assert not page.all("img") + page.all("iframe") + page.all("base") + page.all("object")
        assert len(page.all("script")) <= 1
        assert not [name for _, found in page.tags for name in found if name.startswith("on")]
        for link in page.all("a"):
            assert (link["href"] or "").startswith(("/", "#", "http://", "https://", "mailto:"))


def test_sessions_are_listed_searched_and_filtered_page_by_page(
    user: TestClient, store: str
) -> None:
    sums(store)

    async def plan() -> None:
        async with open_store(store) as opened:
            for number in range(60):
                async with opened.lock(f"plan-{number}") as held:
                    await held.add(title=f"Plan {number}", spec="{}")
                    await held.finish("max_iterations")

    asyncio.run(plan())

    def listed(path: str) -> tuple[list[str], str]:
        links = [str(one["href"]) for one in Seen(user.get(path).text).all("a")]
        sessions = [one.removeprefix("/sessions/") for one in links if "/sessions/" in one]
        return sessions, next((one for one in links if "after=" in one), "")

    first, older = listed("/")
    assert first == [f"plan-{number}" for number in range(59, 9, -1)]
    rest, end = listed(older)
    assert rest == [*(f"plan-{number}" for number in range(9, -1, -1)), "sums"]
    assert end == ""
    assert listed("/?q=pLAN+7")[0] == ["plan-7"]
    assert listed("/?show=waiting")[0] == ["sums"]
    assert listed("/?show=max_iterations&q=plan-3")[0][-1] == "plan-3"
    found, older = listed("/?show=max_iterations&q=plan")
    assert len(found) == 50
    assert len(listed(older)[0]) == 10
    assert listed("/?show=quit")[0] == []


def test_the_list_shows_message_counts_and_the_origin_of_forks(
    user: TestClient, store: str
) -> None:
    talk = Conversation("Plan", [Speaker("Ann"), Speaker("Ben")], end_chat=MaxMessages(3))
    converse(talk, session="garden", store=store, model=ScriptedChatModel(["A.", "B.", "C."]))
    Session("garden", store=store).fork(at="m0001", into="other")
    shade(store)
    listed = re.findall(r'<a href="/sessions/(\w+)">(.*?)</a>', user.get("/").text, re.DOTALL)
    shown = {session: " ".join(re.sub("<.*?>", "", text).split()) for session, text in listed}
    assert "finished: max messages garden 3 messages" in shown["garden"]
    assert "unfinished other fork of garden 1 message 2" in shown["other"]
    assert "waiting shade 0 messages" in shown["shade"]
    page = user.get("/sessions/other").text
    assert 'fork of <a href="/sessions/garden"><bdi>garden</bdi></a>' in page
    assert "fork of" not in user.get("/sessions/garden").text


def test_an_answer_is_given_and_the_session_goes_on(user: TestClient, store: str) -> None:
    shade(store)
    assert 'name="text"' in user.get("/sessions/shade").text
    form = {"question": question(store, "shade"), "text": "What grows\r\nin shade?"}
    assert user.post("/sessions/shade/answer", data=form).headers["location"] == (
        "/sessions/shade#questions"
    )
    result = Session("shade", store=store).state()
    said = [("User", "What grows\nin shade?"), ("Assistant", "Mint grows in shade.")]
    assert result.transcript == said
    # The old question is not answered twice.
    user.post("/sessions/shade/answer", data=form)
    assert "this question was already answered" in user.get("/sessions/shade").text
    assert len(Session("shade", store=store).state().transcript) == 2
    leave = {"question": question(store, "shade"), "leave": "1"}
    user.post("/sessions/shade/answer", data=leave)
    outcome = Session("shade", store=store).state().outcome
    assert outcome is not None
    assert outcome.reason.value == "quit"


@pytest.mark.part(3)
@pytest.mark.parametrize(("fields", "result"), read_rows(__file__, "decisions"))
def test_a_call_of_a_tool_is_decided(
    user: TestClient, store: str, fields: dict[str, str], result: str
) -> None:
    sums(store)
    user.post("/sessions/sums/answer", data={"question": question(store, "sums")} | fields)
    tool = next(one for one in Session("sums", store=store).state().messages if one.type == "tool")
    assert result in tool.text


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        *read_rows(__file__, "wrong_decisions"),
        ({"decision0": "edit", "args0": "[" * 100_000}, "are not valid JSON"),
    ],
)
def test_what_does_not_fit_is_said_and_the_question_stays(
    user: TestClient, store: str, fields: dict[str, str], problem: str
) -> None:
    sums(store)
    asked = question(store, "sums")
    user.post("/sessions/sums/answer", data={"question": asked} | fields)
    page = user.get("/sessions/sums").text
    assert problem in page
    assert asked in page
    too_long = user.post("/sessions/sums/answer", data={"text0": "x" * 1_000_001})
    assert too_long.status_code == 413


def more_sums(store: str) -> Result:
    """Approve the call as another user, so that another call waits."""
    called = ScriptedToolCall(name="calculator", args={"expression": "7*8"}, id="c2")
    model = ScriptedChatModel(script=[Reply(tool_calls=[called])])
    return Session("sums", store=store).answer({"decisions": [{"type": "approve"}]}, model=model)


def form_of(page: str) -> dict[str, str]:
    """Return the hidden fields of the form on a page."""
    fields = [one for one in Seen(page).all("input") if one.get("type") == "hidden"]
    return {str(one["name"]): str(one["value"]) for one in fields}


@pytest.mark.parametrize("is_named", [True, False], ids=["its question", "no question"])
def test_a_form_decides_no_call_that_it_did_not_show(
    user: TestClient, store: str, model: ScriptedChatModel, is_named: bool
) -> None:
    """A form does not decide a call that came after the page was opened."""
    sums(store)
    shown = form_of(user.get("/sessions/sums").text)
    assert shown == {"question": question(store, "sums")}
    after = more_sums(store)
    user.post("/sessions/sums/answer", data=(shown if is_named else {}) | {"decision0": "approve"})
    page = user.get("/sessions/sums").text
    assert "this question was already answered or withdrawn, so your answer was not used" in page
    assert form_of(page) == {"question": after.pending[0].id}
    assert Session("sums", store=store).state() == after
    assert model.calls == []


def test_of_two_forms_that_are_sent_at_once_one_decides(
    user: TestClient, store: str, model: ScriptedChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first of two simultaneous forms decides."""
    sums(store)
    after: list[Result] = []

    def overtaken(*_: object) -> dict[str, Any]:
        after.append(more_sums(store))
        return {"decisions": [{"type": "approve"}]}

    monkeypatch.setattr("duologue.graphs.view.app.answer_of", overtaken)
    form = {"question": question(store, "sums"), "decision0": "approve"}
    user.post("/sessions/sums/answer", data=form)
    assert "already answered or withdrawn" in user.get("/sessions/sums").text
    assert Session("sums", store=store).state() == after[0]
    assert model.calls == []


def test_what_only_a_program_registers_is_said(user: TestClient, store: str) -> None:
    def peel(fruit: str) -> str:
        """Peel a fruit."""
        return fruit

    called = ScriptedToolCall(name="peel", args={"fruit": "pear"}, id="c1")
    talk = chat("Peel it.", tools=["peel"], interrupt_on={"peel": True})
    model = ScriptedChatModel(script=[Reply(tool_calls=[called])])
    converse(talk, session="s", store=store, model=model, tools=[peel])
    user.post("/sessions/s/answer", data={"question": question(store, "s"), "decision0": "approve"})
    page = user.get("/sessions/s").text
    assert '<dt><bdi>fruit</bdi></dt><dd dir="ltr"><bdi>&#34;pear&#34;</bdi></dd>' in page
    assert '<p class="k" dir="auto">Assistant wants to call peel</p>' in page
    assert "duologue view --tools MODULE`" in page
    assert Session("s", store=store).state().pending


def test_a_session_that_waits_is_stopped(user: TestClient, store: str) -> None:
    shade(store)
    assert 'action="/sessions/shade/stop"' in user.get("/sessions/shade").text
    assert user.post("/sessions/shade/stop").status_code == 303
    outcome = Session("shade", store=store).state().outcome
    assert outcome is not None
    assert outcome.reason.value == "stop_requested"
    page = user.get("/sessions/shade").text
    assert "/stop" not in page
    user.post("/sessions/shade/stop")
    assert "has ended already" in user.get("/sessions/shade").text


def test_what_is_new_is_told_from_where_the_page_stands(user: TestClient, store: str) -> None:
    shade(store)
    page = Seen(user.get("/sessions/shade").text)
    address = next(str(one["data-events"]) for one in page.all("div") if "data-events" in one)
    form = {"question": question(store, "shade"), "text": "<b>What</b> grows in shade?"}
    user.post("/sessions/shade/answer", data=form)
    user.post("/sessions/shade/stop")

    def told(**headers: str) -> tuple[str, dict[str, Any]]:
        # The session has ended, and so do the events.
        events = user.get(address, headers=headers)
        assert events.headers["content-type"].startswith("text/event-stream")
        mark, data = events.text.strip().split("\n")
        return mark.removeprefix("id: "), json.loads(data.removeprefix("data: "))

    mark, new = told()
    assert new["done"]
    assert new["lines"].count("<article") == 2
    assert "&lt;b&gt;What&lt;/b&gt; grows" in new["lines"]
    assert "finished" in new["parts"]["standing"]["html"]
    assert told(**{"Last-Event-ID": mark})[1]["lines"] == ""
    # The page is not up to date with the session, so it must reload.
    assert told(**{"Last-Event-ID": "1-0123456789abcdef"})[1] == {"reload": True}


def lot(store: str, text: str = "Cook") -> None:
    """Store a batch of 70 cells: 60 have ended, and one was interrupted."""

    async def put() -> None:
        times = {"updated_at": datetime.now(UTC)}
        row = {"title": text, "stopped": text, "cells": 70, "spec": "{}", "settings": "{}"}
        ended = {"status": "finished", "reason": "done_token", "messages": 3}
        async with open_store(store) as opened, opened.lock_batch("lot") as lease:
            begun = {"created_at": times["updated_at"]}
            await lease.put(BatchRow.model_validate({"batch": "lot", **row, **times, **begun}))
            for number in range(1, 62):
                cell = {"number": number, "session": f"lot-{number}", "varied": {"role": text}}
                found = {"batch": "lot", **cell, **(ended if number <= 60 else {}), **times}
                await lease.put_cell(CellRow.model_validate(found))

    asyncio.run(put())


def test_batches_are_listed_with_their_progress_and_their_cells_page_by_page(
    user: TestClient, store: str
) -> None:
    assert "There are no batches in" in user.get("/batches").text
    assert 'href="/batches"' in user.get("/").text
    lot(store)
    assert "60 of 70 sessions done" in user.get("/batches").text

    def cells(path: str) -> tuple[list[str], str]:
        links = [str(one["href"]) for one in Seen(user.get(path).text).all("a")]
        named = [one.removeprefix("/sessions/lot-") for one in links if "/sessions/" in one]
        return named, next((one for one in links if "after=" in one), "")

    first, more = cells("/batches/lot")
    assert first == [str(number) for number in range(1, 51)]
    assert cells(more) == ([str(number) for number in range(51, 62)], "")
    assert cells("/batches/lot?status=running")[0] == ["61"]
    assert cells("/batches/lot?status=failed&after=x")[0] == []
    page = user.get("/batches/lot").text
    assert "interrupted" in page
    assert "done token" in page
    for unknown in ("/batches/none", "/batches/a%20b"):
        assert user.get(unknown).status_code == 404


def send_files(user: TestClient, store: str, *files: tuple[str, bytes]) -> int:
    """Answer the question of the session "shade" with files, and return the status."""
    form = {"question": question(store, "shade"), "text": "Look"}
    sent = [("files", (name, data, "text/plain")) for name, data in files]
    return user.post("/sessions/shade/answer", data=form, files=sent).status_code


def test_an_answer_contains_the_chosen_files(user: TestClient, store: str) -> None:
    shade(store)
    assert send_files(user, store, ("", b""), ("plan.png", PNG)) == 303
    first = Session("shade", store=store).state().messages[0]
    assert first.content[1] == {**block_of(PNG), "extras": {"filename": "plan.png"}}
    assert Seen(user.get("/sessions/shade").text).all("img")


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (b"<script>", 303, "files.0: plan.png is not a PNG"),
        (PNG + bytes(20_000_000), 303, "files.0: plan.png is too large"),
        (bytes(22_000_000), 413, ""),
    ],
)
def test_a_wrong_file_is_an_error_on_the_page(
    user: TestClient, store: str, data: bytes, status: int, words: str
) -> None:
    shade(store)
    assert send_files(user, store, ("plan.png", data)) == status
    assert words in user.get("/sessions/shade").text
    assert Session("shade", store=store).state().pending
