"""A session's page in a real browser: no text runs, and people see the view that they choose.

`.ci/run` runs these by a separate command, with the distribution's Chromium.
"""

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from duologue.graphs import Session
from pages import HOSTILE, hostile_pages
from support.loaded import load

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

Open = Callable[..., "Page"]
"""A function that opens a page, or the page of a session."""


@pytest.fixture
def show(browser: "Browser", tmp_path: Path) -> Iterator[Open]:
    """Yield a function that opens pages from the disk; check that they load and run nothing."""
    asked: list[str] = []
    wrong: list[str] = []

    def opened(shown: Session | str, speaker: str | None = None, **options: Any) -> "Page":
        text = shown if isinstance(shown, str) else shown.export("html", speaker=speaker)
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        context = browser.new_context(**options)
        tab = context.new_page()
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("dialog", lambda dialog: wrong.append(dialog.message))
        # Chromium reports here each script and file that the page's policy blocks.
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.goto(path.as_uri())
        return tab

    yield opened
    assert {url.partition("#")[0] for url in asked} == {(tmp_path / "page.html").as_uri()}
    assert wrong == []


def session(
    *lines: tuple[str, str], names: tuple[str, ...] = ("Ann", "Ben"), **more: Any
) -> Session:
    """A session in which these speakers say this; a speaker alone is told the next line."""
    messages = []
    for who, text in lines:
        name, is_told, _ = who.partition(" alone")
        told = {"kind": "instruction", "audience": [name]}
        about = told if is_told else {"kind": "speech", "speaker": name}
        messages.append({"text": text, "metadata": about})
    speakers = [{"name": name} for name in names]
    return load(messages, {"title": "Plan a garden", "task": "Plan", "speakers": speakers, **more})


def talk() -> Session:
    return session(
        ("Ann alone", "Please begin."),
        ("Ann", "Beans by the wall."),
        ("Ben", "Peas. ###STOP###"),
        ("Ann", "And herbs."),
        end_chat={"when": [{"kind": "done_token", "token": "###STOP###"}]},
    )


def shown(tab: "Page") -> list[str]:
    """Return the ids of the visible messages."""
    found: list[str] = tab.evaluate(
        "[...document.querySelectorAll('.m')].filter(m => m.getClientRects().length).map(m => m.id)"
    )
    return found


def test_of_ten_thousand_hostile_texts_none_runs(show: Open) -> None:
    draw = random.Random(0)  # noqa: S311
    for number in range(5):
        # Each text is in all places of a message, and the first of them is also title and task.
        first = [*HOSTILE[number:], *HOSTILE[:number]]
        more = ["".join(draw.choices(HOSTILE, k=draw.randint(1, 3))) for _ in range(2_000)]
        tab = show(next(hostile_pages([*first, *more])))
        for view in ("as1", "side"):
            tab.locator(f"#{view}").check(force=True)
        tab.locator("#m0003 .cells").wait_for()
        tab.evaluate("location.hash = 'm1500'")
        tab.locator("#m1500 .cells").wait_for()
        tab.locator("#as-all").check(force=True)
        tab.locator("#folds").click()
        tab.evaluate("scrollTo(0, 1e6)")
        assert tab.evaluate("[window.ran, document.scripts.length]") == [None, 1]
        foreign = "document.querySelectorAll('img, iframe, object, base, link').length"
        assert tab.evaluate(foreign) == 0
        tab.context.close()


def test_of_ten_thousand_messages_only_those_in_sight_are_laid_out(show: Open) -> None:
    tab = show(session(*((("Ann", "Ben")[at % 2], f"Bean {at}.") for at in range(10_000))))
    drawn = """() => [...document.querySelectorAll('.m')].filter(
        (line) => line.firstElementChild.checkVisibility({ contentVisibilityAuto: true })
    ).length"""
    tab.evaluate("location.hash = 'm7000'")
    # The message that a person reads stays visible in another view.
    for view in ("as0", "as-all", "side"):
        assert 0 < tab.evaluate(drawn) < 200
        tab.locator(f"label:has(#{view})").click()
        tab.wait_for_function("""() => {
            const { top, bottom } = document.getElementById("m7000").getBoundingClientRect();
            return bottom > 0 && top < innerHeight;
        }""")
    tab.locator("#m7000 .cells").wait_for()
    assert 0 < tab.evaluate(drawn.replace("firstElementChild", "lastElementChild")) < 200


