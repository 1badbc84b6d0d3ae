"""Guards: they end a conversation that goes wrong, and yield to verdicts."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from langchain_core.messages import BaseMessage

from ...log.metadata import (
    Flaw,
    MessageMetadata,
    Reflection,
    Source,
    Speech,
    ToolCalls,
    is_public_speech,
    verdict_of,
)
from ...spec.conversation import Conversation
from ...spec.end_chat import EndChatMode
from ...spec.ends import Reason
from ...text.farewells import is_farewell
from ...text.wording import is_blank
from .end import AtEnd, CountedMessage, Guard, Tallies
from .tally import (
    FIXED,
    ClosingRow,
    EqualCalls,
    Flips,
    InARow,
    OwnRow,
    Repeats,
    Stillness,
)


class UnreadableVerdicts(Guard):
    """Verdicts in a row could not be read."""

    reason = Reason.UNREADABLE_VERDICTS
    because = "{count} verdicts in a row could not be read"
    counted = "unreadable verdict"

    def tally(self, conversation: Conversation) -> InARow:
        return InARow(
            lambda _, about: (
                not about.verdict.readable
                if isinstance(about, Reflection) and about.verdict and not about.verdict.final
                else None
            )
        )

    def counts(self, about: MessageMetadata) -> bool:
        verdict = verdict_of(about)
        return verdict is not None and not verdict.final


class RoleFlips(Guard):
    """A speaker spoke another's part, even when asked to correct it."""

    reason = Reason.ROLE_FLIPS
    because = "{by} kept speaking another's part"
    counted = "another's part"

    def tally(self, conversation: Conversation) -> Flips:
        return Flips(self.counts)

    def counts(self, about: MessageMetadata) -> bool:
        return is_public_speech(about) and about.flaw is Flaw.ROLE_FLIP

    def counted_at(self, step: CountedMessage) -> int:
        return self._by_speaker(step.tallies)[step.about.speaker]

    def by(self, at: AtEnd) -> str | None:
        flips = self._by_speaker(at.tallies)
        return max(flips, key=flips.__getitem__)

    def _by_speaker(self, tallies: Tallies) -> Counter[str | None]:
        found = tallies[self.reason]
        assert isinstance(found, Flips)  # noqa: S101  # it is made above
        return found.by_speaker


class Echo(Guard):
    """A speaker kept saying what another had just said, even when asked for words of its own."""

    reason = Reason.ECHO
    because = "{by} said what another had just said {count} times in a row"
    counted = "another's message, word for word"

    def tally(self, conversation: Conversation) -> OwnRow:
        return OwnRow(lambda about: isinstance(about, Speech) and about.flaw is Flaw.ECHO)


class BlankReplies(Guard):
    """Replies in a row were blank."""

    reason = Reason.BLANK_REPLIES
    because = "{count} replies in a row were blank"
    counted = "blank reply"

    def tally(self, conversation: Conversation) -> InARow:
        return InARow(_of_replies(_is_blank))


def _is_blank(message: BaseMessage, about: MessageMetadata) -> bool | None:
    """Return whether a reply is blank; None if nobody could have said anything instead."""
    if not is_blank(message.text):
        return False
    return None if isinstance(about, Speech) and about.source in FIXED else True


class SameReplies(Guard):
    """A speaker kept giving the same reply while nobody said anything new."""

    reason = Reason.SAME_REPLIES
    because = "{by} gave the same reply {count} times"
    counted = "the same reply"
    least = 2

    def tally(self, conversation: Conversation) -> Repeats:
        return Repeats()


class Standstill(Guard):
    """Nobody said anything new any more, or one speaker said one sentence again and again."""

    reason = Reason.STANDSTILL
    because = "nobody said anything new for {count} rounds"
    counted = "nothing new"

    def tally(self, conversation: Conversation) -> Stillness:
        return Stillness(len(conversation.speakers))

    def words(self, at: AtEnd) -> str:
        found = at.tallies[self.reason]
        assert isinstance(found, Stillness)  # noqa: S101  # it is made above
        if found.ends_by_one(self.limit(at.conversation)):
            return f"{self.by(at)} said the same sentence {found.times} times"
        return self.because.format(count=found.rounds)


class Farewells(Guard):
    """Messages in a row were nothing but thanks or farewells."""

    reason = Reason.FAREWELLS
    because = "{count} messages in a row were nothing but thanks or farewells"
    counted = "nothing but thanks or farewells"

    def tally(self, conversation: Conversation) -> InARow:
        def is_one(message: BaseMessage, about: MessageMetadata) -> bool:
            marks = conversation.speaker(about.speaker or "").marks
            return is_farewell(message.text, conversation.names, marks.texts if marks else ())

        test = _of_replies(is_one)
        return ClosingRow(test) if _ends_what_stands_still(conversation) else InARow(test)

    def limit(self, conversation: Conversation) -> int:
        # Whether a task is complete is for a verdict to say.
        waits = conversation.end_chat.mode is not EndChatMode.MAX_ITERATIONS_ONLY
        if waits and _ends_what_stands_still(conversation):
            return 0
        return conversation.end_chat.guards.farewells


def _ends_what_stands_still(conversation: Conversation) -> bool:
    """Whether something else than farewells ends thanks that never end, so that these can wait."""
    return conversation.end_chat.guards.standstill > 0


def _of_replies(
    test: Callable[[BaseMessage, MessageMetadata], bool | None],
) -> Callable[[BaseMessage, MessageMetadata], bool | None]:
    """The test of a row of what all hear, in which what people say is never looked for."""

    def found(message: BaseMessage, about: MessageMetadata) -> bool | None:
        if not is_public_speech(about):
            return None
        return about.source is not Source.HUMAN and test(message, about)

    return found


class SameToolCalls(Guard):
    """A speaker kept making the same call, with the same result, within a turn."""

    reason = Reason.SAME_TOOL_CALLS
    stops_calls = True
    because = "{by} made the same call {count} times"
    counted = "the same call"
    least = 2

    def tally(self, conversation: Conversation) -> EqualCalls:
        return EqualCalls()

    def counts(self, about: MessageMetadata) -> bool:
        return isinstance(about, ToolCalls)


GUARDS: Final = (
    UnreadableVerdicts(),
    RoleFlips(),
    BlankReplies(),
    SameReplies(),
    Echo(),
    Farewells(),
    Standstill(),
    SameToolCalls(),
)
