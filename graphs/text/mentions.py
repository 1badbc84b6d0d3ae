"""Distinction between texts that say a word and texts that only talk about it.

Pure functions.

``mentions.toml`` contains the phrases. In a doubtful sentence a word counts as a mention, which
ends nothing.
"""

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

from .farewells import is_farewell
from .sentences import (
    CLOSERS,
    EMPHASIS,
    JOINTS,
    PAIRS,
    content_end,
    is_decorative,
    is_unseen,
    last_sentence,
    line_start,
    unlabelled,
)
from .structures import Span
from .words import has_phrase, last_phrase_length, phrase_length, spellings, words_of

_CLAUSE: Final = re.compile(r"[,;，；、،]|\s[-–—]+\s|[–—]")  # noqa: RUF001
_OPEN: Final = " \t,;，；、،–—-"  # noqa: RUF001
"""The characters that may separate a clause from the word after it."""

_ITEM: Final = re.compile(r"\s*(?:[-*+•–]|\(?\d{1,2}[.)])\s*")  # noqa: RUF001
_COLON: Final = re.compile(r"[:：]\s*\Z")  # noqa: RUF001

_INNER_COLON: Final = re.compile(r"[:：](?=\s)")  # noqa: RUF001

# Scripts without spaces, in which phrases are searched by their letters.
_DENSE: Final = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")


def is_mention(sentence: str) -> bool:
    """Return whether a sentence that ends before a word asks about the word or names it.

    The result is also true if the sentence denies, plans or shows the word.
    """
    # Imported here: it loads libraries for comparing texts, and few conversations need it.
    from .similarity import asks

    if _COLON.search(sentence):
        return is_shown(sentence)
    if _ITEM.fullmatch(sentence) or asks(sentence):
        return True
    # A new sentence begins after a colon.
    sentence = _INNER_COLON.split(sentence)[-1]
    clauses = _CLAUSE.split(sentence.rstrip(_OPEN))
    words, begin = words_of(sentence), words_of(clauses[0])
    is_about = bool(
        _is_object(words)
        or _has(words, _words().anywhere)
        # "Si, ..." can be a yes written without its accent.
        or (_begins(words, _words().first) and not (len(clauses) > 1 and len(begin) < 2))
        or (words and _words().connectives.issuperset(words))
    )
    # "I don't need more, thanks" talks about something else.
    return is_about and not (is_farewell(sentence) or is_farewell(clauses[-1]))


def is_shown(before: str) -> bool:
    """Return whether a text announces the word directly after it, on the same or the next line."""
    words = words_of(before)
    if _COLON.search(before) and not _words().shown.isdisjoint(words):
        return True
    return _is_object(words) and not is_farewell(before)


class _Words(NamedTuple):
    before: "_Phrases"
    anywhere: "_Phrases"
    first: "_Phrases"
    fillers: frozenset[str]
    determiners: frozenset[str]
    nouns: "_Phrases"
    connectives: frozenset[str]
    shown: frozenset[str]


class _Phrases(NamedTuple):
    spaced: frozenset[tuple[str, ...]]
    """Phrases of scripts with spaces, as their words."""
    dense: tuple[str, ...]
    """Phrases of the other scripts, as their letters."""


@cache
def _words() -> _Words:
    path = files(__package__) / "mentions.toml"
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    return _Words(
        before=_phrases(found["before"]),
        anywhere=_phrases(found["anywhere"]),
        first=_phrases(found["first"]),
        fillers=frozenset(words_of(found["fillers"])),
        determiners=frozenset(words_of(found["determiners"])),
        nouns=_phrases(found["nouns"].split()),
        connectives=frozenset(words_of(found["connectives"])),
        shown=frozenset(words_of(found["shown"])),
    )


def _phrases(given: Iterable[str]) -> _Phrases:
    known = {True: set[tuple[str, ...]](), False: set[tuple[str, ...]]()}
    for phrase in given:
        for words in spellings([phrase]):
            known[_DENSE.search("".join(words)) is not None].add(words)
    dense = tuple("".join(words) for words in known[True])
    return _Phrases(frozenset(known[False]), dense)


def _is_object(words: Sequence[str]) -> bool:
    """Return whether the last of these words governs the next one, as in "reply with the word"."""
    table, end = _words(), len(words)
    while end:
        size = _ends(words[:end], table.before)
        if size and not _is_noun(words[:end]):
            return True
        if words[end - 1] not in table.fillers:
            return False
        end -= 1
    return False


def _is_noun(words: Sequence[str]) -> bool:
    """Return whether the last of these words is a noun, as in "thanks for your answer"."""
    size = _ends(words, _words().nouns)
    return 0 < size < len(words) and words[-size - 1] in _words().determiners


