"""The guards on messages, which end conversations that make no progress, and their base class.

They count flawed replies, equal replies, rounds with nothing new, and endless farewells.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator
from typing import ClassVar, Final

from langchain_core.messages import BaseMessage

from ..speakers.replies import DATA, Flaw, Source
from ..text.sentences import is_farewell
from ..text.similarity import Texts, asks, has_digit, is_blank, is_short, key_of, plain
from .end import (
    AtEnd,
    ConversationLike,
    CountedMessage,
    EndRule,
    EndStep,
    Facts,
    Metadata,
    SpeechMetadata,
    Strength,
    Tallies,
    Tally,
    is_public_speech,
    verdict_of,
)

FIXED: Final = (Source.TEXT, *DATA)
"""Sources of fixed replies, which may repeat or be blank."""

FREE: Final = (Source.HUMAN, *FIXED)
"""Sources of replies that may repeat: fixed replies, and people, who may write anything."""


class Guard(EndRule):
    """A guard that counts one kind of fault and ends the conversation at a limit.

    A limit of 0 switches the guard off.
    """

    strength = Strength.GUARD
    counted: ClassVar[str]
    """The counted fault, in a few words."""
    first_shown: ClassVar[int] = 1
    """The smallest count that `steps` and the page show."""

    @classmethod
    def limit(cls, conversation: ConversationLike) -> int:
        """Return the count at which the guard ends the conversation."""
        limit: int = getattr(conversation.end_chat.guards, cls.reason)
        return limit

    @classmethod
    def may_count(cls, about: Metadata) -> bool:
        """Return whether the guard may count a message."""
        return is_public_speech(about)

    @classmethod
    def count_at(cls, step: CountedMessage) -> int:
        """Return the guard's count after a message."""
        return step.facts.count(cls.reason)

    @classmethod
    def is_met_unnamed(cls, conversation: ConversationLike, facts: Facts) -> bool:
        count = facts.counts.get(cls.reason, 0)
        return count > 0 and 0 < cls.limit(conversation) <= count

    @classmethod
    def find_ender(cls, at: AtEnd) -> str | None:
        return at.speaker

    @classmethod
    def steps(cls, step: CountedMessage) -> Iterator[EndStep]:
        limit = cls.limit(step.conversation)
        count = cls.count_at(step) if limit and cls.may_count(step.about) else 0
        if count >= cls.first_shown:
            verdict = verdict_of(step.about)
            who = step.about.speaker if verdict is None else verdict.speaker
            yield EndStep("counted", who, f"{cls.counted} ({count} of {limit})", count, limit)


MessageTest = Callable[[BaseMessage, Metadata], bool | None]
"""A function that returns True if a message counts, False if it ends the count, else None."""


class RowTally(Tally):
    """A counter of consecutive messages that pass a test."""

    def __init__(self, test: MessageTest) -> None:
        self._test = test
        self._row = 0
        self.newest: Metadata | None = None
        """The metadata of the newest message that passed the test. None if none did."""
        self._untested: list[tuple[BaseMessage, Metadata]] = []

    @property
    def count(self) -> int:
        """Return the number of consecutive messages, up to the newest, that pass the test."""
        before, self._row, untested = self._row, 0, self._untested
        self._untested = []
        # The newest first, so that only few messages of a long log are tested.
        is_first = True
        for message, about in reversed(untested):
            found = self._test(message, about)
            if found is False:
                return self._row
            if found and is_first:
                self.newest, is_first = about, False
            self._row += found is True
        self._row += before
        return self._row

    def add(self, message: BaseMessage, about: Metadata) -> None:
        self._untested.append((message, about))


class SpeakerRowTally(Tally):
    """A counter of the newest speaker's consecutive messages that pass a test."""

    count = 0

    def __init__(self, test: Callable[[SpeechMetadata], bool]) -> None:
        self._test = test
        self._rows = Counter[str | None]()

    def add(self, message: BaseMessage, about: Metadata) -> None:
        if is_public_speech(about):
            self.count = self._rows[about.speaker] + 1 if self._test(about) else 0
            self._rows[about.speaker] = self.count


