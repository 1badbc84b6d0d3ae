"""Phrases of many languages, read from ``phrases.toml`` when they are first used.

They are of thanks and farewells, of what changes a reply, and of what makes a verdict doubtful.
"""

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from itertools import filterfalse, product
from typing import Any, NamedTuple

APOSTROPHES = "'’‘ʼ`´′"  # noqa: RUF001
"""The characters that are typed for an apostrophe; words are the same with and without."""

# In a script without spaces a sign is a word.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|(?:(?![\u3040-\u30ff\u3400-\u9fff])[^\W_])+")
# A Turkish letter, too, that is another one in capitals.
_NO_APOSTROPHES = str.maketrans("ı", "i", APOSTROPHES)  # noqa: RUF001


class Courtesy(NamedTuple):
    """A kind of courtesy: what makes one, and what may stand around it."""

    openers: tuple[str, ...]
    """Phrases that make a sentence a courtesy."""
    tail: str
    """Words that may stand around an opener, in any order."""
    topic: str
    """Words of the tail after which a few words of any kind name what the courtesy is about."""


class Doubts(NamedTuple):
    """The phrases that make a judge's "yes" or "met" doubtful, each as its words."""

    conditions: frozenset[tuple[str, ...]]
    """Anywhere in its first sentence: a condition."""
    harmless: frozenset[tuple[str, ...]]
    """Phrases with the same words that are none."""
    partly: frozenset[tuple[str, ...]]
    """At the beginning of a clause: only a part, or not yet."""
    denied: frozenset[tuple[str, ...]]
    """At the beginning of a clause: a part is not."""
    denied_last: frozenset[tuple[str, ...]]
    """At the end of a clause: the same."""
    left: frozenset[tuple[str, ...]]
    """Anywhere in a clause, unless it is denied: something is left."""
    going_on: frozenset[tuple[str, ...]]
    """Anywhere in a clause, unless it is denied: the speaker goes on."""
    denials: frozenset[str]
    """Words that deny."""
    joins: frozenset[str]
    """Words that a clause may begin with, whatever it says."""
    topics: frozenset[str]
    """Words after which a "yes" is about a part."""
    whole: frozenset[str]
    """Words that make this part the whole."""


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
    doubts: Doubts
    """The phrases that make a verdict doubtful."""


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
        doubts=_doubts_of(found["doubts"]),
    )


def _doubts_of(found: Mapping[str, Any]) -> Doubts:
    def known(name: str) -> frozenset[tuple[str, ...]]:
        return frozenset(spellings(found[name]))

    def words(name: str) -> frozenset[str]:
        return frozenset(words_of(found[name]))

    return Doubts(
        conditions=known("conditions"),
        harmless=known("harmless"),
        partly=known("partly"),
        denied=known("denied"),
        denied_last=known("denied_last"),
        left=known("left"),
        going_on=known("going_on"),
        denials=words("denials"),
        joins=words("joins"),
        topics=words("topics"),
        whole=words("whole"),
    )


def words_of(text: str) -> list[str]:
    """Return the words of a text, without case, accents and apostrophes."""
    apart = unicodedata.normalize("NFKD", text.translate(_NO_APOSTROPHES))
    letters = "".join(filterfalse(unicodedata.combining, apart))
    return _WORD.findall(letters.casefold())


def spellings(found: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield every way to spell out the alternatives of these phrases, in words."""
    for phrase in found:
        # The words first, then the spellings: there are many more of them.
        bare = re.sub(r"[^(|) ]+", lambda word: " ".join(words_of(word[0])), phrase)
        parts = re.split(r"\(([^)]*)\)", bare)
        choices = (part.split("|") if place % 2 else [part] for place, part in enumerate(parts))
        for choice in product(*choices):
            words = tuple("".join(choice).split())
            if words:
                yield words
