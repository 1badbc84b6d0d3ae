"""L1: a session as one HTML page: views, reasons of the end; and no text becomes code."""

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from langchain_core.tools import BaseTool, tool

from duologue.graphs import (
    Conversation,
    Session,
    Speaker,
    chat,
    converse,
    stream,
)
from duologue.graphs.events import MessageSaid, ToolCallFinished
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from pages import ALLOWED, HOSTILE, hostile_pages
from support.cases import drawn_cases
from support.cli_help import duologue, isolate, serving
from support.files import PDF, PNG, block_of
from support.fork_help import run
from support.fork_talks import TALKS
from support.html import Seen
from support.loaded import load, said
from support.tables import each_row


def check_harmless(seen: Seen) -> None:
    """Check that nothing runs, loads or has styles except as in the templates."""
    assert seen.names <= ALLOWED
    assert [len(seen.all(tag)) for tag in ("script", "style", "meta")] == [1, 1, 5]
    for link in seen.links:
        assert re.match(r"#|https?://|mailto:", link, re.IGNORECASE), link


def page(name: str, tmp_path: Path, **options: Any) -> str:
    conversation, lines = TALKS[name]
    return exported(conversation, lines, tmp_path, **options)


def exported(
    conversation: Conversation, lines: Sequence[Line], tmp_path: Path, **options: Any
) -> str:
    store = f"memory:{tmp_path.name}"
    run(conversation, lines, session="s", store=store)
    return Session("s", store=store).export(format="html", **options)


def test_a_page_tells_all_that_happened(tmp_path: Path) -> None:
    text = page("structured", tmp_path)
    seen = Seen(text)
    check_harmless(seen)
    told = seen.words
    for found in (
        "Ended after 2 rounds and 7 messages",
        "Ben completed its task.",
        "Task of Ann: water",
        "Ben: rejected and asked again: Your message was empty.",
        "Rejected and asked again: Your message was empty.",
        "Ann on its task: not complete: water",
        "Calls weather",
        "Calls weather with invalid JSON",
        "weather failed",
        "Heard by no other speaker",
        "blank replies",
        "same tool calls",
        "Usage",
        "The prompt of its latest turn",
        "the system prompt above",
    ):
        assert found in told, found


@pytest.mark.part(2)
@pytest.mark.parametrize("name", TALKS)
def test_each_link_of_a_page_leads_to_a_line_and_each_line_stands_once(
    name: str, tmp_path: Path
) -> None:
    seen = Seen(page(name, tmp_path))
    check_harmless(seen)
    ids = [str(attributes["id"]) for _, attributes in seen.tags if "id" in attributes]
    assert len(ids) == len({*ids})
    links = {str(one["href"])[1:] for one in seen.all("a") if str(one["href"]).startswith("#")}
    assert links <= {*ids}
    places = [str(one["id"]) for one in seen.all("article")]
    assert places == sorted(places)


def test_a_speakers_page_holds_its_memory_and_nothing_else(tmp_path: Path) -> None:
    store = f"memory:{tmp_path.name}"
    conversation, lines = TALKS["moderated"]
    run(conversation, lines, session="s", store=store)
    whole = Session("s", store=store).export(format="html")
    alone = Session("s", store=store).export(format="html", speaker="Ben")
    check_harmless(Seen(alone))
    assert "You hate beans." in alone
    # Ann's secret, and the texts of drafts and of token usage.
    for other in ("Seven.", "Your message was empty", "Tokens"):
        assert other in whole
        assert other not in alone


def test_what_was_used_is_told_by_turn_and_speaker(tmp_path: Path) -> None:
    conversation, lines = TALKS["moderated"]
    text = exported(conversation, lines, tmp_path)
    store = f"memory:{tmp_path.name}"
    outcome = Session("s", store=store).state().outcome
    assert outcome is not None
    rows = re.findall(r"<tr class=\"c.\"><th[^>]*><bdi>(.*?)</bdi></th>(.*?)</tr>", text)
    cells = {who: re.findall(r"<td>([\d.,]+)</td>", row) for who, row in rows}
    assert {"Ann", "Ben", "Cat", "The judge", "Who speaks next"} <= cells.keys()
    assert [cells[name][0] for name in ("Ann", "Ben", "Cat", "The judge")] == ["4", "2", "2", "4"]
    calls, into, out = (sum(int(row[place]) for row in cells.values()) for place in (1, 2, 3))
    total = outcome.total
    assert (calls, into, out) == (total.calls, total.input_tokens, total.output_tokens)
    assert sum(float(row[5]) for row in cells.values()) == pytest.approx(total.cost, rel=0.01)


def test_sessions_that_wait_or_are_broken_off_say_so() -> None:
    broken_off = load([]).export("html")
    assert "Not finished yet" in broken_off
    assert "There are no messages yet." in broken_off
    waits = converse(chat(), store="memory:").session.export("html")
    assert "Waiting for an answer" in waits
    assert "User, it is your turn." in waits


