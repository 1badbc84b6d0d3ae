"""Phrases of many languages, read from files at their first use, and their search in words.

``courtesies.toml`` contains the phrases of thanks, farewells and closings, and describes how to add
a language. ``phrases.toml`` contains emoji of farewells, words that change a reply, and words of
denial. ``remarks.toml`` contains the phrases with which models announce or describe a message
instead of writing it.
"""

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cache, lru_cache
from importlib.resources import files
from itertools import chain, product
from typing import Any, NamedTuple

from .words import words_and_commas, words_of

_CHUNK = re.compile(r"(?:[^\s()]|\([^()]*\))+")
_BRACKETS = re.compile(r"\(([^()]*)\)")


class Kind(IntEnum):
    """The function of a phrase in a farewell. For a shared phrase, the higher kind applies."""

    FILLER = 0
    """Accompanies a courtesy, but is not a courtesy alone."""
    ASSENT = 1
    """Requires a courtesy other than thanks without a reason."""
    NEGATION = 2
    """Requires a courtesy after it."""
    ANSWER = 3
    """A courtesy after a negation, otherwise a filler."""
    OPENER = 4
    """A courtesy alone."""
    PREFIX = 5
    """Requires a courtesy after it in the same clause."""


class Part(NamedTuple):
    """The function of a phrase, and the words that may surround it in its sentence."""

    kind: Kind
    tail: frozenset[str] = frozenset()
    """Words that may surround the phrase, in any order."""
    topic: frozenset[str] = frozenset()
    """Words after which a few words of any kind name the subject of the courtesy."""


class Phrase(NamedTuple):
    """A phrase in all its spellings."""

    chunks: Sequence[Sequence[list[str]]]
    """The alternatives of each chunk, in words."""
    part: Part
    """The function of the phrase."""

    @property
    def first_words(self) -> set[str]:
        """The words with which the phrase can begin."""
        found = set[str]()
        for choices in self.chunks:
            found.update(choice[0] for choice in choices if choice)
            if all(choices):
                break
        return found


class Courtesies(NamedTuple):
    """The phrases of all languages."""

    phrases: Mapping[str, Sequence[Phrase]]
    """The phrases by each word with which they can begin."""
    words: frozenset[str]
    """All words of phrases, tails and topics, and the comma."""
    stops: frozenset[str]
    """Words that end a topic."""
    thanks: frozenset[str]
    """Words of thanks."""
    sign_offs: tuple[str, ...]
    """Endings of the line above a signature."""


@cache
def load_table(name: str) -> dict[str, Any]:
    """Read a file of phrases in this folder."""
    return tomllib.loads((files(__package__) / name).read_text(encoding="utf-8"))


@cache
def load_words(file: str, name: str) -> frozenset[str]:
    """Return the words of an entry in a file of phrases."""
    return frozenset(words_of(load_table(file)[name]))


@cache
def load_phrases(file: str, *names: str) -> frozenset[tuple[str, ...]]:
    """Return all spellings of the phrases in some entries of a file, each as its words."""
    return frozenset(chain.from_iterable(spellings(load_table(file)[name]) for name in names))


@cache
def load_entries(file: str, *names: str) -> frozenset[str]:
    """Return the items of some entries of a file, as they are written."""
    return frozenset(chain.from_iterable(load_table(file)[name] for name in names))


@cache
def courtesies() -> Courtesies:
    """Read ``courtesies.toml`` at its first use."""
    found, words = defaultdict[str, list[Phrase]](list), {","}
    stops, thanks, sign_offs = set[str](), set[str](), list[str]()
    split = cache(words_and_commas)  # most alternatives are in several phrases
    for language in load_table("courtesies.toml")["languages"]:
        for part, phrases in _parts_of(language):
            words |= part.tail | part.topic
            for text in phrases:
                phrase = Phrase([*spellings_by_chunk(text, split)], part)
                words.update(chain.from_iterable(chain.from_iterable(phrase.chunks)))
                for word in phrase.first_words:
                    found[word].append(phrase)
        stops.update(words_of(language.get("stops", "")))
        thanks.update(words_of(language.get("thanks", "")))
        sign_offs += (" ".join(words_of(each)) for each in language.get("sign_offs", ()))
    return Courtesies(
        found, frozenset(words), frozenset(stops), frozenset(thanks), tuple(sign_offs)
    )


