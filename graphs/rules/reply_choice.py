"""Which of two tries of a reply is said. Pure functions."""

from enum import IntEnum
from typing import Final, NamedTuple

from ..common.data import Data
from ..log.metadata import Flaw
from ..text.echoes import is_acknowledgement


class Problem(Data):
    """What is wrong with a reply."""

    flaw: Flaw
    """What kind of problem it is."""
    text: str
    """The problem, as told to the speaker."""


class Checked(NamedTuple):
    """A reply, and what is wrong with it."""

    text: str
    """It as it would be said: with the marks that were missing, where they can be added."""
    problem: Problem | None
    """Why it is asked for once more. None: it is said."""
    own: str = ""
    """The speaker's own words in it. Empty if nothing depends on them, as beside a done token."""


class Worth(IntEnum):
    """How much a reply is worth, of two of which one is said."""

    EARLY_END = -1
    """It would end the conversation before anybody has answered."""
    NOTHING = 0
    """It says nothing of its own, or speaks another's part."""
    HEARD = 1
    """It was said already, by its speaker or by another."""
    ACKNOWLEDGEMENT = 2
    """It only apologizes, or says that a request was understood."""
    CONTENT = 3
    """It says something, but not as it was asked for."""
    GOOD = 4
    """Nothing is wrong with it."""


_WORTH: Final = {
    Flaw.FORM: Worth.CONTENT,
    Flaw.NOT_NEXT: Worth.CONTENT,
    Flaw.REPEATED: Worth.HEARD,
    Flaw.ECHO: Worth.HEARD,
    Flaw.UNANSWERED: Worth.EARLY_END,
}
"""What a reply with such a flaw is worth; with any other it is worth nothing."""


def worth_of(reply: Checked) -> Worth:
    """Return how much a reply is worth beside another try."""
    problem = reply.problem
    worth = Worth.GOOD if problem is None else _WORTH.get(problem.flaw, Worth.NOTHING)
    is_hollow = worth >= Worth.CONTENT and is_acknowledgement(reply.own)
    return Worth.ACKNOWLEDGEMENT if is_hollow else worth


def better(first: Checked, second: Checked) -> Checked:
    """Choose of two tries the one that is said; of equal ones it is the second."""
    return max(second, first, key=worth_of)