@each_row("ends", "reason", "tone")
def test_an_end_has_its_tone_and_says_what_was_owed(reason: str, tone: str) -> None:
    outcome = {
        "reasons": [reason, "max_messages"],
        "explanations": ["it was so", "the message cap was reached"],
        "rounds": 1,
        "messages": 2,
        "warnings": ["code ran without a sandbox"],
    }
    spec = {
        "task": "Plan",
        "speakers": [{"name": "Ann", "checks_completion": True}, {"name": "Ben"}],
        "end_chat": {"mode": "one_last_chat_after_first_completion", "max_iterations": 4},
    }
    position = {"turns": 3, "owed": ["Ben"]}
    seen = Seen(load([], spec, position=position, outcome=outcome).export("html"))
    assert f"ending {tone}" in [one.get("class") for one in seen.all("section")]
    for found in (
        f"{reason.replace('_', ' ')} Ended after 1 round and 2 messages It was so.",
        "Also: the message cap was reached. code ran without a sandbox",
        "Left undone One more message was due from Ben. "
        "Ann was never asked whether its task is complete.",
        "rounds 1 of 4",
        "blank replies 0 of 2",
    ):
        assert found in seen.words, found


@pytest.mark.exhaustive
def test_two_hundred_messages_are_at_most_300_kb_and_a_message_few_elements() -> None:
    words = "The garden needs more sun, and by the wall, where nobody ever looks, more **water**. "
    talk = Conversation(
        "Plan",
        [Speaker("Ann"), Speaker("Ben")],
        end_chat={"max_iterations": 100, "guards": {"same_replies": 0, "standstill": 0}},
    )
    model = ScriptedChatModel([f"{number}. {words * 8}" for number in range(200)])
    text = converse(talk, model=model, store="memory:").session.export("html")
    assert len(text.encode()) <= 300_000
    # Elements shown at once for ten thousand messages.
    pages = (load(said(*[words * 8] * many)).export("html") for many in (100, 200))
    first, both = (len(re.findall(r"<(?!circle|title|li|a )[a-z]", page)) for page in pages)
    assert (both - first) / 100 < 20
    # Bars and messages are one path for each speaker.
    assert len(Seen(text).all("path")) < 12


@pytest.mark.part(3)
@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_code_wherever_it_stands(text: str) -> None:
    for page in hostile_pages([text, "Fine."]):
        check_harmless(Seen(page))


@drawn_cases(
    4, 60, texts=st.lists(st.lists(st.sampled_from(HOSTILE), max_size=6).map("".join), max_size=6)
)
def test_no_mixture_of_texts_becomes_code(texts: list[str]) -> None:
    check_harmless(Seen(next(hostile_pages([*texts, "Fine."]))))


def drawn(text: str) -> str:
    """Return the HTML of a message on a page."""
    page = load(said(text)).export("html")
    found = re.findall(r'<div class="t s" dir="auto">(.*?)</div>\s*</article>', page, re.DOTALL)
    return str(found[-1])


def test_markdown_shows_what_was_said_and_fetches_nothing() -> None:
    assert drawn("**a** <b>") == "<p><strong>a</strong> &lt;b&gt;</p>\n"
    assert "<img" not in drawn("![x](http://a.example/x.png)")
    assert "<a" not in drawn("[x](javascript:alert(1)) [y](data:text/html,x) <vbscript:x>")
    link = drawn("[x](https://a.example)")
    assert 'rel="noopener noreferrer nofollow"' in link
    assert "<h4>" in drawn("# A heading of its own")
    assert "<details" in drawn("```python\n" + "x = 1\n" * 20 + "```")
    assert "<details" not in drawn("```python\nx = 1\n```")
    assert r"\x1b" in drawn("a\x1b[31mb")
    # Direction marks are needed in prose, and could hide text in code.
    assert "\u200f" in drawn("שלום\u200f!")
    assert "\u202e" not in drawn("`a\u202eb`")


def test_an_answer_by_hand_a_person_and_a_thought_are_marked() -> None:
    call = {"name": "weather", "args": {"day": "<b>"}, "id": "a"}
    called = {"kind": "tool_calls", "speaker": "Ben", "thought": {"text": "Hm, tools."}}
    answered = {"kind": "tool_result", "speaker": "Ben", "decision": "respond"}
    session = load(
        [
            *said("Hi", source="human"),
            {"text": "", "metadata": called, "tool_calls": [call]},
            {"text": "Rain", "metadata": answered, "call_id": "a"},
        ]
    )
    seen = Seen(session.export("html"))
    told = " ".join(seen.text)
    assert "person" in str(seen.all("article")[0]["class"]).split()
    for found in ("Hm, tools.", "Calls weather", '"day": "<b>"', "A person answered for weather"):
        assert found in told