class _RowGuard(Guard):
    """Base of the guards whose row of faults may have a cause in the model or its provider."""

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        text, tally = super().explain(at), at.tallies[cls.reason]
        stop = getattr(tally.newest, "stop", None) if isinstance(tally, RowTally) else None
        return text if stop is None else f"{text}; the last one: {stop.clause}"


def heard_replies(
    test: Callable[[BaseMessage, SpeechMetadata], bool | None],
) -> MessageTest:
    """Return a test for consecutive replies that all hear. A person's message ends the count."""

    def found(message: BaseMessage, about: Metadata) -> bool | None:
        if not is_public_speech(about):
            return None
        return about.source is not Source.HUMAN and test(message, about)

    return found


class UnreadableVerdicts(_RowGuard):
    """Consecutive verdicts that could not be read."""

    reason = "unreadable_verdicts"
    report = "Verdicts could not be read"
    explanation = "{count} verdicts in a row could not be read"
    counted = "unreadable verdict"

    @classmethod
    def tally(cls, conversation: ConversationLike) -> RowTally:
        return RowTally(cls._is_unreadable)

    @classmethod
    def may_count(cls, about: Metadata) -> bool:
        verdict = verdict_of(about)
        return verdict is not None and not verdict.final

    @classmethod
    def _is_unreadable(cls, message: BaseMessage, about: Metadata) -> bool | None:
        verdict = verdict_of(about)
        return None if verdict is None or verdict.final else not verdict.readable


class RoleFlips(Guard):
    """Messages in which a speaker writes another speaker's part, even after a retry."""

    reason = "role_flips"
    report = "A speaker kept writing another speaker's part"
    explanation = "{by} kept writing another speaker's part"
    counted = "another speaker's part"

    @classmethod
    def tally(cls, conversation: ConversationLike) -> "_Flips":
        return _Flips()

    @classmethod
    def may_count(cls, about: Metadata) -> bool:
        return is_public_speech(about) and about.flaw is Flaw.ROLE_FLIP

    @classmethod
    def count_at(cls, step: CountedMessage) -> int:
        return cls._by_speaker(step.tallies)[step.about.speaker]

    @classmethod
    def find_ender(cls, at: AtEnd) -> str | None:
        flips = cls._by_speaker(at.tallies)
        return max(flips, key=flips.__getitem__)

    @classmethod
    def _by_speaker(cls, tallies: Tallies) -> Counter[str | None]:
        found = tallies[cls.reason]
        assert isinstance(found, _Flips)  # noqa: S101  # made above
        return found.by_speaker


class _Flips(Tally):
    """A counter of messages with another speaker's part: the largest count of any speaker."""

    count = 0

    def __init__(self) -> None:
        self.by_speaker = Counter[str | None]()

    def add(self, message: BaseMessage, about: Metadata) -> None:
        if RoleFlips.may_count(about):
            self.by_speaker[about.speaker] += 1
            self.count = max(self.by_speaker.values())


class Echo(Guard):
    """Messages in which a speaker repeats another speaker's message, even after a retry."""

    reason = "echo"
    report = "A speaker kept repeating another speaker"
    explanation = "{by} repeated another speaker's message {count} times in a row"
    counted = "another speaker's message, word for word"

    @classmethod
    def tally(cls, conversation: ConversationLike) -> SpeakerRowTally:
        return SpeakerRowTally(lambda about: about.flaw is Flaw.ECHO)


class BlankReplies(_RowGuard):
    """Consecutive blank replies."""

    reason = "blank_replies"
    report = "Replies were blank"
    explanation = "{count} replies in a row were blank"
    counted = "blank reply"

    @classmethod
    def tally(cls, conversation: ConversationLike) -> RowTally:
        return RowTally(heard_replies(_is_blank))


