"""The corpus: replies and conversations as models and people write them, and what each gives.

Each file is a list of rows. A row more is a line more in its file; what reads the rows of a file
stands in `tests/graphs/text/test_corpus.py`.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

Transcript = list[tuple[str, str]]
"""Who said what, in order."""


class Talk(NamedTuple):
    """A conversation."""

    name: str
    said: Transcript
    guard: str | None
    """What ends it, at its last message. None: it goes well."""


@cache
def table(name: str) -> dict[str, Any]:
    """Read a file of the corpus."""
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))


def rows(name: str, what: str) -> list[Any]:
    """Give the rows of a file that give the same."""
    found: list[Any] = table(name)[what]
    return found


def talks(name: str) -> list[Talk]:
    """Give the conversations of a file."""
    return [Talk(talk["name"], _said(talk), talk.get("guard")) for talk in table(name)["talks"]]


def _said(talk: dict[str, Any]) -> Transcript:
    before = [(speaker, text) for speaker, text in talk.get("before", [])]
    rounds = [
        (speaker, text.replace("{n}", str(number)))
        for number in range(1, talk.get("rounds", 1) + 1)
        for speaker, text in talk["said"]
    ]
    return before + rounds


ORDINARY = {talk.name: talk.said for talk in talks("ordinary")}
"""Conversations of every kind that go well, by what they are."""

ENDLESS = talks("endless")
"""Conversations that go wrong, each with the guard that ends it at its last message."""
