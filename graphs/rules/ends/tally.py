"""What ends count in a log, message by message."""

import json
import re
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from itertools import takewhile
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from ...log.done_tokens import DATA
from ...log.messages import metadata
from ...log.metadata import (
    Failure,
    MessageMetadata,
    Source,
    Speech,
    ToolCalls,
    ToolResult,
    is_public_speech,
)
from ...text.wording import Texts, asks, is_short, key_of, plain

FIXED: Final = (Source.TEXT, *DATA)
"""Sources of replies that have no choice, so they may repeat or be blank."""
_FREE: Final = (Source.HUMAN, *FIXED)
"""Sources of replies that may repeat: people say what they like."""

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

_NUMBERS: Final = re.compile(r"[\d\s]+")


class Tally(ABC):
    """What one end counts."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The count after the newest message."""

    @abstractmethod
    def add(self, message: BaseMessage, about: MessageMetadata) -> None:
        """Take the next message of the log."""


class InARow(Tally):
    """How many messages in a row are what a test looks for."""

    def __init__(self, test: Callable[[BaseMessage, MessageMetadata], bool | None]) -> None:
        # None: the message neither counts nor interrupts the row.
        self._test = test
        self._row = 0
        self._untested: list[tuple[BaseMessage, MessageMetadata]] = []

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

    def add(self, message: BaseMessage, about: MessageMetadata) -> None:
        self._untested.append((message, about))


class ClosingRow(InARow):
    """A row that nothing joins while a question is open: until its asker says something else."""

    def __init__(self, test: Callable[[BaseMessage, MessageMetadata], bool | None]) -> None:
        super().__init__(test)
        self._asker: str | None = None

    def add(self, message: BaseMessage, about: MessageMetadata) -> None:
        if is_public_speech(about):
            if asks(message.text):
                self._asker = about.speaker
            elif self._asker not in (None, about.speaker):
                return
            else:
                self._asker = None
        super().add(message, about)


class Flips(Tally):
    """How many messages of one speaker, at most, play another's part."""

    count = 0

    def __init__(self, test: Callable[[MessageMetadata], bool]) -> None:
        self._test = test
        self.by_speaker = Counter[str | None]()

    def add(self, message: BaseMessage, about: MessageMetadata) -> None:
        if self._test(about):
            self.by_speaker[about.speaker] += 1
            self.count = max(self.by_speaker.values())


class OwnRow(Tally):
    """How many messages in a row, of whoever said the newest one, are what a test looks for."""

    count = 0

    def __init__(self, test: Callable[[MessageMetadata], bool]) -> None:
        self._test = test
        self._rows = Counter[str | None]()

    def add(self, message: BaseMessage, about: MessageMetadata) -> None:
        if is_public_speech(about):
            self.count = self._rows[about.speaker] + 1 if self._test(about) else 0
            self._rows[about.speaker] = self.count


class Repeats(Tally):
    """How often a speaker has given its newest reply while nobody said anything new.

    A message is new if its speaker has not said the same before. What people say always is.
    """

    def __init__(self) -> None:
        self._said: list[tuple[str | None, str, Source]] = []
        self._texts = defaultdict[str | None, Texts](Texts)
        # By its speaker, and what equal texts have in common: the place of the first.
        self._first: dict[tuple[str | None, Hashable], int] = {}
        self._is_new: dict[int, bool] = {}

    @property
    def count(self) -> int:
        """How often, the newest message included; 0 if it may repeat."""
        if not self._said or self._said[-1][2] in _FREE:
            return 0
        speaker, text, _ = self._said[-1]
        same, count = self._texts[speaker].same_as(text), 1
        # Most messages are short or new.
        for place in reversed(range(len(self._said) - 1 if same else 0)):
            who, said, source = self._said[place]
            count += who == speaker and said in same and source not in _FREE
            if self._new(place):
                break
        return count

    def add(self, message: BaseMessage, about: MessageMetadata) -> None:
        if not is_public_speech(about):
            return
        if self._said:
            # Only now: the newest text is compared with those before it.
            speaker, text, _ = self._said[-1]
            self._first.setdefault((speaker, key_of(text)), len(self._said) - 1)
            self._texts[speaker].add(text)
        self._said.append((about.speaker, message.text, about.source))

    def _new(self, place: int) -> bool:
        if place not in self._is_new:
            speaker, text, source = self._said[place]
            # Short texts are not found: they are new unless they were said word by word.
            same = self._texts[speaker].same_as(text) or [text]
            first = min(self._first[speaker, key_of(one)] for one in same)
            self._is_new[place] = source is Source.HUMAN or first == place
        return self._is_new[place]


