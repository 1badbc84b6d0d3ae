"""The choice between a reply and its retry. Pure functions."""

from enum import IntEnum
from typing import Final, NamedTuple

from ..common.data import Data
from ..log.metadata import Flaw
from ..text.echoes import is_acknowledgement


class Problem(Data):
    """A problem of a reply."""

    flaw: Flaw
    """The kind of the problem."""
    text: str
    """The problem, as a text for the speaker."""


class Checked(NamedTuple):
    """A reply with its problem, if it has one."""

    text: str
    """The text as it would be said. The format's missing marks are added if possible."""
    problem: Problem | None
    """The reason to request another reply. None if the reply is accepted."""
    own: str = ""
    """The speaker's own words in the reply. Empty if the choice does not depend on them, as with a
    done token."""


class Worth(IntEnum):
    """The worth of a reply. Of a reply and its retry, the one with the higher worth is said."""

    EARLY_END = -1
    """The reply would end the conversation before another speaker has answered."""
    NOTHING = 0
    """The reply has no content, or it speaks another speaker's part."""
    HEARD = 1
    """The speaker or another one has already said the reply."""
    ACKNOWLEDGEMENT = 2
    """The reply only apologizes, or says that a request was understood."""
    CONTENT = 3
    """The reply has content, but not in the requested form."""
    GOOD = 4
    """The reply has no problem."""


_WORTH: Final = {
    Flaw.FORM: Worth.CONTENT,
    Flaw.NOT_NEXT: Worth.CONTENT,
    Flaw.REPEATED: Worth.HEARD,
    Flaw.ECHO: Worth.HEARD,
    Flaw.UNANSWERED: Worth.EARLY_END,
}
"""The worth of a reply by its flaw. A reply with any other flaw is worth nothing."""


def worth_of(reply: Checked) -> Worth:
    """Return the worth of a reply."""
    problem = reply.problem
    worth = Worth.GOOD if problem is None else _WORTH.get(problem.flaw, Worth.NOTHING)
    is_hollow = worth >= Worth.CONTENT and is_acknowledgement(reply.own)
    return Worth.ACKNOWLEDGEMENT if is_hollow else worth


def better(first: Checked, second: Checked) -> Checked:
    """Return the better one of a reply and its retry; the retry if both are equal."""
    return max(second, first, key=worth_of)
