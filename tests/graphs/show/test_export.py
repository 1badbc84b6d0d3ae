"""L1, L2: exports of sessions: a page that no text can break, and lines for programs."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from duologue.graphs import Session, SpecError
from support.cases import drawn_cases
from support.fork_help import plain, run
from support.fork_talks import TALKS
from support.loaded import load, said
from support.log import place_of
from support.tables import each_row


def page_of(markdown: str) -> list[Token]:
    return MarkdownIt("commonmark").parse(markdown)


def headings(tokens: list[Token]) -> list[str]:
    """Return the page's own headings as a reader sees them, without those inside quotations."""
    return [
        "".join(child.content for child in after.children or ())
        for token, after in pairwise(tokens)
        if token.type == "heading_open" and token.level == 0
    ]


def blocks(tokens: list[Token]) -> list[str]:
    """Return the kinds of the page's own blocks."""
    return [token.type for token in tokens if token.level == 0 and token.nesting >= 0]


def made(*texts: str, **fields: Any) -> str:
    """Return the page of a session with these messages, from each speaker in turn."""
    return load(said(*texts, **fields)).export("markdown")


@each_row("odd_texts")
def test_no_text_breaks_the_page(text: str) -> None:
    """Later messages keep their headings, and nothing is hidden, after any text."""
    tokens = page_of(made(text, "Fine.", text))
    assert headings(tokens) == ["Plan", "Ann (m0000)", "Ben (m0001)", "Ann (m0002)"]
    quoted = ["heading_open", "blockquote_open"]
    assert blocks(tokens) == [
        *("heading_open", "paragraph_open", "blockquote_open"),
        *(quoted * 3),
        *("hr", "paragraph_open"),
    ]
    everything = [child for token in tokens for child in (token, *(token.children or ()))]
    assert not {"html_block", "html_inline"} & {token.type for token in everything}


PIECES = st.lists(
    st.sampled_from(
        [
            *("\n", "\n\n", " ", "    ", "\r", "\t", "word", "&amp;", "|", "\\", "*", "_"),
            *("```", "~~~", "`", "``", "> ", "# ", "- ", "1. ", "---", "===", "![x](y)", "[a]: b"),
            *("<", "<b>", "<!--", "-->", "</div>", "<div>", "<?", "<http://a.example>"),
        ]
    ),
    max_size=12,
).map("".join)


@drawn_cases(
    25, 400, text=PIECES, name=PIECES.map(lambda text: " ".join(text.split())[:80].strip() or "Ann")
)
def test_no_text_and_no_name_ever_breaks_the_page(text: str, name: str) -> None:
    names = (name, f"{name[:78]} B")
    pair = {"task": "Plan", "speakers": [{"name": one} for one in names]}
    tokens = page_of(load(said(text, "Fine.", names=names), pair).export("markdown"))
    found = blocks(tokens)
    assert found.count("heading_open") == 3
    assert found[-2:] == ["hr", "paragraph_open"]
    assert found.count("blockquote_open") == 3
    assert len(found) == 9
    everything = [child for token in tokens for child in (token, *(token.children or ()))]
    assert not {"html_block", "html_inline"} & {token.type for token in everything}


def test_a_page_shows_a_texts_own_markdown() -> None:
    tokens = page_of(made("Two:\n\n- beans\n- peas\n\n```python\nplant()\n```"))
    assert ("list_item_open", 2) in [(token.type, token.level) for token in tokens]
    (code,) = [token for token in tokens if token.type == "fence"]
    assert (code.content, code.info) == ("plant()\n", "python")


def test_a_page_has_the_title_the_task_each_message_and_how_it_ended(tmp_path: Path) -> None:
    conversation, lines = TALKS["structured"]
    store = f"memory:{tmp_path.name}"
    session = run(conversation.replace(title="A *fine* garden"), lines, store=store).session
    page = session.export("markdown")
    assert headings(page_of(page))[:3] == ["A *fine* garden", "The task (m0000)", "Ann (m0003)"]
    for found in (
        "> Plan a big garden.",
        "*Rejected and asked again: Your message was empty.*",
        '*Calls weather:*\n\n```json\n{\n  "day": "Monday"\n}\n```',
        "*Calls weather with invalid JSON:*\n\n```text\n{\n```",
        "*Result of weather:*\n\n```text\nMonday: sun\n```",
        "*weather failed:*\n\n```text\nThe arguments of weather are not valid JSON: Expecting "
        "property name enclosed in double quotes, at character 2.\n```",
        "*Ben on its task: not complete: water*",
        "*Heard by no other speaker*",
        "**Ended after 2 rounds and 7 messages: Ben completed its task.**",
    ):
        assert f"\n{found}\n" in page, found
    # Instructions to speakers are no part of the conversation.
    assert "> Dig\n" not in page
    assert "> Dig\n" in session.export("markdown", speaker="Ann")
    assert "Not finished." in made("Hi")


