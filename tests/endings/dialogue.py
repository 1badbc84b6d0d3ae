"""Recorded dialogues, and labels of their right ends."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

Half = Literal["tune", "report"]


class Case(StrEnum):
    """The kind of an ending. Every dialogue has exactly one."""

    WORD_SAID = "word said"
    WORD_MENTIONED = "word only mentioned"
    TASK_DONE = "task done without a word"
    FAREWELL = "farewell"
    RUNAWAY = "runaway loop"
    RETRY = "retry that looks like a loop"
    EARLY_WORD = "early stop word before the work is done"
    ENDLESS_THANKS = "endless thanks"
    CLOSING_QUESTION = "closing question still open"
    HAND_OFF = "hand-off"
    OTHER_SIDE = "end by the other side"
    NO_END = "no end (the record stops at a cap)"


class Origin(StrEnum):
    """The source of a label."""

    FIELD = "field"
    """A field of the source."""
    RULE = "rule"
    """A rule written in the reader."""
    PERSON = "person"
    """A person who read the dialogue."""
    MODEL = "model"
    """A model that read the dialogue."""


class Word(NamedTuple):
    """A word that ends the dialogue when it is said."""

    token: str
    by: str | None = None  # the speaker who may say it; any speaker if None
    terminates: bool = False
    """Whether it is a termination word of AutoGen's user proxy: a message that ends with it gets no
    answer. If False, it is a done token.
    """


class EndTool(NamedTuple):
    """A tool that ends the dialogue when it has answered without an error."""

    name: str
    by: str | None = None  # the speaker whose call counts; any speaker if None


@dataclass(frozen=True)
class Call:
    """A tool call with its recorded result."""

    name: str
    arguments: Mapping[str, Any]
    result: str = ""
    failed: bool = False


@dataclass(frozen=True)
class Turn:
    """A message of a speaker, or a message with which it calls tools. It is one model call."""

    speaker: str
    text: str
    calls: tuple[Call, ...] = ()
    automatic: bool = False
    """Whether it is an automatic reply in a person's place, without a model call."""


@dataclass(frozen=True)
class Label:
    """The place at which a dialogue should end."""

    case: Case
    end: int
    """The number of turns after which it should end. A number above the length of the record says
    that it should not end within the record."""
    origin: Origin
    earliest: int = 0
    """The first number of turns at which an end does as well; such a stop is a tie. Equal to `end`
    if 0.
    """
    signalled: bool = False
    """Whether a word, a tool or a repetition in the record shows the end. A farewell at the end of
    a record shows nothing: the record does not contain its answer.
    """

    @property
    def first(self) -> int:
        """The first number of turns at which an end is not premature."""
        return self.earliest or self.end


@dataclass(frozen=True)
class Dialogue:
    """A recorded dialogue."""

    id: str
    """Unique among all sources, and the same for every copy of the source."""
    source: str
    turns: tuple[Turn, ...]
    label: Label
    words: tuple[Word, ...] = ()
    tools: tuple[EndTool, ...] = ()
    forms: Mapping[str, str] = field(default_factory=dict)
    """The form of a speaker's messages, by its name: ``instruction`` or ``solution``."""

    @property
    def names(self) -> tuple[str, ...]:
        """The speakers, in the order of their first turns."""
        return tuple(dict.fromkeys(turn.speaker for turn in self.turns))

    @property
    def half(self) -> Half:
        """The half of the split that the dialogue belongs to."""
        return half_of(self.id)


def half_of(dialogue_id: str) -> Half:
    """Return the half of the split: rules are tuned on one half and reported on the other.

    The last byte of the id's SHA-256 decides: even, tune; odd, report.
    """
    last = hashlib.sha256(dialogue_id.encode()).digest()[-1]
    return "report" if last % 2 else "tune"