_ASTONISHED: Final = re.compile(r"[\s*_\"'“”.…]*[?!？！؟][\s*_\"'“”.…?!？！؟]*")  # noqa: RUF001
"""A reply of question marks or exclamation marks alone, such as "?!". People write it in chats."""


def _is_blank(message: BaseMessage, about: SpeechMetadata) -> bool | None:
    """Return whether a reply is blank, or None if its source could not say anything else."""
    if not is_blank(message.text) or _ASTONISHED.fullmatch(message.text):
        return False
    return None if about.source in FIXED else True


_CYCLE: Final = 3
"""The maximum length of a cycle: the number of replies that each speaker repeats in order."""

_SENTENCE: Final = 6
"""The weight of a repeated sentence. A round of sentences has this weight for each speaker."""
_SHORT: Final = 2
"""The weight of a repeated short line: three short lines count as one sentence."""
_SHORT_QUESTION: Final = 1
"""The weight of a short question, or of a short answer to one: a speaker may ask it repeatedly to
wait for a change."""
_REPETITIONS: Final = 6
"""This many repetitions of a sentence by one speaker equal a round of sentences."""

_DIGITS: Final = re.compile(r"\d+")


class SameReplies(Guard):
    """Equal replies of one speaker while no message is new."""

    reason = "same_replies"
    report = "A speaker kept repeating its reply"
    explanation = "{by} gave the same reply {count} times"
    counted = "the same reply"
    first_shown = 2

    @classmethod
    def tally(cls, conversation: ConversationLike) -> "_Repeats":
        return _Repeats()


class _Repeats(Tally):
    """A counter of how often a speaker has given its newest reply while no message was new.

    A message is new if its speaker has not said the same before. Messages of people are always new.
    """

    def __init__(self) -> None:
        self._said: list[tuple[str | None, str, Source]] = []
        self._texts = defaultdict[str | None, Texts](Texts)
        # For each speaker and each key that equal texts share, the index of the first such text.
        self._first: dict[tuple[str | None, Hashable], int] = {}
        self._is_new: dict[int, bool] = {}

    @property
    def count(self) -> int:
        """Return the count, including the newest message. 0 if that message may repeat others."""
        if not self._said or self._said[-1][2] in FREE:
            return 0
        speaker, text, _ = self._said[-1]
        same, count = self._texts[speaker].same_as(text), 1
        # Most messages are short or new, so this loop rarely runs.
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
            # Added only now, because the newest text is compared with the texts before it.
            speaker, text, _ = self._said[-1]
            self._first.setdefault((speaker, key_of(text)), len(self._said) - 1)
            self._texts[speaker].add(text)
        self._said.append((about.speaker, message.text, about.source))

    def _new(self, place: int) -> bool:
        if place not in self._is_new:
            speaker, text, source = self._said[place]
            # Short texts are never found as similar: they are new unless they were said word for
            # word.
            same = self._texts[speaker].same_as(text) or [text]
            first = min(self._first[speaker, key_of(one)] for one in same)
            self._is_new[place] = source is Source.HUMAN or first == place
        return self._is_new[place]


class Standstill(Guard):
    """Rounds without a new message, or one sentence that one speaker repeats."""

    reason = "standstill"
    report = "No speaker said anything new"
    explanation = "no speaker said anything new for {count} rounds"
    counted = "nothing new"

    @classmethod
    def tally(cls, conversation: ConversationLike) -> "_Stillness":
        return _Stillness(len(conversation.speakers))

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        found = at.tallies[cls.reason]
        assert isinstance(found, _Stillness)  # noqa: S101  # made above
        if found.ends_by_one(cls.limit(at.conversation)):
            return f"{cls.find_ender(at)} said the same sentence {found.times} times"
        return cls.explanation.format(count=found.rounds)


