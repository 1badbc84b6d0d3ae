"""A log as the ends read it: each message with its `About`."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from langchain_core.messages import BaseMessage

from ...log.kinds import Kind
from ...log.messages import About, Source, line
from ...spec.conversation import Conversation

Read = Sequence[tuple[BaseMessage, About]]
"""Messages of a log, each with its `About`."""

DATA = (Source.CODE, Source.TOOL)
"""Sources of replies that nobody worded: no word in them ends anything, and no code is run."""


def read_log(log: Sequence[BaseMessage]) -> Read:
    """Read the `About` of each message of a log."""
    return [(message, line(message)) for message in log]


class Talk(NamedTuple):
    """A log that is read, and the conversation it belongs to."""

    conversation: Conversation  # the spec
    read: Read  # all messages, oldest first
    heard: Read  # those that all hear, in the rounds or as last words

    @classmethod
    def of(cls, conversation: Conversation, read: Read) -> "Talk":
        """Find the messages that all hear."""
        return cls(conversation, read, [one for one in read if one[1].counts])

    @property
    def this_turn(self) -> Iterator[tuple[BaseMessage, About]]:
        """The messages since the last turn ended, newest first."""
        return takewhile(lambda one: not one[1].ends_turn, reversed(self.read))

    @property
    def results(self) -> list[About]:
        """What came of the calls of this turn."""
        return [about for _, about in self.this_turn if about.kind is Kind.TOOL_RESULT]


def trailing(found: Iterable[bool]) -> int:
    """Count up to the first that is false."""
    return sum(takewhile(bool, found))
