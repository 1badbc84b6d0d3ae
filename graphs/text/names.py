"""Names: reading the one that an answer chooses, and comparing how names look. Pure functions."""

import json
import re
import string
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from .phrases import load_words
from .structures import Json, UnreadableJsonError, fences, find_objects
from .words import WORD, fold, words_of

# ruff: noqa: RUF001

_PAIRS: Final = (
    # Cyrillic, Greek, Armenian and Cherokee letters, each with the Latin letter that looks like it.
    ("АВЕЅІЈКМНОРСТУХҮԌԚԜ", "ABESIJKMHOPCTYXYGQW"),
    ("аеорсухѕіјһԁԛԝѵ", "aeopcyxsijhdqwv"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϳο\u03bdρϲ", "ABEZHIKMNOPTYXCjovpc"),
    ("ՕօոսհԼ", "OonuhL"),
    ("ᎪᏴᎬᎻᏆᎫᏦᎷᏢᎡᏚᎢᏔᏃ", "ABEHIJKMPRSTWZ"),
    ("ıİɑɡ", "iIag"),
    ("‐‑‒–—−’ʼ", "------''"),
)
_LATIN: Final = {ord(one): latin for pair in _PAIRS for one, latin in zip(*pair, strict=True)}

_UNSEEN: Final = frozenset(
    (*"\u034f\u115f\u1160\u3164\uffa0\u17b4\u17b5", *map(chr, range(0xFE00, 0xFE10)))
)
"""Invisible characters that Unicode does not mark as such, and variation selectors."""


def normalize_look(name: str) -> tuple[str, str]:
    """Return a name's letters without case, and their Latin look-alikes.

    Two names look alike if they share one of these two values.
    """
    # Format characters, such as a zero-width space, are invisible, too.
    signs = (sign for sign in name if sign not in _UNSEEN and unicodedata.category(sign) != "Cf")
    seen = "".join(signs)
    shown = " ".join(unicodedata.normalize("NFKC", seen).split())
    return shown.casefold(), shown.translate(_LATIN).casefold()


_WORD: Final = re.compile(WORD)
_OWNER: Final = re.compile(r"['’]s\b")
_MARKS: Final = string.whitespace + "*_`\"'.:!#>@,()[]<>“”«»"
"""The characters that may surround a name."""
_NUMBER: Final = re.compile(r"\W*(?:[^\W\d]+\W+)?(\d{1,3})\W*")
"""An answer that is only a number, such as "2." or "Option 2"."""
_NUMBERED: Final = re.compile(r"[^\w\n]*(\d{1,3})[.):]\s+(.*)")
"""A line of a numbered list."""
_LABEL: Final = re.compile(
    r"(?:\A|[.!?。！？\n])[^\w\n]*(?:\d{1,3}[.):])?[^\w\n]*([^\n.!?]*:)?[^\w\n]*\Z"
)
"""The text before a name that is a separate sentence: a mark of a list, or a label."""
_ENDED: Final = re.compile(r"[^\w\n.!?]*(?:[.!。！\n]|\Z)")
"""The text after such a name."""
_LETTER: Final = r"[^\W_\u1100-\u11ff\u3040-\u9fff]"
"""A letter of a script with spaces between words. A name in a text is no part of a longer word."""
_CLAUSE_END: Final = re.compile(r"[.!?;,。！？，；\n]")
_EXCLUDED: Final = re.compile(
    r"\b(?:(?:is|are|was|were|do|does|did|has|have|wo|would|should|could|must|need)nt|except|besides|"
    r"instead of|(?:rather|other) than|(?:(?:any|every)(?:one|body)|all) but)\b"
)
"""Words that deny a name, in a folded text."""
_REACH: Final = 3
"""Number of words after a name in which a denial refers to it."""


def read_name(
    text: str, names: Sequence[str], others: Sequence[str] = (), *, listed: str = ""
) -> str | None:
    """Return the one name that an answer chooses, or None if it chooses none or several.

    Case and marks around a name do not matter, and the longest matching name counts. An answer is
    read by the first of these rules that applies:

    1. It is only a name, or only the number of a name in a numbered list of the prompt.
    2. It is or contains JSON: one value is only a name, or one value with "next" in its key. A
       single value may be a sentence.
    3. One name is a sentence or a line of its own, apart from a list marker or a label ("Next:").
    4. It mentions one name, and does not deny it ("anyone but Ann").

    Args:
        text: The answer, without thoughts.
        names: The names that may be chosen.
        others: Names that can't be chosen. An answer that mentions them may be ambiguous.
        listed: The prompt, which may number the names.
    """
    if text in names:
        return text
    found = _Reader(tuple(dict.fromkeys((*names, *others))), listed).read(text)
    return found if found in names else None


@lru_cache(256)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str] | None:
    """Return a pattern that finds the longest of these names in a folded text."""
    written = sorted(filter(None, map(_write_pattern, names)), key=len, reverse=True)
    return re.compile("|".join(written)) if written else None