class _Stillness(Tally):
    """A counter of repetition since the last new message, measured in rounds of sentences.

    Messages of people are always new.
    """

    def __init__(self, speakers: int) -> None:
        self._round = speakers
        self._begin()

    def _begin(self) -> None:
        self._said = defaultdict[str | None, deque[Hashable]](lambda: deque(maxlen=_CYCLE))
        self._words = set[tuple[str | None, str]]()
        # The number of times that each sentence was said since the last new words.
        self._sentences = Counter[tuple[str | None, Hashable]]()
        # For each length of a cycle: the number of consecutive messages that continue it, the
        # weight of the lightest one, and their product. The lightest one counts because a sentence
        # between short lines may be an offer that they refuse.
        self._rows = [(0, _SENTENCE, 0)] * _CYCLE
        self._asked = False
        self.times = 0
        """The number of times that the newest message was said, if it is a sentence."""

    @property
    def rounds(self) -> int:
        """Return the number of rounds, of any length, since the last new message."""
        return max((weight, messages) for messages, _, weight in self._rows)[1] // self._round

    @property
    def count(self) -> int:
        """Return the repetition since the last new message, in rounds of sentences."""
        weight = max(weight for _, _, weight in self._rows)
        return max(weight // (_SENTENCE * self._round), self.times // _REPETITIONS)

    def ends_by_one(self, limit: int) -> bool:
        """Return whether one speaker's sentence alone reaches the limit."""
        return self.times // _REPETITIONS >= limit

    def add(self, message: BaseMessage, about: Metadata) -> None:
        if not is_public_speech(about):
            return
        if about.source is Source.HUMAN:
            self._begin()
            return
        text, said = message.text, self._said[about.speaker]
        key = key_of(text)
        asked, self._asked = self._asked, asks(text)
        weight = (
            _SENTENCE if not is_short(text) else _SHORT_QUESTION if asked or self._asked else _SHORT
        )
        for place, (messages, lightest, _) in enumerate(self._rows):
            again = len(said) > place and said[-1 - place] == key
            light = min(lightest, weight)
            row = (messages + 1, light, (messages + 1) * light) if again else (0, _SENTENCE, 0)
            self._rows[place] = row
        said.append(key)
        # Other words make a message new, but other numbers do not.
        bare = plain(text).replace(" ", "")
        words = about.speaker, _DIGITS.sub("", bare) if has_digit(bare) else bare
        if words not in self._words:
            self._words.add(words)
            self._sentences.clear()
        self.times = 0
        if weight == _SENTENCE and about.source not in FREE:
            self._sentences[about.speaker, key] += 1
            self.times = self._sentences[about.speaker, key]


class Farewells(Guard):
    """Consecutive messages that contain only thanks or farewells."""

    reason = "farewells"
    report = "Only thanks and farewells were left"
    explanation = "{count} messages in a row contained only thanks or farewells"
    counted = "only thanks or farewells"

    @classmethod
    def tally(cls, conversation: ConversationLike) -> RowTally:
        def is_one(message: BaseMessage, about: Metadata) -> bool:
            marks = conversation.speaker(about.speaker or "").marks
            return is_farewell(message.text, conversation.names, marks.texts if marks else ())

        test = heard_replies(is_one)
        return _ClosingRow(test) if _ends_standstill(conversation) else RowTally(test)

    @classmethod
    def limit(cls, conversation: ConversationLike) -> int:
        # Only a verdict may decide whether a task is complete.
        if conversation.end_chat.waits_for_tasks and _ends_standstill(conversation):
            return 0
        return super().limit(conversation)


def _ends_standstill(conversation: ConversationLike) -> bool:
    """Return whether `Standstill` is on: it also ends endless thanks, so this guard can wait."""
    return Standstill.limit(conversation) > 0


class _ClosingRow(RowTally):
    """A counter that pauses while a question is open, until the speaker that asked continues."""

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
