"""Errors of a simulated user, found in code: each makes a simulation inconclusive.

The rules look at texts alone. They were measured on recorded simulations, see
docs/measurements/user_errors.md; each is exact rather than complete. `user_errors.toml` contains
the words of several languages.
"""

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias
from unicodedata import decimal

from ..common.files import read_fields
from ..kinds.simulation import DONE
from ..text.sentences import is_farewell
from ..text.words import fold
from .scenario import Scenario, UserTurn

UserErrorKind: TypeAlias = Literal[
    "secret", "invented", "copied", "other_side", "early_end", "not_mentioned", "instructions"
]
"""The kinds of errors of a simulated user."""

_WORDS: Final[dict[UserErrorKind, str]] = {
    "secret": "the user said what it must not say",
    "invented": "the user invented a fact",
    "copied": "the user copied its goal",
    "other_side": "the user wrote a line of the agent",
    "early_end": "the user ended although the agent asked a question or announced an act",
    "not_mentioned": "the user ended and never mentioned a part of its goal",
    "instructions": "the user did not keep to its instructions",
}


@dataclass(frozen=True)
class UserError:
    """An error of a simulated user. ``str(error)`` is a sentence."""

    kind: UserErrorKind
    """The kind of error."""
    text: str
    """The words that show it."""
    message: int | None
    """The number of the user's message, as in the report. None if a judge names none."""

    def __str__(self) -> str:
        at = "" if self.message is None else f" (message {self.message})"
        return f"{_WORDS[self.kind]}: {self.text}{at}"


class Turn(NamedTuple):
    """A text of a simulation that the simulated user has written or read."""

    number: int
    """The number of the message, as in the report."""
    text: str
    """The text, without words that end the conversation."""
    is_by_user: bool
    """Whether the simulated user wrote it. False for fixed texts of a script, too."""
    is_by_agent: bool
    """Whether the agent wrote it."""
    tokens: tuple[str, ...] = ()
    """The words in it that end the conversation."""


def find_user_errors(scenario: Scenario, turns: Sequence[Turn]) -> Iterator[UserError]:
    """Yield the errors of a simulated user, in the order of its messages.

    Args:
        scenario: The scenario.
        turns: The texts of the conversation, oldest first.
    """
    own = (scenario.goal, scenario.persona, scenario.knows, scenario.must_not_say)
    steps = (step.text for step in scenario.script or () if isinstance(step, UserTurn))
    facts = [text for text in (*own, *scenario.must_mention, *steps) if text]
    known = _KnownFacts(facts)
    secrets = _secret_facts(scenario.must_not_say or "", facts)
    goal = _runs_of_words(_QUOTED.sub(" ", scenario.goal))
    told = set[str]()
    for turn in turns:
        said = _said_secrets(secrets, turn.text)
        if turn.is_by_user:
            found: Iterable[tuple[UserErrorKind, Iterable[str]]] = (
                ("secret", (one for one in said if one not in told)),
                ("invented", known.find_invented(turn.text)),
                ("copied", _copied_words(goal, turn.text)),
                ("other_side", (one.group().strip() for one in _OTHER_SIDE.finditer(turn.text))),
            )
            for kind, texts in found:
                yield from (UserError(kind, text, turn.number) for text in [*texts][:1])
        known.add(turn.text)
        told.update(said if turn.is_by_agent else ())
    yield from _end_errors(scenario.must_mention, turns)


def _end_errors(must_mention: Sequence[str], turns: Sequence[Turn]) -> Iterator[UserError]:
    """Yield the errors of a user that has reported that its goal is met."""
    end = next((turn for turn in turns if turn.is_by_user and DONE in turn.tokens), None)
    if end is None:
        return
    before = (turn for turn in reversed(turns) if turn.is_by_agent and turn.number < end.number)
    last = next(before, None)
    # A text beside the word may answer the agent's question.
    if last is not None and not end.text.strip() and (sentence := find_open_sentence(last.text)):
        yield UserError("early_end", sentence, end.number)
    said = " ".join(turn.text for turn in turns)
    mentioned = find_said(must_mention, said, as_written=True)
    for part in must_mention:
        if part not in mentioned:
            yield UserError("not_mentioned", part, end.number)


