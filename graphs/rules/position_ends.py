"""Ends that depend on the position of a conversation; nobody names them in ``end_chat.when``."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Final

from ..conversation.conversation import Conversation
from ..ends.end import AtEnd, CountedMessage, EndRule, EndStep, Strength, listed
from ..ends.end_chat import EndChatMode
from ..ends.facts import is_public_speech
from ..log.metadata import ALOUD
from .moves import TURN_ENDS
from .people import has_capped_calls, is_capped, is_terminated, never_asked
from .position import Phase, Position
from .turns import begins, is_due, next_turn


class PositionEnd(EndRule):
    """Base of the ends that depend on the position."""

    @classmethod
    @abstractmethod
    def is_met_at(cls, conversation: Conversation, position: Position) -> bool:
        """Return whether it is met."""


class Quit(PositionEnd):
    """A person left the conversation."""

    reason = "quit"
    strength = Strength.HARD
    report = "A person left"

    @classmethod
    def is_met_at(cls, conversation: Conversation, position: Position) -> bool:
        return position.left is not None and position.left.reason == cls.reason

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        return f"{at.left_by or 'a person'} left"

    @classmethod
    def ended_by(cls, at: AtEnd) -> str | None:
        return at.left_by


class Termination(PositionEnd):
    """A termination message came, and no person wanted to go on (AutoGen)."""

    reason = "termination"
    strength = Strength.SAID
    report = "A termination message came"
    explanation = "{by} ended it with a termination message"

    @classmethod
    def waits(cls, *, has_left: bool) -> bool:
        # A person has ended it, which needs no least number of rounds.
        return not has_left

    @classmethod
    def is_met_at(cls, conversation: Conversation, position: Position) -> bool:
        if position.left is not None and position.left.reason == cls.reason:
            return True
        name = _next_without_person(conversation, position)
        return name is not None and is_terminated(conversation, position, name)

    @classmethod
    def ended_by(cls, at: AtEnd) -> str | None:
        return at.facts.said_by

    @classmethod
    def steps(cls, step: CountedMessage) -> Iterator[EndStep]:
        if step.facts.terminated and is_public_speech(step.about):
            yield EndStep("said", step.facts.said_by, "a termination message")


class Completed(PositionEnd):
    """The tasks that the end-chat mode asks for are complete."""

    reason = "completed"
    strength = Strength.VERDICT
    report = "The tasks were complete"

    @classmethod
    def is_met_at(cls, conversation: Conversation, position: Position) -> bool:
        match conversation.end_chat.mode:
            case EndChatMode.MAX_ITERATIONS_ONLY:
                return False
            case EndChatMode.ALL_TASK_MUST_COMPLETE:
                return set(conversation.stoppers) <= set(position.completed)
            case _:
                return bool(position.completed)

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        if at.dialogue.has_separate_judge:
            return "the judge found all criteria met"
        tasks = "their tasks" if len(at.completed) > 1 else "its task"
        return f"{listed(at.completed)} completed {tasks}"

    @classmethod
    def ended_by(cls, at: AtEnd) -> str | None:
        return None if at.dialogue.has_separate_judge else at.completed[-1]


class AutoRepliesUsedUp(PositionEnd):
    """So many automatic replies were given in a person's place (AutoGen)."""

    reason = "max_consecutive_auto_reply"
    strength = Strength.CAP
    report = "Too many automatic replies for a person"
    explanation = "the cap on automatic replies was reached"
    stops_calls = True

    @classmethod
    def is_met_at(cls, conversation: Conversation, position: Position) -> bool:
        left = position.left is not None and position.left.reason == cls.reason
        if left or has_capped_calls(conversation, position):
            return True
        name = _next_without_person(conversation, position)
        return name is not None and is_capped(conversation, position, name)


class RoundCap(PositionEnd):
    """The round cap is reached."""

    reason = "max_iterations"
    strength = Strength.CAP
    report = "The most rounds were held"
    explanation = "the round cap was reached"
    allows_final_verdict = True

    @classmethod
    def is_met_at(cls, conversation: Conversation, position: Position) -> bool:
        cap = conversation.end_chat.max_iterations
        return cap is not None and position.rounds(conversation) >= cap


def _next_without_person(conversation: Conversation, position: Position) -> str | None:
    """Return who answers next by an automatic reply, if its person is never asked."""
    if position.phase not in TURN_ENDS or is_due(conversation, position, Phase.CHOSEN):
        return None
    name, stage = next_turn(conversation, position)
    answers = stage in ALOUD and never_asked(conversation, name)
    return name if answers and not begins(conversation, position, name) else None


POSITION_ENDS: Final = (Quit, Termination, Completed, AutoRepliesUsedUp, RoundCap)