def _write_pattern(name: str) -> str:
    """Return the pattern of a name in a folded text, with any spaces or joins between its words."""
    folded = _fold(name)
    words = [*_WORD.finditer(folded)]
    pattern, end = "", None
    for word in words:
        if end is not None:
            pattern += f"(?:{re.escape(folded[end : word.start()])}|[ \t_-]*)"
        pattern, end = pattern + word.group(), word.end()
    return f"(?<!{_LETTER}){pattern}(?!{_LETTER})" if words else ""


def _fold(text: str) -> str:
    return fold(_OWNER.sub(" ", text))


def _make_key(text: str) -> str:
    return "".join(words_of(_OWNER.sub(" ", text)))


class _Reader:
    """A reader of answers that choose among these names."""

    def __init__(self, names: tuple[str, ...], listed: str = "") -> None:
        self._names = names
        self._keys: dict[str, str | None] = {}
        for name in names:
            # Names that differ only in their marks, such as C and C++, must be written exactly.
            key = _make_key(name)
            self._keys[key] = None if key in self._keys else name
        self._numbers: dict[str, str | None] = {}
        for line in listed.splitlines():
            numbered = _NUMBERED.fullmatch(line)
            first = next(self._find_mentions(numbered[2]), None) if numbered else None
            if numbered and first and not _make_key(first[0]):
                number, found = numbered[1].lstrip("0"), first[1]
                is_known = self._numbers.get(number, found) == found
                self._numbers[number] = found if is_known else None

    def read(self, text: str) -> str | None:
        """Return the name that an answer chooses, or None."""
        contents = [fence.content for fence in fences(text)[1]]
        text = contents[0] if len(contents) == 1 else text
        alone = self._match_whole(text)
        if alone is not None:
            return alone
        try:
            values = _read_json(text)
        except (UnreadableJsonError, RecursionError):
            return None
        return self._choose_in_text(text) if values is None else self._choose_in_json(values)

    def _match_whole(self, text: str) -> str | None:
        """Return the name or the number that a text consists of, or None."""
        for exact in (text.strip(), text.strip(_MARKS)):
            if exact in self._names:
                return exact
        if (key := _make_key(text)) and key in self._keys:
            return self._keys[key]
        number = _NUMBER.fullmatch(text)
        return self._numbers.get(number[1].lstrip("0")) if number else None

    def _choose_in_json(self, values: Sequence[tuple[str, str]]) -> str | None:
        following = [text for path, text in values if "next" in path.casefold()]
        for texts in (following, [text for _, text in values]):
            chosen = {name for text in texts if (name := self._match_whole(text)) is not None}
            if chosen:
                return chosen.pop() if len(chosen) == 1 else None
        return self._choose_in_text(values[0][1]) if len(values) == 1 else None

    def _choose_in_text(self, text: str) -> str | None:
        found = [*self._find_mentions(text)]
        alone = {name for before, name, after in found if self._is_apart(before, after)}
        if len(alone) == 1:
            return alone.pop()
        named = {name for _, name, _ in found}
        if len(named) != 1 or any(_is_denied(before, after) for before, _, after in found):
            return None
        return named.pop()

    def _is_apart(self, before: str, after: str) -> bool:
        """Return whether the name between two texts is a sentence or a line of its own."""
        label = _LABEL.search(before)
        if label is None or not _ENDED.match(after):
            return False
        words = label[1] or ""
        return not (_denies(words) or next(self._find_mentions(words), None))

    def _find_mentions(self, text: str) -> Iterator[tuple[str, str | None, str]]:
        """Yield each name in a text, with the text before it and after it."""
        pattern, folded = _pattern(self._names), _fold(text)
        for one in pattern.finditer(folded) if pattern else ():
            name = self._keys.get(_make_key(one.group()), None)
            yield folded[: one.start()], name, folded[one.end() :]


def _is_denied(before: str, after: str) -> bool:
    """Return whether the clause around a name denies the name."""
    rest = " ".join(_CLAUSE_END.split(after)[0].split()[:_REACH])
    return _denies(_CLAUSE_END.split(before)[-1]) or _denies(rest)


def _denies(text: str) -> bool:
    denials = load_words("phrases.toml", "denials")
    return _EXCLUDED.search(text) is not None or any(word in denials for word in words_of(text))


def _read_json(text: str) -> list[tuple[str, str]] | None:
    """Return the texts and numbers in an answer's JSON, each with its keys. None for no JSON."""
    # Empty braces in prose are no object.
    value: Json = [*filter(None, find_objects(text))]
    if not value:
        try:
            value = json.loads(text)
        except ValueError:
            return None
    return [*_list_leaves(value)]


def _list_leaves(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _list_leaves(one, f"{path}/{key}")
    elif isinstance(value, list):
        for one in value:
            yield from _list_leaves(one, path)
    elif isinstance(value, str | int) and not isinstance(value, bool):
        yield path, str(value)