# --- Facts in any spelling ---

_PHRASES: Final = read_fields(Path(__file__).with_name("user_errors.toml"), "table of phrases")
"""The words by which errors of users are found."""

# Numbers

_NUMBERS: Final[dict[str, tuple[str, int]]] = {
    word: ("d" if value else "z", value)
    for value, words in enumerate(_PHRASES["digits"])
    for word in words.split()
} | {
    word: (code, value)
    for code, words in _PHRASES["numbers"].items()
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


# Dates

_MONTHS: Final = {
    spelled: month
    for month, words in enumerate(_PHRASES["months"], start=1)
    for word in words.split()
    for spelled in (word, fold(word))
}
_MONTH_NAMES: Final = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DATE: Final = re.compile(
    rf"\b(?:(?P<before>{_MONTH_NAMES})\b\.? (?P<day>\d{{1,2}})(?!\d)(?:st|nd|rd|th)?"
    rf"|(?P<first>\d{{1,2}})(?:st|nd|rd|th|\.)?(?: of| de| do)? (?P<after>{_MONTH_NAMES})\b\.?)"
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


def _plain(text: str) -> str:
    """Return the letters and digits of a text, without leading zeros."""
    return "".join(read_pieces(text)).lstrip("0")


_QUOTED: Final = re.compile(
    r"\"[^\"]{2,}\"|“[^”]{2,}”|«[^»]{2,}»|「[^」]{2,}」|(?<!\w)'[^']{2,}'(?!\w)"
)
"""Texts in quotation marks: a goal may ask the user to say them."""

_MIN_SECRET: Final = 3
"""Minimum number of letters and digits of a fact that must not be said."""

_OTHER_NUMBERS: Final = re.compile(r"(?<=\d)[.,](?=\d{3}\b)|\b\d+ ?%")
"""Separators of thousands, and percentages: "1,500" does not say 500."""

_CENTS: Final = re.compile(
    rf"(?<=\d)[.,](?=\d\d\s?{_PHRASES['currency']})|([$€£¥₹]\s?\d+)[.,](?=\d\d\b)",
    re.IGNORECASE,
)
"""The point in an amount of money: "47.11 EUR" does not say 4711."""

_PASSWORD: Final = re.compile(
    r"\b(?:pass(?:word|phrase|code)|code ?word|secret word)\s(?:is\s)?(?!is\b)([^\s.,;!?]+)",
    re.IGNORECASE,
)
_NAME: Final = re.compile(r"(?<!^)(?<![.!?] )\b[A-Z][a-z]+(?: [A-Z][a-z]+)+")


def _secret_facts(text: str, known: Sequence[str]) -> list[str]:
    """Return the facts that must not be said, and that the user has no other reason to say.

    They are quoted texts, words with digits, dates, passwords, and names of several words.
    """
    quoted = [found.group()[1:-1] for found in _QUOTED.finditer(text)]
    dates = [one.text for one in find_dates(text)]
    rest = without_dates(text)
    coded = [*_EMAIL.findall(rest), *(raw for raw in _RUN.findall(rest) if _has_digit(raw))]
    found = [*quoted, *dates, *coded, *_PASSWORD.findall(rest), *_NAME.findall(rest)]
    own = [one for one in known if one != text]
    allowed = {fact for text in own for fact in find_said(found, text)}
    return [one for one in found if len(_plain(one)) >= _MIN_SECRET and one not in allowed]


def _said_secrets(secrets: Sequence[str], text: str) -> list[str]:
    """Return the secrets that a text says."""
    alike = dict[tuple[bool, bool], dict[str, str]]()
    for secret in secrets:
        kind = _CENTS.search(f"{secret} EUR") is not None, "@" in secret
        alike.setdefault(kind, {})[_OTHER_NUMBERS.sub("", secret)] = secret
    found = set[str]()
    # A long text is read once for all secrets that are searched in the same way.
    for (has_cents, is_address), facts in alike.items():
        said = _OTHER_NUMBERS.sub("", text)
        said = said if has_cents else _CENTS.sub(r"\1 x ", said)
        said = _SPOKEN_SIGNS.sub(" ", said) if is_address else said
        found.update(facts[one] for one in find_said(facts, said))
    return [one for one in secrets if one in found]


_SPOKEN_SIGNS: Final = re.compile(r"\b(?:at|dot|punkt|punto|point)\b", re.IGNORECASE)
"""The signs of an e-mail address, in words."""


# --- Invented facts ---

_EMAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")

_RUN: Final = re.compile(r"[A-Za-z0-9]\w*(?:[-_/]\w+)*", re.ASCII)
"""A run of ASCII letters and digits. In other scripts, words are often not separated."""

_OTHERS: Final = re.compile(
    r"[$€£¥₹]\s?\d[\d.,]{0,20}"
    rf"|\d[\d.,]{{0,20}}\s?(?:%|{_PHRASES['currency']})"
    r"|\b\d[\d.,]{0,20}[.,]\d\d\b"
    r"|\b\d{1,2}(?:[:.]\d\d)?\s?(?:am|pm|h|uhr)\b|\b\d{1,2}:\d\d",
    re.IGNORECASE,
)
"""Amounts of money and times. A user may name a limit, compute a sum, or choose a time."""

_SPELLED: Final = re.compile(
    rf"\b(?:(?:{'|'.join(' '.join(_PHRASES['digits']).split())})\b[\s,-]*){{4,}}", re.IGNORECASE
)
"""Four or more digits in words."""

_OWN_NAME: Final = re.compile(r"\b[Mm]y name(?: is|'s|:) ((?:[A-Z][\w'-]+\b ?)+)")

_STREET: Final = re.compile(
    r"\b(\d{1,5}[A-Za-z]? (?:[A-Z][a-z']+ ){1,3})(?:Street|St|Avenue|Ave|Road|Rd|Lane|Drive)\b"
)

_TODAY: Final = re.compile(r"\btoday\b[^.!?]{0,25}$", re.IGNORECASE)
"""The words before the date of today, which a user may know."""

_NEAR: Final = 14
"""Number of days around a known date in which a user may name another date: "a day later"."""

_UNIT: Final = re.compile(r"\d+_?[A-Za-z]+|[A-Za-z]+_?\d{0,3}|\d{1,3}(?:x\d{1,4})*|(?:19|20)\d\d")
"""Parts of words: numbers with a unit or an ordinal, words, years, and short numbers."""

_MIN_DIGITS: Final = 4
"""Minimum number of digits of a number that is taken for a fact."""

_MIN_CODE: Final = 5
"""Minimum number of letters and digits of an id that is taken for a fact."""


def _has_digit(text: str) -> bool:
    return any(letter.isdigit() for letter in text)


def _is_fact(raw: str) -> bool:
    """Return whether an id or a number is too special to be a count, a year, a time or a unit."""
    if raw.isdigit():
        is_year = len(raw) == _MIN_DIGITS and raw[:2] in {"19", "20"}
        return len(raw) >= _MIN_DIGITS and not is_year and not raw.endswith("00")
    is_long = len(_plain(raw)) >= _MIN_CODE and sum(map(str.isdigit, raw)) > 1
    return is_long and not all(map(_UNIT.fullmatch, re.split("[-/]", raw)))


class _KnownFacts:
    """The facts that a user may say: those of the scenario and of earlier messages."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._text = self._letters = ""
        self._days = set[int]()
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Add the facts of a text."""
        self._text += f"\n{fold(text)}"
        self._letters += f" {_plain(text)}"
        if "(0)" in text:
            # Numbers of phones are also written without the zero in brackets.
            self._letters += f" {_plain(text.replace('(0)', ''))}"
        self._days.update(day for one in find_dates(text) for day in one.days)

    def find_invented(self, text: str) -> Iterator[str]:
        """Yield the facts of a text that are not known."""
        yield from (one for one in _EMAIL.findall(text) if fold(one) not in self._text)
        text = _EMAIL.sub(" ", text)
        for one in find_dates(text):
            at = one.span[0]
            is_today = _TODAY.search(text[max(0, at - 40) : at]) is not None
            is_known = is_today or not one.year or any(map(self._is_near, one.days))
            if not is_known and _plain(one.text) not in self._letters:
                yield one.text
        text = _OTHERS.sub(" ", without_dates(text))
        for found in _OWN_NAME.findall(text):
            if any(fold(word) not in self._text for word in found.split()):
                yield found.strip()
        numbers = (*(one.group() for one in _SPELLED.finditer(text)), *_STREET.findall(text))
        numbers += tuple(raw for raw in _RUN.findall(text) if _has_digit(raw) and _is_fact(raw))
        yield from (raw.strip() for raw in numbers if _plain(raw) not in self._letters)

    def _is_near(self, day: int) -> bool:
        gaps = (abs(day - known) for known in self._days)
        return any(min(gap, 366 - gap) <= _NEAR for gap in gaps)


# --- Copied text, and lines of the other side ---

_COPIED: Final = 12
"""Number of words in a row, copied from the goal, that are an error."""

_AGENTS: Final = "|".join(_PHRASES["agents"])
_OTHER_SIDE: Final = re.compile(
    rf"(?:^|\n)(?:[^\w\n]|_){{0,4}}(?:(?:{_AGENTS})(?:[\W_]{{0,3}}:\W{{0,2}}\s|[\])>])"
    r"|(?:agent|assistant)\s[-\u2013\u2014]\s).*"
    rf"|\n#+ (?:{_AGENTS})[ *]*(?:\n|$)"
    r"|<\|im_start\|>assistant|\"role\"\s*:\s*\"assistant\""
    r"|(?<=[.!?] )(?-i:Agent|Assistant): .*",
    re.IGNORECASE,
)
"""A line that begins with the name of the agent's side, or another form of such a line."""


def _runs_of_words(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", fold(text))
    return {tuple(words[at : at + _COPIED]) for at in range(len(words) - _COPIED + 1)}


def _copied_words(goal: set[tuple[str, ...]], text: str) -> Iterator[str]:
    """Yield the words that a text shares with the goal, if they tell the user about itself."""
    for run in sorted(goal & _runs_of_words(text)):
        if any(pair in _SECOND_PERSON for pair in map(" ".join, pairwise(run))):
            yield " ".join(run)


_SECOND_PERSON: Final = frozenset(_PHRASES["second_person"])
"""Words by which a goal addresses the user. A user that speaks for itself does not copy them."""


# --- An early end ---


def _compile(name: str, around: str = r"\b(?:{})\b") -> re.Pattern[str]:
    return re.compile(around.format("|".join(_PHRASES[name])), re.IGNORECASE)


_OFFER: Final = _compile("offers", "{}")
_ANNOUNCED: Final = _compile("announcements")
_DEMANDED: Final = _compile("demands")
_QUESTION: Final = _compile("questions")

_KNOWN_LANGUAGE: Final = re.compile(
    rf"\b(?:{'|'.join(_PHRASES['english'])})\b|[\u4e00-\u9fff]", re.IGNORECASE
)
"""Words of the languages whose offers are listed. Questions in others are not judged."""

_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")  # noqa: RUF001

_THANKS: Final = re.compile("(?:many )?thank|danke|gracias|merci|谢谢", re.IGNORECASE)

_ASKS: Final = ("?", "？")  # noqa: RUF001


def find_open_sentence(text: str) -> str:
    """Return the last sentence of an agent if it asks or announces an act, or an empty text.

    Thanks after it do not count. An offer of more help and a question whether all is well are
    neither.
    """
    sentences = [one.strip() for one in _SENTENCE_END.split(text) if one.strip()]
    while len(sentences) > 1 and _THANKS.match(sentences[-1]) and is_farewell(sentences[-1]):
        sentences.pop()
    if not sentences or _OFFER.search(plain := fold(last := sentences[-1])):
        return ""
    asks = last.rstrip("*_\"') ").endswith(_ASKS)
    asks = asks and bool(_KNOWN_LANGUAGE.search(last) or _QUESTION.search(plain))
    return last if asks or _ANNOUNCED.search(last) or _DEMANDED.search(last) else ""