def _parts_of(language: dict[str, Any]) -> Iterable[tuple[Part, Iterable[str]]]:
    """Yield each part of a language with its phrases."""
    yield Part(Kind.FILLER), language.get("fillers", ())
    yield Part(Kind.FILLER), language.get("filler_words", "").split()
    closing = language.get("closing", {})
    tail = frozenset(words_of(closing.get("tail", "")))
    yield Part(Kind.ASSENT), closing.get("assents", ())
    yield Part(Kind.NEGATION), closing.get("negations", ())
    yield Part(Kind.ANSWER, tail), closing.get("answers", ())
    yield Part(Kind.OPENER, tail), closing.get("openers", ())
    for courtesy in language["courtesies"]:
        topic = frozenset(words_of(courtesy.get("topic", "")))
        tail = frozenset(words_of(courtesy.get("tail", "")))
        yield Part(Kind.OPENER, tail, topic), courtesy["openers"]
        yield Part(Kind.PREFIX, tail, topic), courtesy.get("prefixes", ())


@cache
def parts_by_spelling(word: str) -> tuple[dict[tuple[str, ...], Part], int]:
    """Return the parts by the spellings of all phrases that begin with a word.

    Returns:
        The parts, and the number of words of the longest spelling.
    """
    # Only at the first use of the word: to spell all phrases takes as long as to read the file.
    found: dict[tuple[str, ...], Part] = {}
    for (first, *rest), part in courtesies().phrases[word]:
        first = [choice for choice in first if choice[:1] in ([], [word])]
        for choices in product(first, *rest):
            spelling = (*chain.from_iterable(choices),)
            if spelling[:1] == (word,):
                found[spelling] = _merged(found.get(spelling), part)
    return found, max(map(len, found))


def _merged(known: Part | None, part: Part) -> Part:
    """Return the part of a phrase that several languages share."""
    if known is None or known == part:
        return part
    return Part(max(known.kind, part.kind), known.tail | part.tail, known.topic | part.topic)


def spellings(found: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield every spelling of these phrases, in words."""
    for phrase in found:
        for choice in product(*spellings_by_chunk(phrase)):
            words = tuple(chain.from_iterable(choice))
            if words:
                yield words


def spellings_by_chunk(
    phrase: str, split: Callable[[str], list[str]] = words_of
) -> Iterator[list[list[str]]]:
    """Yield the alternatives of each chunk of a phrase, in words.

    A chunk ends at a space outside brackets: "(a|) good obrigad(o|a)" has three chunks.
    """
    for chunk in _CHUNK.findall(phrase):
        parts = _BRACKETS.split(chunk)
        choices = (part.split("|") if place % 2 else [part] for place, part in enumerate(parts))
        yield [split("".join(choice)) for choice in product(*choices)]


def phrase_length(words: Sequence[str], place: int, phrases: frozenset[tuple[str, ...]]) -> int:
    """Return the number of words of the longest phrase at a place, or 0."""
    sizes = range(min(_longest(phrases), len(words) - place), 0, -1)
    return next((size for size in sizes if (*words[place : place + size],) in phrases), 0)


def last_phrase_length(words: Sequence[str], phrases: frozenset[tuple[str, ...]]) -> int:
    """Return the number of words of the longest phrase at the end of some words, or 0."""
    sizes = range(min(_longest(phrases), len(words)), 0, -1)
    return next((size for size in sizes if (*words[-size:],) in phrases), 0)


def has_phrase(words: Sequence[str], phrases: frozenset[tuple[str, ...]]) -> bool:
    """Return whether some words contain one of these phrases."""
    return any(phrase_length(words, place, phrases) for place in range(len(words)))


@lru_cache
def _longest(phrases: frozenset[tuple[str, ...]]) -> int:
    return max(map(len, phrases), default=0)