def test_what_was_parsed_stands_beside_its_message() -> None:
    """L1: both formats contain the parsed result and the text."""
    session = load(said("The price is 5 €.", parsed={"price": 5, "currency": "€"}))
    assert '```json\n{\n  "price": 5,\n  "currency": "€"\n}\n```' in session.export("markdown")
    text = session.export("jsonl")
    (found,) = objects(text)
    assert found["parsed"] == {"price": 5, "currency": "€"}
    assert "€" in text


def objects(text: str) -> Iterator[dict[str, Any]]:
    for one in text.splitlines():
        found: dict[str, Any] = json.loads(one)
        yield found


@pytest.mark.part(2)
@pytest.mark.parametrize("name", TALKS)
def test_json_lines_hold_every_message_with_all_that_stands_beside_it(
    name: str, tmp_path: Path
) -> None:
    store = f"memory:{tmp_path.name}"
    conversation, lines = TALKS[name]
    whole = run(conversation, lines, session="one", store=store)
    found = list(objects(whole.session.export("jsonl")))
    assert [one["id"] for one in found] == [place_of(message) for message in whole.messages]
    assert [one["text"] for one in found] == [message.text for message in whole.messages]
    said = [one for one in found if one["kind"] in ("speech", "tool_calls") and one["text"].strip()]
    assert [(one["speaker"], one["text"]) for one in said] == whole.transcript
    assert whole.outcome is not None
    verdicts = [one["verdict"] for one in found if one.get("verdict")]
    assert [one["complete"] for one in verdicts] == [
        verdict.complete for verdict in whole.outcome.verdicts
    ]
    kinds = {one["kind"] for one in found}
    # Messages of one kind have the same fields.
    assert len({(one["kind"], *one) for one in found}) == len(kinds)
    rejected = [one for one in found if one["kind"] == "draft"]
    assert all(one["problem"] and one["audience"] == [] for one in rejected)


def test_a_speakers_export_holds_what_it_has_said_and_heard(tmp_path: Path) -> None:
    store = f"memory:{tmp_path.name}"
    conversation, lines = TALKS["structured"]
    run(conversation, lines, session="one", store=store)
    found = list(objects(Session("one", store=store).export(format="jsonl", speaker="Ben")))
    texts = [one["text"] for one in found]
    assert "I dig." in texts  # the answer was passed on to it
    assert "Dig" not in texts
    assert "Monday: sun" not in texts
    page = Session("one", store=store).export(format="markdown", speaker="Ben")
    assert "The memory of Ben." in page
    assert "Calls weather" not in page
    assert Session("one", store=store).state().outcome is not None


def test_an_odd_format_and_a_stranger_are_refused(tmp_path: Path) -> None:
    store = f"memory:{tmp_path.name}"
    run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=store)
    odd: Any = "pdf"
    with pytest.raises(
        SpecError, match=r"^format: 'pdf' is unknown; choose one of 'markdown', 'jsonl'"
    ):
        Session("one", store=store).export(format=odd)
    with pytest.raises(SpecError, match=r"^no speaker in session 'one' is called 'Eve'"):
        Session("one", store=store).export(format="jsonl", speaker="Eve")


def test_control_characters_are_shown_and_break_no_line() -> None:
    """Exports show control characters, which affect no terminal and no program."""
    text = "a\x1b[31mb\x00c\x07d\u202ee\x85f\u2028g\u2029h\x1ci"
    session = load(said(text, "Fine."))
    page = session.export("markdown")
    # The log has a question mark for the character that PostgreSQL can't store.
    assert r"a\x1b[31mb?c\x07d\u202ee\x85f" in page
    assert not set("\x1b\x00\x07\u202e\x85\x1c") & set(page)
    found = list(objects(session.export("jsonl")))
    assert [one["text"] for one in found] == [text.replace("\x00", "?"), "Fine."]


def test_a_page_keeps_the_marks_that_hebrew_and_arabic_need_and_no_override() -> None:
    text = "\u200fשלום \u200e(C++)\u200e! می\u200cخواهم \u061c7%"  # noqa: RUF001
    page = made(f"{text} \u202aa\u202eb\u202c\u2067c", "Fine.")
    assert rf"{text} \u202aa\u202eb\u202c\u2067c" in page


@each_row("answered_calls", "fields", "told")
def test_a_page_tells_who_answered_a_call(fields: dict[str, Any], told: str) -> None:
    call = {"name": "mail", "args": {}, "id": "a"}
    calls = {"text": "", "metadata": {"kind": "tool_calls", "speaker": "Ann"}, "tool_calls": [call]}
    result = {
        "text": "Sent.",
        "call_id": "a",
        "failed": "failure" in fields,
        "metadata": {"kind": "tool_result", "speaker": "Ann", **fields},
    }
    page = load([*said("Hi."), calls, result]).export("markdown")
    assert f"\n{told}\n" in page
