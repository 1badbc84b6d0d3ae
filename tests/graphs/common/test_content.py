"""The content of messages: texts and files, and the rules that change it."""

from base64 import b64encode
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from duologue.graphs import SpecError
from duologue.graphs.common.content import (
    Content,
    arrange_blocks,
    describe_content,
    describe_file,
    file_block,
    files_of,
    hide_files,
    join_content,
    name_of_file,
    replace_text,
    text_block,
    text_of,
    tokens_of_files,
)
from duologue.graphs.common.content_input import (
    MOST_BYTES,
    find_mime_type,
    keep_inline,
    read_content,
    read_files,
)
from duologue.graphs.text.words import tokens_of_message
from support.files import PDF, PNG, block_of
from support.tables import each_row, read_rows

IMAGE = file_block(b64encode(PNG).decode(), "image/png", "plan.png")
SHOWN = "[image plan.png, 5 KB]"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
        (b"RIFF\0\0\0\0WAVE", "audio/wav"),
        (b"ID3\x04", "audio/mp3"),
        (PDF, "application/pdf"),
        (b"<svg/>", None),
        (b"XXXX\0\0\0\0WAVE", None),
        (b"", None),
    ],
)
def test_the_type_of_a_file_is_found_in_its_bytes(data: bytes, kind: str | None) -> None:
    assert find_mime_type(data) == kind


def test_a_wrong_type_in_a_block_is_corrected() -> None:
    (found,) = files_of(read_content([block_of(PDF, "image/png")], "message"))
    assert (found["type"], found["mime_type"]) == ("file", "application/pdf")


@pytest.mark.parametrize(
    "block",
    read_rows(__file__, "older_blocks_and_those_of_openai_are_read"),
)
def test_older_blocks_and_those_of_openai_are_read(block: dict[str, Any]) -> None:
    assert read_content(["See", block], "message") == [text_block("See"), block_of(PNG)]


def test_only_text_stays_a_text() -> None:
    assert read_content(["Good ", text_block("day")], "message") == "Good day"
    assert HumanMessage(["Good ", text_block("day")]).text == "Good day"


def test_the_limit_applies_to_all_files_of_a_message() -> None:
    half = PNG + bytes(MOST_BYTES // 2)
    with pytest.raises(SpecError, match=r"message\.1: the file is too large; .* 20\.0 MB together"):
        read_content([half, half], "message")


@pytest.mark.parametrize("name", ["/etc/plan.png", "C:\\x\\plan.png", "plan.png"])
def test_a_name_has_no_folders_and_nothing_invisible(name: str) -> None:
    assert name_of_file(file_block("AAAA", "image/png", name)) == "plan.png"
    assert name_of_file(file_block("AAAA", "image/png", "a\u202eb")) == "a_u202eb"


@pytest.mark.parametrize("given", ["plan.png", b"x", [], ["plan.txt"], [text_block("x")]])
def test_files_must_be_a_list_of_files(given: object) -> None:
    if given == []:
        assert read_files(given, "images") == []
        return
    with pytest.raises(SpecError, match=r"^images"):
        read_files(given, "images")


def test_a_new_text_keeps_the_order_of_texts_and_files() -> None:
    content = arrange_blocks(["Compare", IMAGE, "with", IMAGE])
    assert text_of(content) == "Compare\n\nwith"
    labelled = replace_text(content, f"Ann: {text_of(content)} Please.")
    assert labelled == [text_block("Ann: Compare"), IMAGE, text_block("\n\nwith Please."), IMAGE]
    assert replace_text(content, "Other") == [text_block("Other"), IMAGE, IMAGE]
    assert replace_text("Old", "New") == "New"


def test_joined_messages_have_a_blank_line_between_their_texts() -> None:
    content = join_content("Ann: Hi", join_content([text_block("Ben: See"), IMAGE], "Cy: Yes"))
    assert text_of(content) == "Ann: Hi\n\nBen: See\n\nCy: Yes"
    assert files_of(content) == [IMAGE]
    assert join_content("a", "b") == "a\n\nb"


def test_hidden_files_are_described() -> None:
    content: Content = [text_block("See"), IMAGE, block_of(PDF, "application/pdf", "file")]
    assert describe_content(content) == f"See\n{SHOWN}\n[file, 3 KB]"
    assert hide_files(content, lambda block: True) == (
        "See\n[image plan.png, 5 KB, not shown]\n[file, 3 KB, not shown]"
    )
    some = hide_files(content, lambda block: block["type"] == "file")
    assert files_of(some) == [IMAGE]
    assert describe_content(arrange_blocks([IMAGE])) == SHOWN
    assert describe_file(IMAGE) == "image plan.png, 5 KB"


def test_parts_of_a_result_that_are_not_accepted_are_named() -> None:
    parts: list[str | dict[str, Any]] = [
        "a",
        {"type": "image", "url": "http://x/y.png"},
        block_of(b"no image"),
        "b",
        block_of(PNG),
    ]
    kept = keep_inline(parts)
    assert text_of(kept) == "a\n[image, not shown]\n[image/png, not shown]\nb"
    assert len(files_of(kept)) == 1


def test_files_count_as_tokens_of_a_message() -> None:
    without = tokens_of_message(HumanMessage("See"))
    assert tokens_of_message(HumanMessage([text_block("See"), IMAGE])) == without + 1600
    speech = block_of(b"RIFF\0\0\0\0WAVE" + bytes(2_000_000), "audio/wav", "audio")
    assert tokens_of_files([speech]) == 4000


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../plans\\first.png", "first.png"),
        ("\u202egnp.exe.png", "_u202egnp.exe.png"),
        ("a\n5 KB].png", "a_n5 KB].png"),
        ("x" * 200 + ".png", "x" * 96 + ".png"),
        ("." + "x" * 200, "." + "x" * 99),
    ],
)
def test_the_name_of_a_file_is_clean_and_stays_when_it_is_read_again(name: str, shown: str) -> None:
    once = read_content([file_block(IMAGE["base64"], "image/png", name)], "message")
    assert name_of_file(files_of(once)[0]) == shown
    assert text_of(once) == f"[image {shown}, 5 KB]"
    assert read_content(once, "message") == once


@pytest.mark.parametrize("head", ["data:image/png;base64", "DATA:;BASE64"])
def test_the_bytes_of_a_data_address_are_read_without_opening_anything(head: str) -> None:
    url = f"{head},{IMAGE['base64']}"
    for block in ({"type": "image", "url": url}, {"type": "image_url", "image_url": {"url": url}}):
        assert read_content([block], "message") == read_content([PNG], "message")
    assert read_files([url], "images") == [block_of(PNG)]


@each_row("an_address_that_is_not_accepted_is_one_error", "address", "problem")
def test_an_address_that_is_not_accepted_is_one_error(address: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        read_files([address], "images")
