"""What ends count in a log, message by message."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable

from langchain_core.messages import AIMessage, BaseMessage

from ...log.kinds import Kind
from ...log.messages import About


class Tally(ABC):
    """What one end counts."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The count after the newest message."""

    @abstractmethod
    def add(self, message: BaseMessage, about: About) -> None:
        """Take the next message of the log."""


class InARow(Tally):
    """How many messages in a row are what a test looks for."""

    def __init__(self, test: Callable[[BaseMessage, About], bool | None]) -> None:
        # None: the message neither counts nor interrupts the row.
        self._test = test
        self._row = 0
        self._untested: list[tuple[BaseMessage, About]] = []

    @property
    def count(self) -> int:
        """How many there are up to the newest message."""
        before, self._row, untested = self._row, 0, self._untested
        self._untested = []
        # The newest first: of a log that is read at once few are tested.
        for message, about in reversed(untested):
            found = self._test(message, about)
            if found is False:
                return self._row
            self._row += found is True
        self._row += before
        return self._row

    def add(self, message: BaseMessage, about: About) -> None:
        self._untested.append((message, about))


class InTurn(Tally):
    """How many results of calls, in one turn, are what a test looks for."""

    count = 0

    def __init__(self, test: Callable[[About], bool]) -> None:
        self._test = test

    def add(self, message: BaseMessage, about: About) -> None:
        if about.ends_turn:
            self.count = 0
        elif about.kind is Kind.TOOL_RESULT:
            self.count += self._test(about)


class Flips(Tally):
    """How many messages of one speaker, at most, play another's part."""

    count = 0

    def __init__(self, test: Callable[[About], bool]) -> None:
        self._test = test
        self.by_speaker = Counter[str | None]()

    def add(self, message: BaseMessage, about: About) -> None:
        if self._test(about):
            self.by_speaker[about.speaker] += 1
            self.count = max(self.by_speaker.values())


class EqualCalls(Tally):
    """How many calls in a row, in one turn, name the same tool with equal arguments."""

    count = 0

    def __init__(self) -> None:
        self._latest: tuple[object, object] | None = None

    def add(self, message: BaseMessage, about: About) -> None:
        if about.ends_turn:
            self.count, self._latest = 0, None
        elif about.kind is Kind.TOOL_CALLS and isinstance(message, AIMessage):
            for call in (*message.tool_calls, *message.invalid_tool_calls):
                made = (call["name"], call["args"])
                self.count = self.count + 1 if made == self._latest else 1
                self._latest = made