def _ends(words: Sequence[str], known: _Phrases) -> int:
    """Return the number of words in the phrase at the end of these words, or 0."""
    size = last_phrase_length(words, known.spaced)
    if size:
        return size
    letters = "".join(words[-_FEW:])
    found = max((len(one) for one in known.dense if letters.endswith(one)), default=0)
    # In these scripts each character is a word, or the text after them does not matter.
    return min(found, len(words))


_FEW: Final = 12
"""A number of words that no phrase of a script without spaces exceeds."""


def _begins(words: Sequence[str], known: _Phrases) -> bool:
    letters = "".join(words[:_FEW])
    return bool(phrase_length(words, 0, known.spaced)) or letters.startswith(known.dense)


def _has(words: Sequence[str], known: _Phrases) -> bool:
    if has_phrase(words, known.spaced):
        return True
    letters = "".join(words)
    return any(one in letters for one in known.dense)


# Scripts without spaces, in which words may touch.
DENSE: Final = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff]"

_IN_BRACKETS: Final = re.compile(r"([<\[{(]+)([^<>\[\]{}()]+)([>\]})]+)")

_UNSEEN: Final = r"(?:[^\S\n]|[\u200b-\u200f\u2060\ufeff])*"

_LAST: Final = 200
"""Number of characters at the end of a text that are searched for a word in another case."""


class Spelling(NamedTuple):
    """The patterns that find a word in a text."""

    word: str
    """The word."""
    exact: re.Pattern[str]
    """The whole word, in this case."""
    loose: re.Pattern[str]
    """The whole word, in any case."""
    line: re.Pattern[str]
    """A line that contains nothing else, in this case."""
    core: str
    """The part that every match contains: the word, or the word without its brackets."""

    def may_be_in(self, text: str) -> bool:
        """Return whether a text could contain the word. This is much faster than searching."""
        return self.core in text or self.core.lower() in text.rstrip()[-_LAST:].lower()

    def is_all_of(self, text: str) -> bool:
        """Return whether a text is only the word, in any case and decorated."""
        return self.loose.search(text) is not None and is_decorative(self.loose.sub(" ", text))


def is_ordinary(word: str) -> bool:
    """Return whether a word consists of letters and digits alone."""
    # Vowel signs are marks, but belong to words.
    return all(unicodedata.category(sign)[0] in "LMN" for sign in word)


@lru_cache
def spelling(word: str) -> Spelling:
    """Return the patterns that find a word.

    The brackets of a word are optional unless the word inside is ordinary: "TASK_DONE" matches
    "<TASK_DONE>", but "done" does not match "<done>".
    """
    written, core = _as_whole(word), word
    in_brackets = _IN_BRACKETS.fullmatch(word)
    if in_brackets is not None and not is_ordinary(in_brackets[2].strip()):
        opening, core, closing = in_brackets.groups()
        # One bracket may be missing, as in an answer that a stop sequence has cut off.
        bare = f"(?:{re.escape(opening)})?{re.escape(core)}(?:{re.escape(closing)})?"
        written = rf"(?:{written}|(?<!\w){bare}(?!\w))"
    return Spelling(
        word,
        re.compile(written),
        re.compile(written, re.IGNORECASE),
        re.compile(rf"^{_UNSEEN}({written}){_UNSEEN}$", re.MULTILINE),
        core,
    )


def _as_whole(word: str) -> str:
    """Return the pattern of a word that is not a part of a longer word."""
    # An underscore can be emphasis, but within a word it is a letter.
    begin = "" if _is_open(word[:1]) else rf"(?:(?<![^\W_])(?<![^\W_]_)|(?<={DENSE}))"
    end = "" if _is_open(word[-1:]) else rf"(?:(?![^\W_])(?!_[^\W_])|(?={DENSE}))"
    return f"{begin}{re.escape(word)}{end}"


def _is_open(sign: str) -> bool:
    """Return whether a word with this first or last character may touch another word."""
    return re.fullmatch(rf"\W|{DENSE}", sign) is not None


NEAR: Final = 300
"""Maximum number of characters before a word that are examined."""

_ASKED: Final = re.compile(r"[^.!?。！？\n]{0,300}[?？؟]")  # noqa: RUF001
"""The rest of a question, up to its question mark."""

_GLUE: Final = re.compile(rf"[,;–—…，；、]|{DENSE}")  # noqa: RUF001
"""The characters after which a token needs no space."""

_LEADING: Final = JOINTS.union("([{<")
"""Signs before a token that mean nothing without it."""


