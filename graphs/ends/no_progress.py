"""Guards against talk that makes no progress: equal replies, nothing new, endless farewells."""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Hashable
from typing import Final

from langchain_core.messages import BaseMessage

from ..speakers.replies import Source
from ..text.farewells import is_farewell
from ..text.wording import Texts, asks, is_short, key_of, plain
from .end import AtEnd, Dialogue, Tally
from .facts import Metadata, is_public_speech
from .guard import FREE, Guard, MessageTest, RowTally, heard_replies

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


class SameReplies(Guard):
    """A speaker kept giving the same reply while nobody said anything new."""

    reason = "same_replies"
    report = "A speaker kept giving the same reply"
    explanation = "{by} gave the same reply {count} times"
    counted = "the same reply"
    first_shown = 2

    @classmethod
    def tally(cls, dialogue: Dialogue) -> "_Repeats":
        return _Repeats()


class _Repeats(Tally):
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
        if not self._said or self._said[-1][2] in FREE:
            return 0
        speaker, text, _ = self._said[-1]
        same, count = self._texts[speaker].same_as(text), 1
        # Most messages are short or new.
        for place in reversed(range(len(self._said) - 1 if same else 0)):
            who, said, source = self._said[place]
            count += who == speaker and said in same and source not in FREE
            if self._new(place):
                break
        return count

    def add(self, message: BaseMessage, about: Metadata) -> None:
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


class Standstill(Guard):
    """Nobody said anything new any more, or one speaker said one sentence again and again."""

    reason = "standstill"
    report = "Nobody said anything new"
    explanation = "nobody said anything new for {count} rounds"
    counted = "nothing new"

    @classmethod
    def tally(cls, dialogue: Dialogue) -> "_Stillness":
        return _Stillness(len(dialogue.speakers))

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        found = at.tallies[cls.reason]
        assert isinstance(found, _Stillness)  # noqa: S101  # it is made above
        if found.ends_by_one(cls.limit(at.dialogue)):
            return f"{cls.ended_by(at)} said the same sentence {found.times} times"
        return cls.explanation.format(count=found.rounds)


class _Stillness(Tally):
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

    def add(self, message: BaseMessage, about: Metadata) -> None:
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
        if weight == _SENTENCE and about.source not in FREE:
            self._sentences[about.speaker, key] += 1
            self.times = self._sentences[about.speaker, key]


class Farewells(Guard):
    """Messages in a row were nothing but thanks or farewells."""

    reason = "farewells"
    report = "Nothing but thanks and farewells was left"
    explanation = "{count} messages in a row were nothing but thanks or farewells"
    counted = "nothing but thanks or farewells"

    @classmethod
    def tally(cls, dialogue: Dialogue) -> RowTally:
        def is_one(message: BaseMessage, about: Metadata) -> bool:
            marks = dialogue.speaker(about.speaker or "").marks
            return is_farewell(message.text, dialogue.names, marks.texts if marks else ())

        test = heard_replies(is_one)
        return _ClosingRow(test) if _ends_standstill(dialogue) else RowTally(test)

    @classmethod
    def limit(cls, dialogue: Dialogue) -> int:
        # Whether a task is complete is for a verdict to say.
        if dialogue.end_chat.waits_for_tasks and _ends_standstill(dialogue):
            return 0
        return super().limit(dialogue)


def _ends_standstill(dialogue: Dialogue) -> bool:
    """Return whether another guard ends endless thanks, so that this one can wait."""
    return Standstill.limit(dialogue) > 0


class _ClosingRow(RowTally):
    """A row that nothing joins while a question is open: until its asker says something else."""

    def __init__(self, test: MessageTest) -> None:
        super().__init__(test)
        self._asker: str | None = None

    def add(self, message: BaseMessage, about: Metadata) -> None:
        if is_public_speech(about):
            if asks(message.text):
                self._asker = about.speaker
            elif self._asker not in (None, about.speaker):
                return
            else:
                self._asker = None
        super().add(message, about)
