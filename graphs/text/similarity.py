"""Comparisons of texts: blank texts, equal texts, nearly equal texts.

Pure rules, without a model. In doubt the result is False: a guard that ends a conversation too late
costs a few calls, one that ends it too early loses its result.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable
from functools import lru_cache
from typing import Final

from rapidfuzz import process
from rapidfuzz.distance import Indel

from .farewells import FACE, is_farewell
from .words import APOSTROPHES, phrases, words_in

__all__ = [
    "Texts",
    "asks",
    "is_blank",
    "is_equal",
    "is_farewell",
    "is_same",
    "is_same_move",
    "is_short",
    "key_of",
    "plain",
]

SHORT_WORDS = 5
"""Replies with fewer words may be repeated, such as "higher" in a game."""

NEARLY = 0.95
"""The similarity from which two texts are nearly equal."""

_LONG = 10_000
"""Longer texts, in characters, are compared word by word."""

asks: Final = re.compile(
    r"[?？؟՞\u037e]"  # noqa: RUF001
    # Ends of questions without a question mark: in Greek a character that looks like a semicolon,
    # in Japanese and Chinese a particle.
    r"|(?<=[\u0370-\u03ff\u1f00-\u1fff]);"
    r"|[か吗嗎](?=[」』”\"')）\s]*(?:[。．.…\n]|\Z))"  # noqa: RUF001
).search
"""Searches for the end of a question in a text."""

_HOLLOW = frozenset("+<=>|~\u2800\u3164\u115f\u1160\uffa0\ufffd")
"""Invisible or decorative characters that Unicode does not mark as such."""

_SIGN = re.compile(r"[^\w\s]|_")
_SENTENCE_END = re.compile(r"[.!?:;…。\n]+")
_CODE = re.compile(r"```(.*?)(?:```|\Z)|`([^`\n]+)`", re.DOTALL)
_QUOTED = re.compile(r"\"([^\"\n]+)\"|“([^”\n]+)”|«([^»\n]+)»|„([^“”\n]+)[“”]|「([^」\n]+)」")
_NAME = re.compile(r"(?<=[a-z,;] )[A-ZÀ-Þ]\w+")
# Operators between numbers count: "7 + 5" is not "7 - 5".
_NUMBER = re.compile(
    r"(?<![\w)])[-−–]?\d+(?:[.,:/]\d+)*(?:\s*[-+*/^×÷−–<>=%]+(?=\s*[-(]?\d))?"  # noqa: RUF001
    r"|\d+(?:[.,:/]\d+)*"
)
# Emoji that plain text keeps, and numerals that are letters.
_SYMBOL = re.compile(r"[^\w\s]|[零〇一二三四五六七八九十百千万億]")
_LABEL = re.compile(r"(?<!['’])\b[B-HJ-Z]\b(?!['’])")  # noqa: RUF001

_DENSE_GAP = re.compile(r"(?<=[\u3005-\u30ff\u3400-\u9fff]) +(?=[\u3005-\u30ff\u3400-\u9fff])")


def is_blank(text: str) -> bool:
    """Return whether a text is blank: white space, invisible characters, punctuation, Markdown."""
    return FACE.search(text) is None and all(map(_is_hollow, set(text)))


def is_same(one: str, other: str) -> bool:
    """Return whether two replies of one speaker are equal, or nearly equal."""
    if is_short(one) or is_short(other):
        return False
    first, second = plain(one), plain(other)
    if first == second:
        return _is_equal(one, other)
    # The cheap check comes first: the lengths limit the similarity.
    if 2 * min(len(first), len(second)) < NEARLY * (len(first) + len(second)):
        return False
    if not _is_near(first, second):
        return False
    return _facts(one) == _facts(other) and not _moved(one, other)


class Texts:
    """A collection of texts that finds equal ones without comparing every pair."""

    def __init__(self) -> None:
        # Equal texts have the same words, or similar words and the same facts.
        self._by_words = defaultdict[str, dict[str, None]](dict)
        self._by_facts = defaultdict[Hashable, dict[str, str | None]](dict)

    def add(self, text: str) -> None:
        """Add a text."""
        if is_short(text):
            return
        bare = plain(text)
        self._by_words[bare][text] = None
        # Long texts are compared word by word, and so are texts of about that length.
        self._by_facts[_facts(text)][text] = None if len(bare) > NEARLY**2 * _LONG else bare

    def same_as(self, text: str) -> list[str]:
        """Return the added texts that `is_same` accepts as equal to a text, without duplicates."""
        if is_short(text):
            return []
        bare, known = plain(text), self._by_facts.get(_facts(text), {})
        scorer = Indel.normalized_similarity
        near = process.extract(bare, known, scorer=scorer, score_cutoff=NEARLY, limit=None)
        found = [*self._by_words.get(bare, ()), *(one for _, _, one in near)]
        found += [one for one, its in known.items() if its is None]
        return [one for one in dict.fromkeys(found) if is_same(one, text)]


def is_same_move(one: str, other: str) -> bool:
    """Return whether two texts contain the same numbers and options, unlike two moves of a game.

    The same answer to another guess, such as "Too high, try a lower number.", is no repetition.
    """
    return _moves(one) == _moves(other)


def is_equal(one: str, other: str) -> bool:
    """Return whether two texts are equal except for case, white space, punctuation and Markdown."""
    return plain(one) == plain(other) and _is_equal(one, other)


@lru_cache(maxsize=1024)
def key_of(text: str) -> Hashable:
    """Return a key that texts with the same words and the same code share."""
    return plain(text), *map(tuple, (*_moves(text), _code(text)))


def is_short(text: str) -> bool:
    """Return whether a text has fewer than `SHORT_WORDS` words, as `words_in` counts them."""
    return _words(text) < SHORT_WORDS


@lru_cache(maxsize=1024)
def plain(text: str) -> str:
    """Normalize a text for comparison: no case, punctuation, Markdown or extra white space."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    signs = {ord(sign): _plain_sign(sign) for sign in set(_SIGN.findall(folded))}
    words = " ".join(folded.translate(signs).split())
    return _DENSE_GAP.sub("", words)


