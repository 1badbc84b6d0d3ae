"""Errors of a simulated user, found in code: each makes a simulation inconclusive.

The rules look at texts alone. They were measured on recorded simulations, see
docs/measurements/user_errors.md; each is exact rather than complete.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from ..common.files import read_fields
from ..text.words import fold

UserErrorKind: TypeAlias = Literal[
    "secret", "invented", "copied", "other_side", "early_end", "not_mentioned"
]
"""The kinds of errors of a simulated user."""

_WORDS: Final[dict[UserErrorKind, str]] = {
    "secret": "the user said what it must not say",
    "invented": "the user invented a fact",
    "copied": "the user copied its goal",
    "other_side": "the user wrote a line of the agent",
    "early_end": "the user ended although the agent asked a question or announced an act",
    "not_mentioned": "the user ended and never mentioned a part of its goal",
}


@dataclass(frozen=True)
class UserError:
    """An error of a simulated user. ``str(error)`` is a sentence."""

    kind: UserErrorKind
    """The kind of error."""
    text: str
    """The words that show it."""
    message: int
    """The number of the user's message, as in the report."""

    def __str__(self) -> str:
        return f"{_WORDS[self.kind]}: {self.text} (message {self.message})"


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
    for turn in turns:
        if turn.is_by_user:
            found: Iterable[tuple[UserErrorKind, Iterable[str]]] = (
                ("secret", _said_secrets(secrets, turn.text)),
                ("invented", known.find_invented(turn.text)),
                ("copied", _copied_words(goal, turn.text)),
                ("other_side", _OTHER_SIDE.findall(turn.text)),
            )
            for kind, texts in found:
                yield from (UserError(kind, text, turn.number) for text in [*texts][:1])
        known.add(turn.text)
    yield from _end_errors(facts, turns)


def _end_errors(facts: UserFacts, turns: Sequence[Turn]) -> Iterator[UserError]:
    """Yield the errors of a user that has reported that its goal is met."""
    end = next((turn for turn in turns if turn.is_by_user and facts.done in turn.tokens), None)
    if end is None:
        return
    last = next((turn for turn in reversed(turns) if turn.is_by_agent), None)
    # A text beside the word may answer the agent's question.
    is_unanswered = last is not None and (last.number > end.number or not end.text.strip())
    if last is not None and is_unanswered and (sentence := find_open_sentence(last.text)):
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
    # `int` reads the digits of any script.
    return [
        f"{int(word):0{len(word)}}" if word.isdecimal() else _DIGITS.get(word, word)
        for word in re.findall(r"\d+|[^\W\d_]+", fold(text))
    ]


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

_SECRET: Final = 3
"""Minimum number of letters and digits of a fact that must not be said."""


def _secret_facts(text: str) -> list[str]:
    """Return the facts of a text that must not be said: quoted texts, and words with digits."""
    quoted = [found.group()[1:-1] for found in _QUOTED.finditer(text)]
    coded = [*_EMAIL.findall(text), *(raw for raw in _RUN.findall(text) if _has_digit(raw))]
    return [one for one in (quoted + coded) if len("".join(_pieces(one))) >= _SECRET]


def _said_secrets(secrets: Sequence[str], text: str) -> Iterator[str]:
    pieces = _pieces(text)
    return (secret for secret in secrets if _contains(pieces, "".join(_pieces(secret))))


# --- Invented facts ---

_EMAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")

_RUN: Final = re.compile(r"\w+(?:[-_/.,:]\w+)*")

_AMOUNT: Final = re.compile(r"[$€£¥]\s?\d[\d.,]*|\b\d[\d,]*\.\d\d\b|\b\d[\d.]*,\d\d\b")
"""Amounts of money. A user may name a limit or compute a sum."""

_MONTHS: Final = {name[:3]: month for month, name in enumerate(_PHRASES["months"], start=1)}

_DATE: Final = re.compile(
    rf"\b(?:(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?({'|'.join(_MONTHS)})[a-z]*\.?"
    r"(?: (\d{1,2})(?:st|nd|rd|th)?\b)?",
    re.IGNORECASE,
)

_ISO_DATE: Final = re.compile(r"\b(?:\d{4}-)(\d{1,2})-(\d{1,2})\b")

_SHORT_DATE: Final = re.compile(r"\b(\d{1,2})[/.](\d{1,2})\b")