# Files of messages for people and programs: pages, exports, the terminal, the local page.


MOST_ON_PAGE = "duologue.graphs.show.page.MOST_ON_PAGE"
DATA = b64encode(PNG).decode()


def named(name: str, data: bytes = PNG) -> dict[str, Any]:
    return {**block_of(data), "extras": {"filename": name}}


def session_with(*parts: Any) -> Session:
    model = ScriptedChatModel(script=["A plan."])
    return converse(chat(), message=[*parts], model=model, store="memory:shown").session


def chart_tool() -> BaseTool:
    @tool
    def draw() -> list[dict[str, Any]]:
        """Draw a chart."""
        return [{"type": "text", "text": "Done."}, named("chart.png")]

    return draw


def test_a_page_contains_the_images_and_offers_other_files_as_downloads() -> None:
    page = Seen(session_with("Look", named("plan.png"), named('"><b>.pdf', PDF)).export("html"))
    (image,) = page.all("img")
    assert image == {"src": f"data:image/png;base64,{DATA}", "alt": "image plan.png, 5 KB"}
    (link,) = [one for one in page.all("a") if "download" in one]
    assert link["download"] == '"><b>.pdf'
    assert (link["href"] or "").startswith("data:application/pdf;base64,")
    (policy,) = [one["content"] or "" for one in page.all("meta") if "http-equiv" in one]
    assert "img-src data:; media-src data:" in policy


def test_the_limit_of_a_page_counts_the_bytes_of_all_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = session_with("Look", named("a.png"))
    session.add_message("User", ["And", named("b.png")])
    monkeypatch.setattr(MOST_ON_PAGE, 2 * len(PNG))
    assert len(Seen(session.export("html")).all("img")) == 2
    monkeypatch.setattr(MOST_ON_PAGE, 2 * len(PNG) - 1)
    page = Seen(session.export("html"))
    assert [one["alt"] for one in page.all("img")] == ["image a.png, 5 KB"]
    assert "image b.png, 5 KB, not on this page" in page.text


def test_exports_for_readers_describe_files_and_others_contain_them() -> None:
    session = session_with("Look", named("plan.png"))
    assert Seen(session.export("html", speaker="Assistant")).all("img")
    assert f'<img src="data:image/png;base64,{DATA}"' in session.state()._repr_html_()
    assert "*[image plan.png, 5 KB]*" in session.export("markdown").replace("\\", "")
    (line,) = map(json.loads, session.export("openai").splitlines())
    url = {"url": f"data:image/png;base64,{DATA}"}
    expected = [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": url}]
    asked = next(one for one in line["messages"] if one["role"] == "user")
    assert asked["content"] == expected
    (line,) = map(json.loads, session.export("sharegpt").splitlines())
    assert line["conversations"][1]["value"] == "Look\n[image, 5 KB]"
    (first, _) = session.state().trajectory()
    assert first["content"] == expected


def test_events_contain_files_but_not_their_json() -> None:
    call = Reply(tool_calls=[ScriptedToolCall(name="draw", args={}, id="c1")])
    model = ScriptedChatModel(script=[call, "Here."])
    talk = chat(tools=[chart_tool()])
    found = list(stream(talk, message=["Draw", named("a.png")], model=model, store="memory:"))
    said = next(one for one in found if isinstance(one, MessageSaid))
    assert said.files == (named("a.png"),)
    assert DATA not in said.model_dump_json()
    result = next(one for one in found if isinstance(one, ToolCallFinished))
    assert (result.text, result.files) == ("Done.", (named("chart.png"),))
    page = Seen(Session(found[0].session, store="memory:").export("html"))  # type: ignore[union-attr]
    assert [one["alt"] for one in page.all("img")] == [
        "image a.png, 5 KB",
        "image chart.png, 5 KB",
    ]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    isolate(monkeypatch, tmp_path)
    path = tmp_path / "plan.png"
    path.write_bytes(PNG)
    return path


def test_files_are_attached_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, plan: Path
) -> None:
    with serving(monkeypatch, "A plan.", "The same.") as server:
        chat_, attach = ["chat", "What?", "--session", "c"], ["--attach", str(plan)]
        assert duologue(*chat_, *attach).exit_code == 5
        (text, image) = server.calls[0].body["messages"][-1]["content"]
        assert (text["text"], image["type"]) == ("What?", "image_url")
        ran = duologue("answer", "c", "And this?", *attach)
        assert len(server.calls[1].body["messages"][-1]["content"]) == 2
    assert "[image plan.png, 5 KB]" in ran.stdout
    assert duologue("say", "c", "User", "Last.", *attach).exit_code == 0
    assert duologue("show", "c").stdout.count("[image plan.png, 5 KB]") == 3
