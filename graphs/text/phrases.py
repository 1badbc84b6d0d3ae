"""The words of thanks and farewells, read from ``phrases.toml`` when they are first used."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Courtesy(NamedTuple):
    """A kind of courtesy: what makes one, and what may stand around it."""

    openers: tuple[str, ...]
    """Phrases that make a sentence a courtesy."""
    tail: str
    """Words that may stand around an opener, in any order."""
    topic: str
    """Words of the tail after which a few words of any kind name what the courtesy is about."""


class Phrases(NamedTuple):
    """What the file holds."""

    courtesies: tuple[Courtesy, ...]
    """What makes a sentence a courtesy, in sixteen languages."""
    fillers: tuple[str, ...]
    """What may stand around a courtesy, and is none by itself."""
    stops: str
    """What no topic goes on with: something else begins."""
    sign_offs: tuple[str, ...]
    """What the line above a signature ends with."""
    smiles: frozenset[str]
    """Emoji that are a courtesy by themselves."""
    emoji: frozenset[str]
    """All that may stand in a courtesy."""
    telling: frozenset[str]
    """Words that make another statement of a reply that is otherwise the same, such as "not"."""


@cache
def phrases() -> Phrases:
    """Read the file, once."""
    found = tomllib.loads((files(__package__) / "phrases.toml").read_text(encoding="utf-8"))
    return Phrases(
        courtesies=tuple(
            Courtesy(
                tuple(one["openers"]),
                one["tail"],
                one.get("topic", ""),
            )
            for one in found["courtesies"]
        ),
        fillers=(*found["fillers"], *found["filler_words"].split()),
        stops=found["stops"],
        sign_offs=tuple(found["sign_offs"]),
        smiles=frozenset(found["smiles"]),
        emoji=frozenset(found["smiles"] + found["decoration"]),
        telling=frozenset(found["telling"].casefold().split()),
    )