_NEAR: Final = 14
"""Number of days around a known date in which a user may name another date: "a day later"."""

_LEAP_YEAR: Final = 2024

_UNIT: Final = re.compile(r"\d+[-_]?[^\W\d_]+(?:-[^\W\d_]+)*|[^\W\d_]+[-_]?\d{1,2}")
"""Numbers with a unit or an ordinal, and numbered words: "24-hour", "15th", "suite-3"."""

_MIN_DIGITS: Final = 4
"""Minimum number of digits of a number that is taken for a fact."""

_MIN_CODE: Final = 5
"""Minimum number of letters and digits of an id that is taken for a fact."""


def _has_digit(text: str) -> bool:
    return any(letter.isdigit() for letter in text)


def _plain(text: str) -> str:
    """Return the letters and digits of a text, without leading zeros."""
    return "".join(_pieces(text)).lstrip("0")


def _is_fact(raw: str) -> bool:
    """Return whether an id or a number is too special to be a count, a year, a time or a unit."""
    if any(letter.isalpha() for letter in raw):
        return (
            len(_plain(raw)) >= _MIN_CODE
            and sum(letter.isdigit() for letter in raw) > 1
            and not _UNIT.fullmatch(raw)
        )
    if not raw.isdigit():
        return False
    is_year = len(raw) == _MIN_DIGITS and raw[:2] in {"19", "20"}
    return len(raw) >= _MIN_DIGITS and not is_year and int(raw) % 100 != 0


_TODAY: Final = re.compile(r"\btoday\b[^.!?]{0,25}$", re.IGNORECASE)
"""The words before the date of today, which a user may know."""


def _dates(text: str) -> Iterator[tuple[tuple[int, int], re.Match[str]]]:
    """Yield the dates of a text: month and day, and the match."""
    for found in _DATE.finditer(text):
        before, month, after = found.groups()
        if day := after or before:
            yield (_MONTHS[month.lower()], int(day)), found
    for found in _ISO_DATE.finditer(text):
        yield (int(found[1]), int(found[2])), found


def _day_of_year(month: int, day: int) -> int | None:
    try:
        return date(_LEAP_YEAR, month, day).timetuple().tm_yday
    except ValueError:
        return None


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
        pairs = [found for found, _ in _dates(text)]
        for one, other in _SHORT_DATE.findall(text):
            pairs += [(int(one), int(other)), (int(other), int(one))]
        self._days.update(day for pair in pairs if (day := _day_of_year(*pair)) is not None)

    def find_invented(self, text: str) -> Iterator[str]:
        """Yield the facts of a text that are not known."""
        yield from (one for one in _EMAIL.findall(text) if fold(one) not in self._text)
        text = _EMAIL.sub(" ", text)
        for (month, day), found in _dates(text):
            number = _day_of_year(month, day)
            is_today = _TODAY.search(text[: found.start()]) is not None
            if number is not None and not is_today and not self._is_near(number):
                yield found.group()
        for pattern in (_AMOUNT, _DATE, _ISO_DATE):
            text = pattern.sub(" ", text)
        for raw in _RUN.findall(text):
            if _has_digit(raw) and _is_fact(raw) and _plain(raw) not in self._letters:
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
    """Yield the words that a text shares with the goal, if they address the user."""
    for run in sorted(goal & _runs_of_words(text)):
        if not _SECOND_PERSON.isdisjoint(run):
            yield " ".join(run)


_SECOND_PERSON: Final = frozenset(_PHRASES["second_person"])
"""Words that address the user in its goal. A user that speaks for itself does not copy them."""


# --- An early end ---

_OFFER: Final = re.compile("|".join(_PHRASES["offers"]), re.IGNORECASE)

_ANNOUNCED: Final = re.compile(rf"\b(?:{'|'.join(_PHRASES['announcements'])})\b", re.IGNORECASE)

_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")  # noqa: RUF001


_ASKS: Final = ("?", "？", "؟")  # noqa: RUF001


def find_open_sentence(text: str) -> str:
    """Return the last sentence by which an agent asks or announces an act, or an empty text.

    An offer of more help is neither.
    """
    sentences = [one.strip() for one in _SENTENCE_END.split(text) if one.strip()]
    asked = [
        one for one in sentences if one.rstrip("*_\"') ").endswith(_ASKS) or _ANNOUNCED.search(one)
    ]
    return next((one for one in reversed(asked) if not _OFFER.search(one)), "")
