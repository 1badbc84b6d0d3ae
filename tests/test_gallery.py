"""The conversations of the gallery end as their page states, and use their whole scripts."""

import re
from pathlib import Path

import pytest

from play import PAGE, conversations, play, write_pages
from replies import ANSWERS, REPLIES

ENDS = dict(
    re.findall(r"^\| \[.*\]\(#([\w-]*)\) \|.*\| `(\w+)` \|$", PAGE.read_text("utf-8"), re.M)
)
CONVERSATIONS = conversations()


def test_there_are_eight_which_end_for_different_reasons() -> None:
    assert [*ENDS] == [*CONVERSATIONS] == [*REPLIES]
    assert len(set(ENDS.values())) == 8
    assert ANSWERS.keys() <= REPLIES.keys()


@pytest.mark.part(3)
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_it_ends_as_the_page_says(name: str) -> None:
    result = play(name, CONVERSATIONS[name], f"memory:{name}")
    assert result.outcome
    assert result.outcome.reason == ENDS[name]
    assert 4 <= len(result.transcript) <= 14
    assert sum(used.calls for used in result.outcome.usage.values()) == len(REPLIES[name])


def test_each_has_a_page(tmp_path: Path) -> None:
    write_pages(tmp_path)
    pages = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert pages.keys() == CONVERSATIONS.keys()
    assert all(ENDS[name].replace("_", " ") in page for name, page in pages.items())