def test_a_view_shows_what_one_hears_in_its_role_and_words(show: Open) -> None:
    tab = show(talk())
    assert shown(tab) == ["m0001", "m0002", "m0003"]
    tab.get_by_role("radio", name="Ann's view").check(force=True)
    assert shown(tab) == ["m0000", "m0001", "m0002", "m0003"]
    role = "getComputedStyle(document.querySelector('#{} .r'), '::after').content"
    roles = [tab.evaluate(role.format(f"m000{place}")) for place in range(4)]
    assert roles == ['"user"', '"assistant"', '"user"', '"assistant"']
    # Others do not hear the done token.
    assert tab.locator("#m0002").inner_text().split("\n")[-1] == "Peas."
    assert tab.locator(".w0").get_by_text("System prompt").is_visible()
    assert not tab.locator(".w1").get_by_text("System prompt").is_visible()
    tab.get_by_role("radio", name="Ben's view").check(force=True)
    assert shown(tab) == ["m0001", "m0002", "m0003"]
    assert tab.locator("#m0002").inner_text().split("\n")[-1] == "Peas. ###STOP###"


def test_side_by_side_each_line_stands_in_the_columns_of_those_who_hear_it(show: Open) -> None:
    tab = show(talk())
    tab.get_by_role("radio", name="Side by side").check(force=True)
    tab.locator("#m0003 .cells").wait_for()
    cells = [tab.locator(f"#m000{place} .cell").all_inner_texts() for place in range(4)]
    told = [[" ".join(cell.split()) for cell in row] for row in cells]
    assert told[0] == ["user Please begin.", "not received"]
    assert told[1] == ["assistant Ann m0001 Beans by the wall.", "user Beans by the wall."]
    assert told[2] == ["user Peas.", "assistant Ben m0002 Peas. ###STOP###"]


def test_all_is_reached_by_keys_and_a_link_to_a_hidden_line_shows_it(show: Open) -> None:
    tab = show(talk())
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the conversation"
    tab.locator("#as-all").focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    assert shown(tab) == ["m0001", "m0002", "m0003"]
    assert tab.locator("#as1").is_checked()
    tab.evaluate("location.hash = 'm0000'")
    tab.keyboard.press("Shift+Tab")
    tab.locator("#folds").press("Enter")
    assert tab.locator("#folds").get_attribute("aria-pressed") == "true"


def test_a_screen_reader_finds_headings_landmarks_and_names(show: Open) -> None:
    tab = show(talk())
    assert tab.get_by_role("heading", level=1).inner_text() == "Plan a garden"
    assert tab.get_by_role("main").get_by_role("heading", level=3).count() == 3
    assert tab.get_by_role("region", name="Not finished yet").count() == 1
    assert tab.get_by_role("group", name="Show the conversation").get_by_role("radio").count() == 4
    pictures = tab.get_by_role("img")
    assert all(pictures.nth(at).get_attribute("aria-label") for at in range(pictures.count()))
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(ids) == len({*ids})


def test_without_scripts_all_can_be_read_and_views_can_be_changed(show: Open) -> None:
    tab = show(talk(), java_script_enabled=False)
    assert tab.get_by_text("Beans by the wall.").is_visible()
    assert not tab.get_by_text("Side by side").is_visible()
    assert not tab.locator("#m0000").is_visible()
    tab.locator("#as0").check(force=True)
    assert tab.locator("#m0000").is_visible()


def long_end() -> Session:
    """Return a session with a long task and as many figures as a page shows."""
    return session(
        *(("Ann", f"Beans, row {number}.") for number in range(30)),
        names=("Ann", "Benjamin", "Clara", "Dimitrios"),
        task="Plan a garden for a family of four, " + "with beds for every season " * 12,
        end_chat={"max_iterations": 9, "when": [{"kind": "max_messages", "limit": 40}]},
    )


FIRST_TOP = """[...document.querySelectorAll(".m")]
    .find((line) => line.getClientRects().length).getBoundingClientRect().top"""