class Part(NamedTuple):
    """A part of a text that others do not hear: a token and the punctuation around only it."""

    start: int
    end: int
    token: Span
    """The token's position."""
    kept: str = ""
    """Closing brackets and quotation marks within this part that were opened before it. They stay
    in the text.
    """


def find_everywhere(word: Spelling, text: str) -> Iterator[Part]:
    """Yield the places of a word, except those in questions."""
    for found in word.exact.finditer(text):
        start, end = found.span()
        if _ASKED.match(text, end) is None:
            while start and text[end : end + 1] and text[start - 1] == text[end] in EMPHASIS:
                start, end = start - 1, end + 1
            yield Part(start, end, found.span())


def find_lines(word: Spelling, text: str) -> Iterator[Part]:
    """Yield the lines that consist of a word alone, without any decoration."""
    for found in word.line.finditer(text):
        yield Part(*found.span(1), found.span(1))


def find_last_line(word: Spelling, text: str, name: str | None) -> Part | None:
    """Return the last line of a text if it is the word, in any case and decorated."""
    begin = line_start(text, content_end(text, word.core))
    found = [one.span() for one in word.loose.finditer(text, begin)]
    if len(found) != 1 or found[0][0] - begin > NEAR:
        return None
    start, end = found[0]
    rest = f"{unlabelled(text[begin:start], name)} {text[end:]}"
    if not is_decorative(rest) or is_announced(text, begin):
        return None
    _, closing = _unpaired(text, start, end)
    return Part(len(text[:begin].rstrip()), len(text), (start, end), _opened(closing, text[:begin]))


def find_closing(word: Spelling, text: str) -> Part | None:
    """Return the word at the end of a text, if the last sentence says it.

    The word must be a separate sentence, decorated or quoted, or follow a sentence that does not
    talk about it.
    """
    end = content_end(text, word.core)
    near = word.exact.finditer(text, max(0, end - len(word.word)))
    start, after = next((one.span() for one in near if one.end() >= end), (0, 0))
    if not after:
        return None
    bare = start
    while bare and text[bare - 1] in PAIRS:
        bare -= 1
    sentence = last_sentence(text[max(0, bare - NEAR) : bare], text[start])
    if not sentence.strip():
        is_about = line_start(text, bare) == bare - len(sentence) and is_announced(text, bare)
    else:
        is_about = not _is_bare(text, bare, start) or is_mention(sentence)
    if is_about:
        return None
    span = start, after
    start = _first_of(word.word, text, start)
    start, closing = _unpaired(text, start, after)
    while start and (text[start - 1] in _LEADING or is_unseen(text[start - 1])):
        start -= 1
    return Part(start, len(text), span, _opened(closing, text[:start]))


def _first_of(word: str, text: str, start: int) -> int:
    """Return the index of the first of several equal words, the last of which begins at `start`."""
    while True:
        end = start
        while end and (is_unseen(text[end - 1]) or text[end - 1] in ".!"):
            end -= 1
        if not text.endswith(word, 0, end):
            return start
        start = end - len(word)


def _is_bare(text: str, bare: int, start: int) -> bool:
    """Return whether a word is not quoted, in brackets, or glued to the text before it.

    Args:
        text: The text.
        bare: The index of the first punctuation mark directly before the word.
        start: The index of the word.
    """
    if not set(text[bare:start]) <= set(EMPHASIS):
        return False
    before = text[bare - 1] if bare else " "
    if is_unseen(before) or _GLUE.match(before):
        return True
    return not text[start].isalnum() and (before.isalnum() or before == ".")


def _unpaired(text: str, start: int, end: int) -> tuple[int, str]:
    """Find the pairs of brackets and quotation marks around a part of a text.

    Returns:
        The index of the outermost opening character, and the unpaired closing characters after the
        part.
    """
    closing = []
    for sign in text[end:]:
        if start and sign in PAIRS.get(text[start - 1], ""):
            start -= 1
        elif sign in CLOSERS:
            closing.append(sign)
    return start, "".join(closing)


def _opened(closing: str, before: str) -> str:
    """Return the closing brackets and quotation marks whose opening characters occur in a text."""
    known = {one for one in set(closing) if any(sign in before for sign in CLOSERS[one])}
    return "".join(one for one in closing if one in known)


def is_announced(text: str, start: int) -> bool:
    """Return whether the line above a place announces the word at this place."""
    begin = line_start(text, start)
    above = text[max(0, begin - NEAR) : begin].rstrip()
    sentence = last_sentence(above, " ")
    return bool(sentence) and is_shown(sentence)
