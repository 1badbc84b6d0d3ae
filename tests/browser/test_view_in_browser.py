"""Tests that follow, answer and stop a session on the local page in a real browser."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from duologue.graphs import Conversation, MaxMessages, Session, Speaker, chat, converse, run_batch
from duologue.nodes.testing import Prompt, Reply, ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


@pytest.fixture
def tab(browser: "Browser") -> "Iterator[Page]":
    """Yield a tab, and check that no request was refused or failed."""
    wrong: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    page.close()
    assert wrong == []


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(lambda _: Reply(text="Mint grows in shade.")) as served:
        yield served


@pytest.fixture
def address(tmp_path: Path, server: ScriptedServer) -> Iterator[str]:
    """Yield the address that `duologue view` prints; a session waits there for its user."""
    quiet = ScriptedChatModel(script=[])
    converse(chat(), session="shade", store=tmp_path / "s.db", model=quiet)
    model = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "any", "DUOLOGUE_MODEL": "scripted"}
    command = [sys.executable, "-c", "from duologue.graphs.cli.app import main; main()"]
    with subprocess.Popen(
        [*command, "view", "--no-open", "--store", "s.db"],
        cwd=tmp_path,
        env=os.environ | model,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def test_a_session_is_followed_while_it_runs_and_stopped(
    tab: "Page", tmp_path: Path, address: str
) -> None:
    go = threading.Semaphore(1)

    def say(_: Prompt) -> str:
        assert go.acquire(timeout=60)
        return f"<b>Bean</b> {next(numbers)}."

    numbers = iter(range(100))
    talk = Conversation(
        task="Plan", speakers=[{"name": "Ann"}, {"name": "Ben"}], end_chat={"max_iterations": 50}
    )
    store = tmp_path / "s.db"
    model = ScriptedChatModel(script=say)
    options = {"session": "live", "store": store, "model": model}
    run = threading.Thread(target=converse, args=(talk,), kwargs=options)
    tab.goto(address)
    tab.wait_for_url("**/")
    assert "token" not in tab.url
    assert tab.locator(".sessions li").count() == 1
    run.start()
    # The list updates without a reload.
    tab.locator(".status.running").wait_for()
    tab.get_by_role("link", name="Plan").click()
    tab.get_by_text("<b>Bean</b> 0.").wait_for()
    tab.get_by_text("Side by side").click()
    for number in (1, 2):
        go.release()
        tab.locator(f".cell.own:has-text('<b>Bean</b> {number}.')").wait_for()
    tab.get_by_role("button", name="Stop the session").click()
    tab.get_by_text("It stops after its current turn.").wait_for()
    go.release()
    tab.locator(".standing .finished").wait_for()
    tab.get_by_role("region", name="a stop was requested").wait_for()
    assert tab.locator(".talk .said").count() == 4
    run.join()
    outcome = Session("live", store=store).state().outcome
    assert outcome is not None
    assert outcome.reason.value == "stop_requested"


def test_the_list_fits_a_phone_and_its_form_says_what_it_filters(
    tab: "Page", tmp_path: Path, address: str
) -> None:
    store = tmp_path / "s.db"
    talk = Conversation("Plan " + "many beds " * 20, [Speaker("Ann"), Speaker("Ben")])
    model = ScriptedChatModel(script=["Beans."] * 9)
    converse(talk.replace(end_chat=MaxMessages(2)), session="garden", store=store, model=model)
    Session("garden", store=store).fork(at="m0001", into="fork-" + "x" * 100)
    tab.goto(address)
    tab.wait_for_url("**/")
    for width in (320, 390, 1280):
        tab.set_viewport_size({"width": width, "height": 844})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.locator(".sessions li").count() == 3
    assert tab.locator(".fork").all_inner_texts() == ["fork of garden"]
    assert tab.get_by_text("2 messages", exact=True).count() == 1
    tab.get_by_label("Filter by status or reason").select_option("waiting for a person")
    tab.get_by_role("button", name="Search").click()
    tab.wait_for_url("**show=waiting*")
    assert tab.locator(".sessions li").count() == 1
    tab.get_by_label("Filter by status or reason").select_option("all sessions")
    tab.get_by_label("Title or id contains").fill("GARD")
    tab.get_by_role("button", name="Search").click()
    tab.wait_for_url("**q=GARD*")
    assert tab.locator(".sessions li").count() == 1
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.get_by_role("link", name="garden").click()
    # The talk begins on the first screen of a phone here, too.
    tab.locator(".m.said").first.wait_for()
    top = "document.querySelector('.m.said').getBoundingClientRect().top"
    assert tab.evaluate(top) < 844
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_question_is_answered_and_the_answer_comes_by_itself(
    tab: "Page", tmp_path: Path, address: str, server: ScriptedServer
) -> None:
    store = tmp_path / "s.db"
    server.hold(0)
    tab.goto(address.replace("/?", "/sessions/shade?"))
    tab.wait_for_url("**/sessions/shade")
    tab.get_by_label("Message from User").fill("What grows in shade?")
    tab.get_by_role("button", name="Send").click()
    # The page continues at the place of the answer.
    tab.wait_for_url("**/sessions/shade#questions")
    tab.locator(".standing .running").wait_for()
    tab.get_by_text("It is running.").wait_for()
    assert tab.locator(".question").count() == 0
    tab.locator(".m").get_by_text("What grows in shade?").wait_for()
    server.release()
    tab.get_by_text("Mint grows in shade.").wait_for()
    tab.get_by_label("Message from User").fill("And")
    tab.get_by_role("button", name="Leave the conversation").click()
    tab.locator(".standing .finished").wait_for()
    assert len(Session("shade", store=store).state().transcript) == 2


def test_the_cells_of_a_batch_are_visible_and_lead_to_their_sessions(
    tab: "Page", address: str, tmp_path: Path
) -> None:
    talk = {"task": "Plan", "speakers": [{"name": "Ann"}, {"name": "Ben"}]}
    batch = {"conversation": {**talk, "end_chat": {"max_iterations": 1}}, "trials": 2}
    model = ScriptedChatModel(lambda _: "Dig.")
    run_batch(batch, name="plans", model=model, store=tmp_path / "s.db")
    tab.goto(address)
    tab.click("text=Batches")
    tab.click("text=plans")
    assert tab.is_visible("th a >> nth=1")
    assert tab.is_visible("text=finished: max iterations >> nth=0")
    tab.click("th a >> nth=1")
    assert tab.is_visible("text=Dig. >> nth=0")
