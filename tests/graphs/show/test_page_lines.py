"""The lines of a page: each speaker's roles and texts are those of its viewpoint."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from duologue.graphs.show.page import lines_of
from duologue.graphs.show.page_data import Heard, Line
from support.fork_help import run
from support.fork_talks import TALKS


@pytest.mark.part(2)
@pytest.mark.parametrize("name", TALKS)
def test_what_each_sees_on_the_page_is_what_stands_in_its_viewpoint(
    name: str, tmp_path: Path
) -> None:
    conversation, lines = TALKS[name]
    result = run(conversation, lines, store=f"memory:{tmp_path.name}")
    found = [*lines_of(result.conversation, result.messages)]
    for number, speaker in enumerate(conversation.names):
        heard: dict[str, str] = {"assistant": "", "user": ""}
        for seen_as, text in roles(found, number):
            heard[seen_as] += text
        told = {"assistant": "", "user": ""}
        for message in result.viewpoint(speaker)[1:]:
            if (role := {"ai": "assistant", "human": "user"}.get(message.type)) is not None:
                told[role] += message.text
        assert {role: letters(text) for role, text in heard.items()} == {
            role: letters(text) for role, text in told.items()
        }


def roles(lines: Sequence[Line], number: int) -> Iterator[tuple[str, str]]:
    """Yield the lines that a speaker sees, each with its role."""
    for line in lines:
        role = line.roles.get(number)
        if role in ("assistant", "user"):
            heard = next((one for one in line.heard if number in one.by), Heard(by=()))
            text = line.text if heard.instead is None else heard.instead
            yield role, heard.before + text


def letters(text: str) -> str:
    return "".join(text.replace("(empty message)", "").split())
