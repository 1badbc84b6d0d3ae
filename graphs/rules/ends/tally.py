"""What ends count in a log, message by message."""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage

from ...log.done_tokens import DATA
from ...log.kinds import Kind
from ...log.messages import About, Source
from ...text.wording import Texts, asks, is_equal, is_same_move, is_short, key_of

_FREE: Final = (Source.HUMAN, Source.TEXT, *DATA)
"""Sources of replies that may repeat: people say what they like, the others have no choice."""

_CYCLE: Final = 3
"""After how many different replies of each speaker a cycle may begin again."""

_SENTENCE: Final = 6
"""How much a sentence that is said again counts for; in a round, one for each speaker."""
_SHORT: Final = 2
"""The same of a short line: six rounds of them are like two of sentences."""
_POLL: Final = 1
"""The same of a short question, or a short answer to a question: who asks again waits."""
_TIMES: Final = 6
"""So many times one sentence of one speaker is like a round of sentences."""


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


class ClosingRow(InARow):
    """A row that nothing joins while a question is open: until its asker says something else."""

    def __init__(self, test: Callable[[BaseMessage, About], bool | None]) -> None:
        super().__init__(test)
        self._asker: str | None = None

    def add(self, message: BaseMessage, about: About) -> None:
        if about.counts:
            if asks(message.text):
                self._asker = about.speaker
            elif self._asker not in (None, about.speaker):
                return
            else:
                self._asker = None
        super().add(message, about)


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


class OwnRow(Tally):
    """How many messages in a row, of whoever said the newest one, are what a test looks for."""

    count = 0

    def __init__(self, test: Callable[[About], bool]) -> None:
        self._test = test
        self._rows = Counter[str | None]()

    def add(self, message: BaseMessage, about: About) -> None:
        if about.counts:
            self.count = self._rows[about.speaker] + 1 if self._test(about) else 0
            self._rows[about.speaker] = self.count


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


class Repeats(Tally):
    """How often the newest message was said by its speaker, where it answers the same."""

    def __init__(self) -> None:
        self._newest: tuple[BaseMessage, About] | None = None
        self._before: tuple[BaseMessage, About] | None = None
        # By speaker: what it said, and what each of that answered. The very first answers nothing.
        self._texts = defaultdict[str | None, Texts](Texts)
        self._answered = defaultdict[
            tuple[str | None, str], list[tuple[BaseMessage, About] | None]
        ](list)

    @property
    def count(self) -> int:
        """How often, the newest message included."""
        if self._newest is None or self._newest[1].source in _FREE:
            return 0
        message, about = self._newest
        before, texts = self._before, self._texts[about.speaker].same_as(message.text)
        return 1 + sum(
            one is None or (before is not None and is_alike(one, before))
            for text in texts
            for one in self._answered[about.speaker, text]
        )

    def add(self, message: BaseMessage, about: About) -> None:
        if not about.counts:
            return
        if self._newest is not None and self._newest[1].source not in _FREE:
            # What comes after it may be the same.
            text, speaker = self._newest[0].text, self._newest[1].speaker
            self._texts[speaker].add(text)
            self._answered[speaker, text].append(self._before)
        self._before, self._newest = self._newest, (message, about)


def is_alike(before: tuple[BaseMessage, About], now: tuple[BaseMessage, About]) -> bool:
    """Whether the same answer to two messages is a repetition.

    It is none where they are two moves of a game, or where a person asks the same again.
    """
    (first, _), (second, about) = before, now
    if about.source is Source.HUMAN and is_equal(first.text, second.text):
        return False
    return is_same_move(first.text, second.text)


class Stillness(Tally):
    """For how many rounds of sentences nobody has said anything new.

    What people say is always new, and what was said before it does not count.
    """

    def __init__(self, speakers: int) -> None:
        self._round = speakers
        self._begin()

    def _begin(self) -> None:
        self._said = defaultdict[str | None, deque[Hashable]](lambda: deque(maxlen=_CYCLE))
        self._sentences = Counter[tuple[str | None, Hashable]]()
        # By the length of a cycle: how many messages in a row were its next, and their weight.
        self._rows = [(0, 0)] * _CYCLE
        self._asked = False
        self.times = 0
        """How often the newest message was said, where it is a sentence."""

    @property
    def rounds(self) -> int:
        """How many rounds, of whatever length, have passed since somebody said something new."""
        return max(self._rows, key=lambda row: row[1])[0] // self._round

    @property
    def count(self) -> int:
        """How many rounds of sentences that is."""
        weight = max(weight for _, weight in self._rows)
        return max(weight // (_SENTENCE * self._round), self.times // _TIMES)

    def ends_by_one(self, limit: int) -> bool:
        """Whether it is one speaker's sentence that makes the count reach a limit."""
        return self.times // _TIMES >= limit

    def add(self, message: BaseMessage, about: About) -> None:
        if not about.counts:
            return
        if about.source is Source.HUMAN:
            self._begin()
            return
        text, said = message.text, self._said[about.speaker]
        key = key_of(text)
        asked, self._asked = self._asked, asks(text) is not None
        weight = _SENTENCE if not is_short(text) else _POLL if asked or self._asked else _SHORT
        for place, (messages, weighs) in enumerate(self._rows):
            again = len(said) > place and said[-1 - place] == key
            self._rows[place] = (messages + 1, weighs + weight) if again else (0, 0)
        said.append(key)
        self.times = 0
        if weight == _SENTENCE and about.source not in _FREE:
            self._sentences[about.speaker, key] += 1
            self.times = self._sentences[about.speaker, key]
