"""The corpus: replies and conversations as models and people write them, with expected results.

Each file is a list of rows, to which rows can be added. `tests/graphs/text/test_corpus.py` reads
them.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

Transcript = list[tuple[str, str]]
"""Speakers and messages in order."""


class Talk(NamedTuple):
    """A conversation."""

    name: str
    said: Transcript
    guard: str | None
    """The guard that ends it at its last message. No guard does if None."""


@cache
def table(name: str) -> dict[str, Any]:
    """Read a file of the corpus."""
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))


def rows(name: str, what: str) -> list[Any]:
    """Return the rows of a file with this result."""
    found: list[Any] = table(name)[what]
    return found


def talks(name: str) -> list[Talk]:
    """Return the conversations of a file."""
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
"""Correct conversations of every kind, by name."""

ENDLESS = talks("endless")
"""Faulty conversations, each with the guard that ends it at its last message."""