class Stillness(Tally):
    """For how many rounds of sentences nobody has said anything new.

    What people say is always new, and what was said before it does not count.
    """

    def __init__(self, speakers: int) -> None:
        self._round = speakers
        self._begin()

    def _begin(self) -> None:
        self._said = defaultdict[str | None, deque[Hashable]](lambda: deque(maxlen=_CYCLE))
        self._words = set[tuple[str | None, str]]()
        # How often each sentence was said since somebody used new words.
        self._sentences = Counter[tuple[str | None, Hashable]]()
        # By the length of a cycle: how many messages in a row were its next, the lightest one's
        # weight, and their product: a sentence beside short lines may be an offer that they refuse.
        self._rows = [(0, _SENTENCE, 0)] * _CYCLE
        self._asked = False
        self.times = 0
        """How often the newest message was said, where it is a sentence."""

    @property
    def rounds(self) -> int:
        """How many rounds, of whatever length, have passed since somebody said something new."""
        return max((weight, messages) for messages, _, weight in self._rows)[1] // self._round

    @property
    def count(self) -> int:
        """How many rounds of sentences that is."""
        weight = max(weight for _, _, weight in self._rows)
        return max(weight // (_SENTENCE * self._round), self.times // _TIMES)

    def ends_by_one(self, limit: int) -> bool:
        """Whether it is one speaker's sentence that makes the count reach a limit."""
        return self.times // _TIMES >= limit

    def add(self, message: BaseMessage, about: MessageMetadata) -> None:
        if not is_public_speech(about):
            return
        if about.source is Source.HUMAN:
            self._begin()
            return
        text, said = message.text, self._said[about.speaker]
        key = key_of(text)
        asked, self._asked = self._asked, asks(text) is not None
        weight = _SENTENCE if not is_short(text) else _POLL if asked or self._asked else _SHORT
        for place, (messages, lightest, _) in enumerate(self._rows):
            again = len(said) > place and said[-1 - place] == key
            light = min(lightest, weight)
            row = (messages + 1, light, (messages + 1) * light) if again else (0, _SENTENCE, 0)
            self._rows[place] = row
        said.append(key)
        # Other words are new, other numbers alone are not.
        words = about.speaker, _NUMBERS.sub("", plain(text))
        if words not in self._words:
            self._words.add(words)
            self._sentences.clear()
        self.times = 0
        if weight == _SENTENCE and about.source not in _FREE:
            self._sentences[about.speaker, key] += 1
            self.times = self._sentences[about.speaker, key]


_Call = tuple[str | None, str]
"""A call: the tool's name and the arguments as JSON."""


class EqualCalls(Tally):
    """How many messages in a row, in one turn, make the same calls and get the same results.

    The newest message counts before its results are there. Calls count as the same whatever their
    order, and equal calls of one message as one. A message of which a call has failed neither
    counts nor interrupts the row. Calls that were refused or not run count as the same: else a
    model could ask for the same permission for ever. Whatever anybody says ends the row.
    """

    count = 0

    def __init__(self) -> None:
        self._begin(frozenset())

    def _begin(self, calls: frozenset[_Call]) -> None:
        self._calls = calls
        self._results: frozenset[tuple[_Call, str]] | None = None
        self._row = 0
        # Of the newest message: the calls without a result, by their ids, and the results.
        self._waiting: dict[str | None, _Call] = {}
        self._found: set[tuple[_Call, str]] = set()
        self._has_failed = self._was_refused = False
        self.count = 0

    def add(self, message: BaseMessage, about: MessageMetadata) -> None:
        if isinstance(about, Speech):
            self._begin(frozenset())
        elif isinstance(about, ToolCalls) and isinstance(message, AIMessage):
            made = (*message.tool_calls, *message.invalid_tool_calls)
            waiting = {one["id"]: (one["name"], _as_json(one["args"])) for one in made}
            calls = frozenset(waiting.values())
            if calls != self._calls:
                self._begin(calls)
            self._waiting, self._found = waiting, set()
            self._has_failed = self._was_refused = False
            self.count = self._row + 1
        elif isinstance(about, ToolResult) and isinstance(message, ToolMessage):
            call = self._waiting.pop(message.tool_call_id, None)
            if call is None:
                return
            refused = about.failure is Failure.PERSON
            self._was_refused |= refused
            self._has_failed |= message.status == "error" and not refused
            self._found.add((call, message.text))
            if not self._waiting:
                self._close()

    def _close(self) -> None:
        """Take the results of the newest message, which are all there."""
        if self._was_refused:
            self._row += 1
        elif not self._has_failed:
            self._row = self._row + 1 if self._results in (None, self._found) else 1
            self._results = frozenset(self._found)
        self.count = self._row


def equal_calls(log: Sequence[BaseMessage], message: AIMessage) -> int:
    """Return how many equal calls in a row there are with those that a speaker is about to make."""
    read = takewhile(
        lambda one: not isinstance(one[1], Speech), ((one, metadata(one)) for one in reversed(log))
    )
    tally = EqualCalls()
    for one, about in reversed(list(read)):
        tally.add(one, about)
    tally.add(message, ToolCalls())
    return tally.count


def _as_json(arguments: object) -> str:
    return json.dumps(arguments, sort_keys=True, default=str)
