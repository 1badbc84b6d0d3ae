"""A batch's page in a real browser: no text runs, and nothing runs over the edge."""

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from duologue.nodes.testing import Line, Prompt
from duologue.nodes.testing.server import ScriptedServer
from pages import hostile_report
from support.cli_help import COMMAND, isolate

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

MISSING = "\N{EN DASH}"
"""The text of a missing score."""

CUT = """[...document.querySelectorAll(".wide")].filter((one) => one.scrollWidth > one.clientWidth)
    .map((one) => one.firstElementChild.className)"""
"""A script that returns the tables that are wider than the page."""


def test_no_text_of_a_batch_runs_and_its_page_fits_at_any_width(
    browser: "Browser", tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_text(hostile_report(), encoding="utf-8", errors="replace")
    asked: list[str] = []
    wrong: list[str] = []
    for width in (320, 390, 1280):
        context = browser.new_context(viewport={"width": width, "height": 700})
        tab = context.new_page()
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.goto(path.as_uri())
        tab.evaluate("scrollTo(0, 1e6)")
        assert tab.evaluate("[window.ran, document.scripts.length]") == [None, 1]
        foreign = "document.querySelectorAll('img, iframe, object, base, link').length"
        assert tab.evaluate(foreign) == 0
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        if width < 400:
            assert tab.evaluate(CUT) == []
        # A screen reader finds the pictures' content in words.
        pictures = tab.get_by_role("img")
        assert pictures.count() > 10
        assert all(pictures.nth(at).get_attribute("aria-label") for at in range(10))
        assert tab.get_by_role("heading", level=1).count() == 1
        assert tab.get_by_role("region", name="Sessions", exact=True).count() == 1
        context.close()
    assert {*asked} == {path.as_uri()}
    assert wrong == []


SUITE = """
trials = 2
personas = {calm = "Calm.", cross = "Cross."}
[scenarios.refund]
goal = "You want order 7 refunded."
[scenarios.refusal]
goal = "You want order 7 refunded."
expected_ends = ["gave_up"]
"""


def test_the_page_of_a_suite_begins_with_what_failed_and_leads_to_the_conversations(
    browser: "Browser", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(prompt: Prompt) -> Line:
        return "###STOP###" if len(prompt) > 2 else "Please refund order 7."

    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    Path("seen_shop.py").write_text("def agent(messages):\n    return 'It is refunded.'\n")
    Path("shop.toml").write_text(SUITE)
    with ScriptedServer(play) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        # The driver of the browser runs an event loop in this process.
        run = [*COMMAND, "simulate", "shop.toml", "--agent", "seen_shop:agent"]
        assert subprocess.run(run, check=False).returncode == 1
    page = tmp_path / "shop.html"
    for width in (320, 390, 1280):
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": width, "height": 700},
                color_scheme=scheme,
            )
            tab = context.new_page()
            tab.goto(page.as_uri())
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            assert tab.evaluate(CUT) == []
            headings = tab.get_by_role("heading", level=2).all_inner_texts()
            assert headings[:3] == ["4 passed, 4 failed", "What has not passed", "Scenarios"]
            assert headings[-1] == "Sessions"
            first = tab.locator(".sentences li").first
            shown = first.inner_text().splitlines()[0]
            ended = 'ended as "the user says the goal is met", expected "gave_up"'
            assert shown == f"failed: refusal, calm - {ended}"
            colours = [
                tab.locator(f"table.lines tr.{tone}").first.evaluate(
                    "(row) => getComputedStyle(row).backgroundColor"
                )
                for tone in ("bad", "good")
            ]
            assert len({*colours}) == 2
            tab.locator("table.lines tr.bad a").first.click()
            tab.locator("main").get_by_text("Please refund order 7.").first.wait_for()
            tab.go_back()
            first.get_by_role("link").first.click()
            tab.locator("main").get_by_text("Please refund order 7.").first.wait_for()
            context.close()


def test_a_click_on_a_heading_sorts_the_cells_by_that_column(
    browser: "Browser", tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_text(hostile_report(), encoding="utf-8", errors="replace")
    tab = browser.new_page()
    tab.goto(path.as_uri())
    table = tab.locator("table.lines")
    heads = table.locator("thead th")
    names = heads.all_inner_texts()

    def column(name: str) -> list[str]:
        at = next(place for place, text in enumerate(names) if text.startswith(name))
        heads.nth(at).get_by_role("button").click()
        return table.locator(f"tbody tr > :nth-child({at + 1})").all_inner_texts()

    messages = [int(text) for text in column("Messages")]
    assert messages == sorted(messages)
    assert [int(text) for text in column("Messages")] == messages[::-1]
    assert heads.nth(names.index("Messages")).get_attribute("aria-sort") == "descending"
    score = len(names) - 2
    heads.nth(score).get_by_role("button").click()
    scores = table.locator(f"tbody tr > :nth-child({score + 1})").all_inner_texts()
    known = [text for text in scores if text != MISSING]
    # Cells without the score come last in both directions.
    assert known == sorted(known) == scores[: len(known)]
    heads.nth(score).get_by_role("button").click()
    scores = table.locator(f"tbody tr > :nth-child({score + 1})").all_inner_texts()
    assert scores == [*known[::-1], *[MISSING] * (len(scores) - len(known))]
    assert [heads.nth(at).get_attribute("aria-sort") for at in range(len(names))].count(None) == (
        len(names) - 1
    )
    tab.close()