def test_on_a_phone_the_conversation_begins_on_the_first_screen(show: Open) -> None:
    tab = show(long_end(), viewport={"width": 390, "height": 844})
    assert tab.evaluate(FIRST_TOP) < 700
    # The figures are folded, and one tap shows them: two in a row, none over the edge.
    rounds = tab.locator(".numbers dt", has_text="Rounds")
    assert not rounds.is_visible()
    tab.get_by_text("Numbers and causes").click()
    assert rounds.is_visible()
    lefts = tab.evaluate(
        "[...document.querySelectorAll('.numbers > div:not(.long)')]"
        ".map(one => Math.round(one.getBoundingClientRect().left))"
    )
    assert len(lefts) >= 5
    assert len({*lefts}) == 2
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_on_a_wide_screen_the_figures_are_shown_with_and_without_scripts(show: Open) -> None:
    for scripts in (True, False):
        tab = show(long_end(), viewport={"width": 1280, "height": 900}, java_script_enabled=scripts)
        assert tab.locator(".numbers dt", has_text="Rounds").is_visible()
        assert not tab.get_by_text("Numbers and causes").is_visible()


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_with_four_speakers_everything_opens_and_the_page_never_scrolls_sideways(
    show: Open, width: int
) -> None:
    tab = show(long_end(), viewport={"width": width, "height": 844})
    for view in ("as-all", "as3", "side"):
        tab.locator(f"label:has(#{view})").click()
        folds = tab.locator("#folds")
        # The button is in sight, whatever the number of speakers.
        box = folds.bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width
        folds.click()
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        tab.evaluate("scrollTo(500, scrollY)")
        assert tab.evaluate("scrollX") == 0
    # Columns that do not fit scroll within their own box, together with their names.
    wider = "(() => { const one = document.querySelector('.columns');"
    assert tab.evaluate(wider + "return one.scrollWidth > one.clientWidth; })()") is (width < 1000)
    # The bar takes no more than a sixth of the screen while one reads.
    assert tab.evaluate("document.querySelector('.bar').offsetHeight") <= 844 / 6


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_nothing_runs_over_the_edge_at_any_width(show: Open, width: int) -> None:
    long = "word" * 200
    told = session(
        (
            "Ann",
            f"{long} `{long}`\n\n```python\n{long}\n```\n\n| a | {long} |\n|---|---|\n| b | c |",
        ),
        ("Ben", f"<https://a.example/{long}> \n\n> {long}\n\n1. {long}"),
        names=("Ann", "Ben", "N" * 80),
    )
    tab = show(told, viewport={"width": width, "height": 700})
    for view in ("as-all", "as1"):
        tab.locator(f"#{view}").check(force=True)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_each_text_runs_in_its_own_direction(show: Open) -> None:
    told = session(
        ("Ann", "لنبدأ بالطماطم.\n\nThen English."),
        ("Ben", "אני מסכים.\n\n`code`"),
        ("Ann", "好的"),
    )
    tab = show(told)
    right = """place => { const range = document.createRange();
        range.selectNodeContents(document.querySelector(place));
        const text = range.getClientRects()[0];
        const box = document.querySelector(place).getBoundingClientRect();
        return Math.round(box.right - text.right) < Math.round(text.left - box.left); }"""
    assert tab.evaluate(right, "#m0000 .s p") is True
    assert tab.evaluate(right, "#m0000 .s p + p") is False
    assert tab.evaluate(right, "#m0001 .s p") is True
    assert tab.evaluate(right, "#m0002 .s p") is False


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast_enough_in_light_and_in_dark(show: Open, scheme: str) -> None:
    names = tuple(f"Speaker {number}" for number in range(8))
    tab = show(session(*((name, "Yes.") for name in names), names=names), color_scheme=scheme)
    pixels = """() => {
        const canvas = document.createElement("canvas");
        const brush = canvas.getContext("2d", { willReadFrequently: true });
        const light = (colour) => {
            brush.fillStyle = colour;
            brush.fillRect(0, 0, 1, 1);
            return [...brush.getImageData(0, 0, 1, 1).data].slice(0, 3);
        };
        const back = getComputedStyle(document.body).backgroundColor;
        const texts = document.querySelectorAll(".m h3, .p, .s p, .k, .tag, dt, dd, figcaption");
        return [light(back), [...texts].map((one) => light(getComputedStyle(one).color))];
    }"""
    back, texts = tab.evaluate(pixels)
    assert (luminance(back) > 0.5) is (scheme == "light")
    assert len(texts) > 30
    for text in texts:
        dark, bright = sorted((luminance(back), luminance(text)))
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, text


def luminance(colour: list[int]) -> float:
    """Return the relative luminance of WCAG."""
    parts = [part / 255 for part in colour]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_speakers_page_shows_its_memory_in_its_roles(show: Open) -> None:
    tab = show(talk(), speaker="Ann")
    assert shown(tab) == ["m0000", "m0001", "m0002", "m0003"]
    assert not re.search("STOP", tab.locator("#talk").inner_text())
    assert tab.get_by_role("radio").count() == 0
