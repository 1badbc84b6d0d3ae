"""Guards: they end a conversation that goes wrong, and yield to verdicts."""

from collections import Counter
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage

from ...log.kinds import Kind
from ...log.messages import About, Flaw, Source
from ...spec.conversation import Conversation
from ...spec.ends import Reason
from ...text.farewells import is_farewell
from ...text.wording import is_blank, is_equal, is_same, is_same_move
from .end import AtEnd, CountedMessage, Guard
from .talk import DATA, Read, Talk, trailing

_FREE = (Source.HUMAN, Source.TEXT, *DATA)
"""Sources of replies that may repeat: people say what they like, the others have no choice."""


class UnreadableVerdicts(Guard):
    """Verdicts in a row could not be read."""

    reason = Reason.UNREADABLE_VERDICTS
    because = "{count} verdicts in a row could not be read"
    counted = "unreadable verdict"

    def count(self, talk: Talk) -> int:
        verdicts = (about.verdict for _, about in reversed(talk.read))
        return trailing(not verdict.readable for verdict in verdicts if verdict is not None)

    def counts(self, about: About) -> bool:
        return about.verdict is not None


class RoleFlips(Guard):
    """A speaker spoke another's part, even when asked to correct it."""

    reason = Reason.ROLE_FLIPS
    because = "{by} kept speaking another's part"
    counted = "another's part"

    def count(self, talk: Talk) -> int:
        return max(self._flips(talk).values(), default=0)

    def counts(self, about: About) -> bool:
        return about.counts and about.flaw is Flaw.ROLE_FLIP

    def counted_at(self, step: CountedMessage) -> int:
        return self._flips(step.talk)[step.about.speaker]

    def by(self, at: AtEnd) -> str | None:
        flips = self._flips(at.talk)
        return max(flips, key=flips.__getitem__)

    def _flips(self, talk: Talk) -> Counter[str | None]:
        return Counter(about.speaker for _, about in talk.heard if self.counts(about))


class BlankReplies(Guard):
    """Replies in a row were blank."""

    reason = Reason.BLANK_REPLIES
    because = "{count} replies in a row were blank"
    counted = "blank reply"

    def count(self, talk: Talk) -> int:
        return trailing(
            about.source is not Source.HUMAN and is_blank(message.text)
            for message, about in reversed(talk.heard)
        )


class SameReplies(Guard):
    """A speaker kept giving the same reply."""

    reason = Reason.SAME_REPLIES
    because = "{by} gave the same reply {count} times"
    counted = "the same reply"
    least = 2

    def count(self, talk: Talk) -> int:
        heard = talk.heard
        if not heard or heard[-1][1].source in _FREE:
            return 0
        latest, who = heard[-1]
        return 1 + sum(
            is_same(message.text, latest.text) and _answers_the_same(heard, place)
            for place, (message, about) in enumerate(heard[:-1])
            if about.speaker == who.speaker and about.source not in _FREE
        )


def _answers_the_same(heard: Read, place: int) -> bool:
    """Whether a message and the newest one answer the same; the very first answers nothing."""
    return place == 0 or is_alike(heard[place - 1], heard[-2])


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

    def count(self, talk: Talk) -> int:
        return trailing(_is_farewell(talk.conversation, *one) for one in reversed(talk.heard))


def _is_farewell(conversation: Conversation, message: BaseMessage, about: About) -> bool:
    if about.source is Source.HUMAN:
        return False
    marks = conversation.speaker(about.speaker or "").marks
    return is_farewell(message.text, conversation.names, marks.texts if marks else ())


class SameToolCalls(Guard):
    """A speaker kept calling a tool with equal arguments, within a turn."""

    reason = Reason.SAME_TOOL_CALLS
    stops_calls = True
    because = "{by} called a tool {count} times with equal arguments"
    counted = "a tool called with equal arguments"
    least = 2

    def count(self, talk: Talk) -> int:
        calls = [
            (call["name"], call["args"])
            for message, about in talk.this_turn
            if self.counts(about) and isinstance(message, AIMessage)
            for call in reversed([*message.tool_calls, *message.invalid_tool_calls])
        ]
        return trailing(call == calls[0] for call in calls)

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
