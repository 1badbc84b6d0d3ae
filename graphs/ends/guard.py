"""The base of every guard, and the guards against flawed replies and unreadable verdicts."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import ClassVar, Final

from langchain_core.messages import BaseMessage

from ..speakers.replies import DATA, Flaw, Source
from ..text.similarity import is_blank
from .end import AtEnd, CountedMessage, Dialogue, EndRule, EndStep, Strength, Tallies, Tally
from .facts import Facts, Metadata, SpeechMetadata, is_public_speech, verdict_of

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
    def limit(cls, dialogue: Dialogue) -> int:
        """Return the count at which the guard ends the conversation."""
        limit: int = getattr(dialogue.end_chat.guards, cls.reason)
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
    def is_met_unnamed(cls, dialogue: Dialogue, facts: Facts) -> bool:
        count = facts.counts.get(cls.reason, 0)
        return count > 0 and 0 < cls.limit(dialogue) <= count

    @classmethod
    def ended_by(cls, at: AtEnd) -> str | None:
        return at.speaker

    @classmethod
    def steps(cls, step: CountedMessage) -> Iterator[EndStep]:
        limit = cls.limit(step.dialogue)
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
    def tally(cls, dialogue: Dialogue) -> RowTally:
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
    def tally(cls, dialogue: Dialogue) -> "_Flips":
        return _Flips()

    @classmethod
    def may_count(cls, about: Metadata) -> bool:
        return is_public_speech(about) and about.flaw is Flaw.ROLE_FLIP

    @classmethod
    def count_at(cls, step: CountedMessage) -> int:
        return cls._by_speaker(step.tallies)[step.about.speaker]

    @classmethod
    def ended_by(cls, at: AtEnd) -> str | None:
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
    def tally(cls, dialogue: Dialogue) -> SpeakerRowTally:
        return SpeakerRowTally(lambda about: about.flaw is Flaw.ECHO)


class BlankReplies(_RowGuard):
    """Consecutive blank replies."""

    reason = "blank_replies"
    report = "Replies were blank"
    explanation = "{count} replies in a row were blank"
    counted = "blank reply"

    @classmethod
    def tally(cls, dialogue: Dialogue) -> RowTally:
        return RowTally(heard_replies(_is_blank))


def _is_blank(message: BaseMessage, about: SpeechMetadata) -> bool | None:
    """Return whether a reply is blank, or None if its source could not say anything else."""
    if not is_blank(message.text):
        return False
    return None if about.source in FIXED else True
