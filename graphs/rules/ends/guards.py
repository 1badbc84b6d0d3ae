"""Guards: they end a conversation that goes wrong, and yield to verdicts."""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Final

from langchain_core.messages import BaseMessage

from ...log.done_tokens import DATA
from ...log.kinds import Kind
from ...log.messages import About, Flaw, Source
from ...spec.conversation import Conversation
from ...spec.ends import Reason
from ...text.farewells import is_farewell
from ...text.wording import Texts, is_blank, is_equal, is_same_move
from .end import AtEnd, CountedMessage, Guard, Tallies
from .tally import EqualCalls, Flips, InARow, Tally

_FREE = (Source.HUMAN, Source.TEXT, *DATA)
"""Sources of replies that may repeat: people say what they like, the others have no choice."""


class UnreadableVerdicts(Guard):
    """Verdicts in a row could not be read."""

    reason = Reason.UNREADABLE_VERDICTS
    because = "{count} verdicts in a row could not be read"
    counted = "unreadable verdict"

    def tally(self, conversation: Conversation) -> InARow:
        return InARow(
            lambda _, about: (
                not about.verdict.readable
                if about.verdict is not None and self.counts(about)
                else None
            )
        )

    def counts(self, about: About) -> bool:
        return about.verdict is not None and not about.verdict.final


class RoleFlips(Guard):
    """A speaker spoke another's part, even when asked to correct it."""

    reason = Reason.ROLE_FLIPS
    because = "{by} kept speaking another's part"
    counted = "another's part"

    def tally(self, conversation: Conversation) -> Flips:
        return Flips(self.counts)

    def counts(self, about: About) -> bool:
        return about.counts and about.flaw is Flaw.ROLE_FLIP

    def counted_at(self, step: CountedMessage) -> int:
        return self._by_speaker(step.tallies)[step.about.speaker]

    def by(self, at: AtEnd) -> str | None:
        flips = self._by_speaker(at.tallies)
        return max(flips, key=flips.__getitem__)

    def _by_speaker(self, tallies: Tallies) -> Counter[str | None]:
        found = tallies[self.reason]
        assert isinstance(found, Flips)  # noqa: S101  # it is made above
        return found.by_speaker


class BlankReplies(Guard):
    """Replies in a row were blank."""

    reason = Reason.BLANK_REPLIES
    because = "{count} replies in a row were blank"
    counted = "blank reply"

    def tally(self, conversation: Conversation) -> InARow:
        return InARow(_of_replies(lambda message, _: is_blank(message.text)))


class SameReplies(Guard):
    """A speaker kept giving the same reply."""

    reason = Reason.SAME_REPLIES
    because = "{by} gave the same reply {count} times"
    counted = "the same reply"
    least = 2

    def tally(self, conversation: Conversation) -> "Repeats":
        return Repeats()


class Repeats(Tally):
    """How often the newest message was said by its speaker, where it answers the same."""

    def __init__(self) -> None:
        self._newest: tuple[BaseMessage, About] | None = None
        self._before: tuple[BaseMessage, About] | None = None
        # By speaker: what it said, and what each of that answered. The very first answers nothing.
        self._texts = defaultdict[str | None, Texts](Texts)
        self._answered = defaultdict[str | None, list[tuple[BaseMessage, About] | None]](list)

    @property
    def count(self) -> int:
        """How often, the newest message included."""
        if self._newest is None or self._newest[1].source in _FREE:
            return 0
        message, about = self._newest
        answered = self._answered[about.speaker]
        same = [answered[number] for number in self._texts[about.speaker].same_as(message.text)]
        before = self._before
        return 1 + sum(
            one is None or (before is not None and is_alike(one, before)) for one in same
        )

    def add(self, message: BaseMessage, about: About) -> None:
        if not about.counts:
            return
        if self._newest is not None and self._newest[1].source not in _FREE:
            # What comes after it may be the same.
            self._texts[self._newest[1].speaker].add(self._newest[0].text)
            self._answered[self._newest[1].speaker].append(self._before)
        self._before, self._newest = self._newest, (message, about)


def is_alike(before: tuple[BaseMessage, About], now: tuple[BaseMessage, About]) -> bool:
    """Whether the same answer to two messages is a repetition.

    It is none where they are two moves of a game, or where a person asks the same again.
    """
    (first, _), (second, about) = before, now
    if about.source is Source.HUMAN and is_equal(first.text, second.text):
        return False
    return is_same_move(first.text, second.text)


class Farewells(Guard):
    """Messages in a row were nothing but thanks or farewells."""

    reason = Reason.FAREWELLS
    because = "{count} messages in a row were nothing but thanks or farewells"
    counted = "nothing but thanks or farewells"

    def tally(self, conversation: Conversation) -> InARow:
        def is_one(message: BaseMessage, about: About) -> bool:
            marks = conversation.speaker(about.speaker or "").marks
            return is_farewell(message.text, conversation.names, marks.texts if marks else ())

        return InARow(_of_replies(is_one))


def _of_replies(
    test: Callable[[BaseMessage, About], bool],
) -> Callable[[BaseMessage, About], bool | None]:
    """The test of a row of what all hear, in which what people say is never looked for."""

    def found(message: BaseMessage, about: About) -> bool | None:
        if not about.counts:
            return None
        return about.source is not Source.HUMAN and test(message, about)

    return found


class SameToolCalls(Guard):
    """A speaker kept calling a tool with equal arguments, within a turn."""

    reason = Reason.SAME_TOOL_CALLS
    stops_calls = True
    because = "{by} called a tool {count} times with equal arguments"
    counted = "a tool called with equal arguments"
    least = 2

    def tally(self, conversation: Conversation) -> EqualCalls:
        return EqualCalls()

    def counts(self, about: About) -> bool:
        return about.kind is Kind.TOOL_CALLS


GUARDS: Final = (
    UnreadableVerdicts(),
    RoleFlips(),
    BlankReplies(),
    SameReplies(),
    Farewells(),
    SameToolCalls(),
)
