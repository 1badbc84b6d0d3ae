"""Errors of a simulated user, found in code: each makes a simulation inconclusive.

The rules look at texts alone. They were measured on recorded simulations, see
docs/measurements/user_errors.md; each is exact rather than complete.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias
from unicodedata import decimal

from ..common.files import read_fields
from ..text.words import fold

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


class UserFacts(NamedTuple):
    """The texts of a scenario by which its user is tested."""

    goal: str
    """The goal."""
    known: Sequence[str]
    """All texts with facts that the user may say."""
    secrets: str
    """The information that the user must not reveal. Empty if there is none."""
    must_mention: Sequence[str]
    """The parts of the goal that the user must mention before it ends."""
    done: str
    """The word with which the user reports that its goal is met."""


def find_user_errors(facts: UserFacts, turns: Sequence[Turn]) -> tuple[UserError, ...]:
    """Return the errors of a simulated user, in the order of its messages.

    Args:
        facts: The texts of the scenario.
        turns: The texts of the conversation, oldest first.
    """
    return tuple(_find_errors(facts, turns))


def _find_errors(facts: UserFacts, turns: Sequence[Turn]) -> Iterator[UserError]:
    known = _KnownFacts(facts.known)
    secrets = _secret_facts(facts.secrets)
    goal = _runs_of_words(_QUOTED.sub(" ", facts.goal))
    agent = ""
    for turn in turns:
        if turn.is_by_user:
            found: Iterable[tuple[UserErrorKind, Iterable[str]]] = (
                ("secret", _said_secrets(secrets, turn.text, agent)),
                ("invented", known.find_invented(turn.text)),
                ("copied", _copied_words(goal, turn.text)),
                ("other_side", _OTHER_SIDE.findall(turn.text)),
            )
            for kind, texts in found:
                yield from (UserError(kind, text, turn.number) for text in [*texts][:1])
        known.add(turn.text)
        agent += f"\n{turn.text}" if turn.is_by_agent else ""
    yield from _end_errors(facts, turns)


def _end_errors(facts: UserFacts, turns: Sequence[Turn]) -> Iterator[UserError]:
    """Yield the errors of a user that has reported that its goal is met."""
    end = next((turn for turn in turns if turn.is_by_user and facts.done in turn.tokens), None)
    if end is None:
        return
    before = (turn for turn in reversed(turns) if turn.is_by_agent and turn.number < end.number)
    last = next(before, None)
    # A text beside the word may answer the agent's question.
    if last is not None and not end.text.strip() and (sentence := find_open_sentence(last.text)):
        yield UserError("early_end", sentence, end.number)
    said = _pieces(" ".join(turn.text for turn in turns))
    for part in facts.must_mention:
        if not _contains(said, "".join(_pieces(part))):
            yield UserError("not_mentioned", part, end.number)


# --- Facts in any spelling ---

_PHRASES: Final = read_fields(Path(__file__).with_suffix(".toml"), "table of phrases")

_DIGITS: Final = {word: str(digit) for digit, word in enumerate(_PHRASES["digits"])}


def _pieces(text: str) -> list[str]:
    """Return the words and numbers of a text without case; a spelled digit is a digit."""
    plain = fold(text)
    if not plain.isascii():
        # The digits of any script, but no raised ones.
        plain = "".join(str(decimal(one, one)) for one in plain)
    return [_DIGITS.get(word, word) for word in re.findall(r"[0-9]+|[^\W\d_]+", plain)]


def _plain(text: str) -> str:
    """Return the letters and digits of a text, without leading zeros."""
    return "".join(_pieces(text)).lstrip("0")


def _contains(pieces: Sequence[str], fact: str) -> bool:
    """Return whether adjacent pieces together are a fact."""
    for start in range(len(pieces)):
        joined = ""
        for piece in pieces[start:]:
            joined += piece
            if joined == fact:
                return True
            if not fact.startswith(joined):
                break
    return False


_QUOTED: Final = re.compile(
    r"\"[^\"]{2,}\"|“[^”]{2,}”|«[^»]{2,}»|「[^」]{2,}」|(?<!\w)'[^']{2,}'(?!\w)"
)
"""Texts in quotation marks: a goal may ask the user to say them."""

_MIN_SECRET: Final = 3
"""Minimum number of letters and digits of a fact that must not be said."""

_OTHER_NUMBERS: Final = re.compile(r"(?<=\d)[.,](?=\d{3}\b)|\b\d+ ?%")
"""Separators of thousands, and percentages: "1,500" does not say 500."""


def _secret_facts(text: str) -> list[str]:
    """Return the facts of a text that must not be said: quoted texts, and words with digits."""
    quoted = [found.group()[1:-1] for found in _QUOTED.finditer(text)]
    coded = [*_EMAIL.findall(text), *(raw for raw in _RUN.findall(text) if _has_digit(raw))]
    return [one for one in (*quoted, *coded) if len(_plain(one)) >= _MIN_SECRET]


def _said_secrets(secrets: Sequence[str], text: str, agent: str) -> Iterator[str]:
    """Yield the secrets that a text says, and that the agent has not said before."""
    if not secrets:
        return
    said, known = (_pieces(_OTHER_NUMBERS.sub("", one)) for one in (text, agent))
    for secret in secrets:
        fact = "".join(_pieces(_OTHER_NUMBERS.sub("", secret)))
        if _contains(said, fact) and not _contains(known, fact):
            yield secret


# --- Invented facts ---

_EMAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")

_RUN: Final = re.compile(r"[A-Za-z0-9]\w*(?:[-_/]\w+)*", re.ASCII)
"""A run of ASCII letters and digits. In other scripts, words are often not separated."""

_OTHERS: Final = re.compile(
    r"[$€£¥₹]\s?\d[\d.,]{0,20}"
    r"|\d[\d.,]{0,20}\s?(?:[$€£¥₹%元円]|(?:euros?|eur|usd|dollars?|pounds?|chf|kr)\b)"
    r"|\b\d[\d.,]{0,20}[.,]\d\d\b"
    r"|\b\d{1,2}(?:[:.]\d\d)?\s?(?:am|pm|h|uhr)\b|\b\d{1,2}:\d\d",
    re.IGNORECASE,
)
"""Amounts of money and times. A user may name a limit, compute a sum, or choose a time."""

_MONTHS: Final = {name: month for month, name in enumerate(_PHRASES["months"], start=1)}

_DATE: Final = re.compile(
    rf"\b(?:(?P<month>{'|'.join(_MONTHS)}) (?P<day>\d{{1,2}})(?:st|nd|rd|th)?"
    rf"|(?P<first>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<second>{'|'.join(_MONTHS)})),? \d{{4}}\b"
    r"|\b\d{4}-(?P<digits>\d{1,2})-(?P<last>\d{1,2})\b",
    re.IGNORECASE,
)
"""A date with a year."""

_TODAY: Final = re.compile(r"\btoday\b[^.!?]{0,25}$", re.IGNORECASE)
"""The words before the date of today, which a user may know."""

_NEAR: Final = 14
"""Number of days around a known date in which a user may name another date: "a day later"."""

_LEAP_YEAR: Final = 2024

_UNIT: Final = re.compile(r"\d+_?[A-Za-z]+|[A-Za-z]+_?\d{0,3}|\d{1,3}")
"""Parts of words: numbers with a unit or an ordinal, words, and short numbers."""

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


def _dates(text: str) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield the dates of a text: the day of the year, and the match."""
    for found in _DATE.finditer(text):
        name = found["month"] or found["second"]
        month = _MONTHS[name.lower()] if name else int(found["digits"])
        with suppress(ValueError):
            day = int(found["day"] or found["first"] or found["last"])
            yield date(_LEAP_YEAR, month, day).timetuple().tm_yday, found


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
        self._days.update(day for day, _ in _dates(text))

    def find_invented(self, text: str) -> Iterator[str]:
        """Yield the facts of a text that are not known."""
        yield from (one for one in _EMAIL.findall(text) if fold(one) not in self._text)
        text = _EMAIL.sub(" ", text)
        for day, found in _dates(text):
            is_today = _TODAY.search(text[max(0, found.start() - 40) : found.start()]) is not None
            if not (is_today or self._is_near(day) or _plain(found.group()) in self._letters):
                yield found.group()
        text = _DATE.sub(" ", _OTHERS.sub(" ", text))
        for raw in _RUN.findall(text):
            digits = "".join(filter(str.isdigit, raw))
            if digits and _is_fact(raw) and _plain(raw) not in self._letters:
                yield raw

    def _is_near(self, day: int) -> bool:
        gaps = (abs(day - known) for known in self._days)
        return any(min(gap, 366 - gap) <= _NEAR for gap in gaps)


