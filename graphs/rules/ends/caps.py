"""Caps: they yield to everything else."""

from typing import Final

from ...spec.conversation import Conversation
from ...spec.ends import MaxMessages, Reason
from ..moves import Strength
from ..people import has_capped_calls, is_capped
from ..position import Facts, Position
from .end import EndRule, Named
from .said import answers_unasked


class AutoRepliesReached(EndRule):
    """So many automatic replies were given in a person's place (AutoGen)."""

    reason = Reason.MAX_CONSECUTIVE_AUTO_REPLY
    strength = Strength.CAP
    stops_calls = True
    because = "the cap on automatic replies was reached"

    def holds(self, conversation: Conversation, position: Position) -> bool:
        left = position.left is not None and position.left.reason == self.reason
        if left or has_capped_calls(conversation, position):
            return True
        name = answers_unasked(conversation, position)
        return name is not None and is_capped(conversation, position, name)


class MessagesReached(Named[MaxMessages]):
    """The message cap is reached."""

    reason = Reason.MAX_MESSAGES
    strength = Strength.CAP
    because = "the message cap was reached"

    def is_met(self, end: MaxMessages, facts: Facts) -> bool:
        return facts.messages >= end.limit


class RoundsReached(EndRule):
    """The round cap is reached."""

    reason = Reason.MAX_ITERATIONS
    strength = Strength.CAP
    because = "the round cap was reached"

    def holds(self, conversation: Conversation, position: Position) -> bool:
        cap = conversation.end_chat.max_iterations
        return cap is not None and position.rounds(conversation) >= cap


CAPS: Final = (AutoRepliesReached(), MessagesReached(), RoundsReached())