@lru_cache(maxsize=1024)
def _words(text: str) -> float:
    return words_in(plain(text))


@lru_cache(maxsize=4096)
def _plain_sign(sign: str) -> str:
    category = unicodedata.category(sign)
    if sign in APOSTROPHES or category == "Cf" or "\ufe00" <= sign <= "\ufe0f":
        return ""
    kept = category[0] == "M" or (category in ("So", "Cn") and sign not in phrases().emoji)
    return sign if kept else " "


@lru_cache(maxsize=4096)
def _is_hollow(sign: str) -> bool:
    category = unicodedata.category(sign)
    if category == "Sk":
        return sign < "\U0001f000"  # above this are the skin tones of emoji
    if sign in _HOLLOW or category[0] in "ZP" or category in ("Cc", "Cf", "Cs"):
        return True
    box = "\u2500" <= sign <= "\u259f"
    return box or (category[0] == "M" and sign != "\u20e3")


def _is_equal(one: str, other: str) -> bool:
    """Return whether two texts with the same words also have the same numbers, labels and code."""
    code = _code(one), _code(other)
    return _moves(one) == _moves(other) and (code[0] == code[1] or not all(code))


@lru_cache(maxsize=1024)
def _moves(text: str) -> tuple[list[str], list[str]]:
    shown = unicodedata.normalize("NFKC", text)
    numbers = [re.sub(r"\s", "", found) for found in _NUMBER.findall(shown)]
    return numbers, _LABEL.findall(shown)


def _code(text: str) -> list[str]:
    found = (fence or inline for fence, inline in _CODE.findall(text))
    return [" ".join(code.split()) for code in found]


@lru_cache(maxsize=1024)
def _facts(text: str) -> Hashable:
    """Return the facts that nearly equal texts must share."""
    bare = plain(text)
    return (
        *map(tuple, _moves(text)),
        tuple(_code(text)),
        tuple(plain("".join(found)) for found in _QUOTED.findall(text)),
        frozenset(Counter(_NAME.findall(text)).items()),
        tuple(_SYMBOL.findall(bare)),
        frozenset(Counter(word for word in bare.split() if word in phrases().telling).items()),
    )


def _is_near(one: str, other: str) -> bool:
    if len(one) + len(other) > 2 * _LONG:
        words = one.split(), other.split()
        return Indel.normalized_similarity(*words, score_cutoff=NEARLY) >= NEARLY
    return Indel.normalized_similarity(one, other, score_cutoff=NEARLY) >= NEARLY


def _moved(one: str, other: str) -> bool:
    """Return whether two nearly equal texts differ in a whole sentence.

    In a game, for example, "Thank you, my next question is this: does it have fur?" has a sentence
    that is always the same, and a question that is a new move.
    """
    sentences = [Counter(map(plain, _SENTENCE_END.split(text))) for text in (one, other)]
    rests = [
        " ".join(left.elements())
        for left in (sentences[0] - sentences[1], sentences[1] - sentences[0])
    ]
    words = [Counter(rest.split()) for rest in rests]
    # An added or missing word is no move, but a replaced word is one.
    if not (words[0] - words[1] and words[1] - words[0]):
        return False
    return not _is_near(*rests)
