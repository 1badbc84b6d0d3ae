"""Comparing texts: blank, a farewell, the same as another.

Pure rules, without a model. Where they cannot be sure they say no: a conversation that a guard ends
too late has cost a few calls, one that it ends too early has lost its result.
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
"""A reply of fewer words may be said again and again, such as "higher" in a game."""

NEARLY = 0.95
"""From this similarity on two texts are nearly the same."""

_LONG = 10_000
"""Longer texts, in characters, are compared word by word."""

asks: Final = re.compile(
    r"[?？؟՞\u037e]"  # noqa: RUF001
    # What ends a question without a sign of its own: in Greek what looks like a semicolon, in
    # Japanese and Chinese a particle.
    r"|(?<=[\u0370-\u03ff\u1f00-\u1fff]);"
    r"|[か吗嗎](?=[」』”\"')）\s]*(?:[。．.…\n]|\Z))"  # noqa: RUF001
).search
"""Finds where a text asks something."""

_HOLLOW = frozenset("+<=>|~\u2800\u3164\u115f\u1160\uffa0\ufffd")
"""Characters that show nothing or only decorate, though their category says otherwise."""

_SIGN = re.compile(r"[^\w\s]|_")
_SENTENCE_END = re.compile(r"[.!?:;…。\n]+")
_CODE = re.compile(r"```(.*?)(?:```|\Z)|`([^`\n]+)`", re.DOTALL)
_QUOTED = re.compile(r"\"([^\"\n]+)\"|“([^”\n]+)”|«([^»\n]+)»|„([^“”\n]+)[“”]|「([^」\n]+)」")
_NAME = re.compile(r"(?<=[a-z,;] )[A-ZÀ-Þ]\w+")
# Signs count between numbers: "7 + 5" is not "7 - 5".
_NUMBER = re.compile(
    r"(?<![\w)])[-−–]?\d+(?:[.,:/]\d+)*(?:\s*[-+*/^×÷−–<>=%]+(?=\s*[-(]?\d))?"  # noqa: RUF001
    r"|\d+(?:[.,:/]\d+)*"
)
# What is left of emoji in plain text, and numerals that are letters.
_SYMBOL = re.compile(r"[^\w\s]|[零〇一二三四五六七八九十百千万億]")
_LABEL = re.compile(r"(?<!['’])\b[B-HJ-Z]\b(?!['’])")  # noqa: RUF001

_DENSE_GAP = re.compile(r"(?<=[\u3005-\u30ff\u3400-\u9fff]) +(?=[\u3005-\u30ff\u3400-\u9fff])")


def is_blank(text: str) -> bool:
    """Whether a text says nothing: white space, invisible characters, punctuation, Markdown."""
    return FACE.search(text) is None and all(map(_is_hollow, set(text)))


def is_same(one: str, other: str) -> bool:
    """Whether two replies of one speaker are the same, word by word or nearly."""
    if is_short(one) or is_short(other):
        return False
    first, second = plain(one), plain(other)
    if first == second:
        return _is_equal(one, other)
    # Cheap first: the similarity cannot be higher than the lengths allow.
    if 2 * min(len(first), len(second)) < NEARLY * (len(first) + len(second)):
        return False
    if not _is_near(first, second):
        return False
    return _facts(one) == _facts(other) and not _moved(one, other)


class Texts:
    """Texts, of which those that `is_same` as another one are found without comparing them all."""

    def __init__(self) -> None:
        # What is the same has the same words, or is near and has the same facts.
        self._by_words = defaultdict[str, dict[str, None]](dict)
        self._by_facts = defaultdict[Hashable, dict[str, str | None]](dict)

    def add(self, text: str) -> None:
        """Add a text."""
        if is_short(text):
            return
        bare = plain(text)
        self._by_words[bare][text] = None
        # Long ones are compared word by word, and then come near to others of about that length.
        self._by_facts[_facts(text)][text] = None if len(bare) > NEARLY**2 * _LONG else bare

    def same_as(self, text: str) -> list[str]:
        """Return the texts that are the same as this one, each once."""
        if is_short(text):
            return []
        bare, known = plain(text), self._by_facts.get(_facts(text), {})
        scorer = Indel.normalized_similarity
        near = process.extract(bare, known, scorer=scorer, score_cutoff=NEARLY, limit=None)
        found = [*self._by_words.get(bare, ()), *(one for _, _, one in near)]
        found += [one for one, its in known.items() if its is None]
        return [one for one in dict.fromkeys(found) if is_same(one, text)]


def is_same_move(one: str, other: str) -> bool:
    """Whether two texts hold the same numbers and options, as two moves of a game do not.

    The same answer to another guess, such as "Too high, try a lower number.", is no repetition.
    """
    return _moves(one) == _moves(other)


def is_equal(one: str, other: str) -> bool:
    """Whether two texts are the same but for case, white space, punctuation and Markdown."""
    return plain(one) == plain(other) and _is_equal(one, other)


@lru_cache(maxsize=1024)
def key_of(text: str) -> Hashable:
    """Give what texts have in common that are the same word by word, with the same code."""
    return plain(text), *map(tuple, (*_moves(text), _code(text)))


def is_short(text: str) -> bool:
    """Whether a text has fewer than `SHORT_WORDS` words; letters make words where spaces do not."""
    return _words(text) < SHORT_WORDS


@lru_cache(maxsize=1024)
def plain(text: str) -> str:
    """Normalise a text for comparison: no case, punctuation, Markdown or extra white space."""
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
        return sign < "\U0001f000"  # Beyond are the skin tones of emoji.
    if sign in _HOLLOW or category[0] in "ZP" or category in ("Cc", "Cf", "Cs"):
        return True
    box = "\u2500" <= sign <= "\u259f"
    return box or (category[0] == "M" and sign != "\u20e3")


def _is_equal(one: str, other: str) -> bool:
    """Whether two texts with the same words also have the same numbers, labels and code."""
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
    """What must be the same in texts that are nearly the same."""
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
    """Whether two texts that are nearly the same differ in a whole sentence.

    "Thank you, my next question is this: does it have fur?" is made of a form and a move.
    """
    sentences = [Counter(map(plain, _SENTENCE_END.split(text))) for text in (one, other)]
    rests = [
        " ".join(left.elements())
        for left in (sentences[0] - sentences[1], sentences[1] - sentences[0])
    ]
    words = [Counter(rest.split()) for rest in rests]
    # A word that only comes or goes is no move, one in another's place is.
    if not (words[0] - words[1] and words[1] - words[0]):
        return False
    return not _is_near(*rests)
