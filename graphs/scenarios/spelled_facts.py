"""Numbers and dates of a text, read alike in any spelling.

`user_errors.toml` contains the words of several languages. Pure functions.
"""

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from datetime import date
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple
from unicodedata import decimal

from ..common.files import read_fields
from ..text.words import fold

PHRASES: Final = read_fields(Path(__file__).with_name("user_errors.toml"), "table of phrases")
"""The words by which errors of users are found."""

# --- Numbers ---

_NUMBERS: Final[dict[str, tuple[str, int]]] = {
    word: ("d" if value else "z", value)
    for value, words in enumerate(PHRASES["digits"])
    for word in words.split()
} | {
    word: (code, value)
    for code, words in PHRASES["numbers"].items()
    for word, value in words.items()
}
"""The value of each number word, and the code of its kind in `_CARDINAL`."""

_BELOW_HUNDRED: Final = "(?:yd?|t|d)"
_BELOW_THOUSAND: Final = f"(?:{_BELOW_HUNDRED}h(?:a?{_BELOW_HUNDRED})?|{_BELOW_HUNDRED})"
_CARDINAL: Final = re.compile(
    f"{_BELOW_THOUSAND}k(?:a?{_BELOW_THOUSAND})?|{_BELOW_HUNDRED}h(?:a?{_BELOW_HUNDRED})?|yd?|t|m[dzn]"
    "|(?<=[dzn])a(?=[dzn])"
)
"""A number in words: digits (d, z), teens (t), tens (y), hundred (h), thousand (k), "and" (a),
"double" (m); n is a figure. An "and" between two single digits is left out."""


def read_pieces(text: str) -> list[str]:
    """Return the words and numbers of a text without case; numbers in words are in figures."""
    plain = fold(text)
    if not plain.isascii():
        # The digits of any script, but no raised ones.
        plain = "".join(str(decimal(one, one)) for one in plain).translate(_CHINESE)
    plain = re.sub(r"\ba (?=(?:hundred|thousand)\b)", "one ", plain)
    words = re.findall(r"[0-9]+|[^\W\d_]+", plain)
    codes = "".join(_code(word) for word in words)
    pieces, end = list[str](), 0
    for found in _CARDINAL.finditer(codes):
        pieces += map(_read_digit, words[end : found.start()])
        pieces += _read_cardinal(words[found.start() : found.end()])
        end = found.end()
    return [*pieces, *map(_read_digit, words[end:])]


_CHINESE: Final = str.maketrans("〇零一二三四五六七八九", "00123456789")


def _code(word: str) -> str:
    if word in _NUMBERS:
        return _NUMBERS[word][0]
    return "n" if word.isdigit() and len(word) == 1 else "o"


def _read_digit(word: str) -> str:
    return str(_NUMBERS[word][1]) if _code(word) in "dz" else word


def _read_cardinal(words: Sequence[str]) -> list[str]:
    """Return the figures of a number in words. None for a single "and"."""
    if _code(words[0]) == "m":
        return [_read_digit(words[1])] * _NUMBERS[words[0]][1]
    total = part = 0
    for code, value in (_NUMBERS[word] for word in words):
        if code == "k":
            total, part = total + part * value, 0
        else:
            part = part * value if code == "h" else part + value
    return [str(total + part)] if total + part else []


# --- Dates ---

_MONTHS: Final = {
    spelled: month
    for month, words in enumerate(PHRASES["months"], start=1)
    for word in words.split()
    for spelled in (word, fold(word))
}
_NAMES: Final = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DATE: Final = re.compile(
    rf"\b(?:(?P<before>{_NAMES})\b\.? (?P<day>\d{{1,2}})(?!\d)(?:st|nd|rd|th)?"
    rf"|(?P<first>\d{{1,2}})(?:st|nd|rd|th|\.)?(?: of| de| do)? (?P<after>{_NAMES})\b\.?)"
    r"(?:,?(?: del?| do)? (?P<year>\d{4})\b)?"
    r"|(?<!\d)(?P<y>\d{4})[-/年](?P<m>\d{1,2})[-/月](?P<d>\d{1,2})(?!\d)"
    r"|(?<![\d./-])(?P<one>\d{1,2})(?P<sign>[./-])(?P<two>\d{1,2})(?P=sign)(?P<last>\d{4})"
    r"(?![./-]?\d)",
    re.IGNORECASE,
)
"""A date: with a month's name, with the year first, or with the year last and day and month in any
order."""

_LEAP_YEAR: Final = 2024


class Date(NamedTuple):
    """A date in a text."""

    text: str
    """The date as it is written."""
    span: tuple[int, int]
    """Its place in the text."""
    days: tuple[int, ...]
    """The days of the year that it may be, from 1 to 366: two if the order is not clear."""
    year: str
    """The year. Empty if it is not named."""


def find_dates(text: str) -> Iterator[Date]:
    """Yield the dates of a text."""
    for match in _DATE.finditer(text):
        found = match.groupdict()
        if name := found["before"] or found["after"]:
            orders: list[tuple[int | str, str]] = [
                (_MONTHS[fold(name)], found["day"] or found["first"])
            ]
        elif found["y"]:
            orders = [(found["m"], found["d"])]
        else:
            orders = [(found["one"], found["two"]), (found["two"], found["one"])]
        days = list[int]()
        for month, day in orders:
            with suppress(ValueError):
                days.append(date(_LEAP_YEAR, int(month), int(day)).timetuple().tm_yday)
        if days:
            year = found["year"] or found["y"] or found["last"] or ""
            yield Date(match.group(), match.span(), tuple(days), year)


def without_dates(text: str, order: int | None = None) -> str:
    """Return a text without its dates, or with each written alike.

    Args:
        text: The text.
        order: 0 if the month is first in a date such as 1/2/2026, -1 if the day is. If None, the
            dates are left out.
    """
    parts, end = list[str](), 0
    for one in find_dates(text):
        day = "" if order is None else f"day{one.days[order]:03}".translate(_AS_LETTERS)
        parts += [text[end : one.span[0]], f" {day} {one.year if day else ''} "]
        end = one.span[1]
    return "".join([*parts, text[end:]])


_AS_LETTERS: Final = str.maketrans("0123456789", "abcdefghij")
"""The day of a date is no number that a secret may contain."""


def find_said(facts: Iterable[str], text: str, *, as_written: bool = False) -> list[str]:
    """Return the facts that a text contains in any spelling; a date may be in any order.

    Args:
        facts: The facts.
        text: The text.
        as_written: Whether a part of a date is a fact, too, such as a month.
    """
    said = _read_orders(text, as_written)
    return [
        fact
        for fact in facts
        if any(
            _contains(letters, ends, one)
            for one, _ in _read_orders(fact, as_written)
            for letters, ends in said
        )
    ]


def _read_orders(text: str, as_written: bool) -> list[tuple[str, set[int]]]:
    """Return the letters and digits of a text, and the ends of its pieces.

    Its dates are written alike, in both orders of day and month.
    """
    orders = [without_dates(text, order) for order in (0, -1)] + [text] * as_written
    found = [read_pieces(one) for one in dict.fromkeys(orders)]
    return [("".join(one), {*accumulate(map(len, one), initial=0)}) for one in found]


def _contains(letters: str, ends: Set[int], fact: str) -> bool:
    """Return whether a fact is in a text, from the end of a piece to the end of a piece."""
    at = letters.find(fact) if fact else -1
    while at >= 0 and not {at, at + len(fact)} <= ends:
        at = letters.find(fact, at + 1)
    return at >= 0