# --- Copied text, and lines of the other side ---

_COPIED: Final = 12
"""Number of words in a row, copied from the goal, that are an error."""

_OTHER_SIDE: Final = re.compile(
    rf"(?:^|\n)\W{{0,3}}((?:{'|'.join(_PHRASES['agents'])})\W{{0,2}}:\W{{0,2}}\s.*)", re.IGNORECASE
)
"""A line that begins with the name of the agent's side."""


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

_OFFER: Final = re.compile("|".join(_PHRASES["offers"]), re.IGNORECASE)

_ANNOUNCED: Final = re.compile(rf"\b(?:{'|'.join(_PHRASES['announcements'])})\b", re.IGNORECASE)

_KNOWN_LANGUAGE: Final = re.compile(
    rf"\b(?:{'|'.join(_PHRASES['english'])})\b|[\u4e00-\u9fff]", re.IGNORECASE
)
"""Words of the languages whose offers are listed. Questions in others are not judged."""

_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")  # noqa: RUF001

_ASKS: Final = ("?", "？")  # noqa: RUF001


def find_open_sentence(text: str) -> str:
    """Return the last sentence of an agent if it asks or announces an act, or an empty text.

    An offer of more help and a question whether all is well are neither.
    """
    sentences = [one.strip() for one in _SENTENCE_END.split(text) if one.strip()]
    if not sentences or _OFFER.search(last := sentences[-1]):
        return ""
    asks = last.rstrip("*_\"') ").endswith(_ASKS) and _KNOWN_LANGUAGE.search(last)
    return last if asks or _ANNOUNCED.search(last) else ""
