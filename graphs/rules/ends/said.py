"""Ends by what was said or called: nobody answers it, and promised last words are cancelled."""

from collections.abc import Iterator
from typing import Final

from ...log.metadata import is_public_speech
from ...log.stage import ALOUD
from ...spec.conversation import Conversation
from ...spec.ends import DoneToken, NoCodeBlock, Predicate, Reason, ToolCalled, leaves
from ..moves import TURN_ENDS, Strength
from ..people import is_terminated, never_asked
from ..position import Facts, Phase, Position
from ..turns import begins, is_due, next_turn
from .end import AtEnd, CountedMessage, EndRule, Named
from .outcome_step import OutcomeStep, OutcomeStepKind


class TokenSaid(Named[DoneToken]):
    """A speaker said the done token."""

    reason = Reason.DONE_TOKEN
    strength = Strength.SAID

    def is_met(self, end: DoneToken, facts: Facts) -> bool:
        return bool(_sayers(end, facts))

    def words(self, at: AtEnd) -> str:
        is_answered = all(end.answered for end in at.those(DoneToken))
        answered = " and was answered" if is_answered else ""
        return f"{_joined(self._speakers(at))} said the done token{answered}"

    def by(self, at: AtEnd) -> str:
        return self._speakers(at)[-1]

    def _speakers(self, at: AtEnd) -> list[str]:
        return [name for end in at.those(DoneToken) for name in _sayers(end, at.facts)]

    def causes(self, step: CountedMessage) -> Iterator[OutcomeStep]:
        for token, who in step.facts.tokens_said:
            if (token, who) not in step.before.tokens_said:
                yield self._cause(step, OutcomeStepKind.SAID, who, f"said {token}")
        for token, who in step.before.tokens_unanswered:
            if (token, who) not in step.facts.tokens_unanswered:
                text = f"answered {who}, who said {token}"
                yield self._cause(step, OutcomeStepKind.ANSWERED, step.about.speaker, text)


class PredicateHeld(Named[Predicate]):
    """A registered function said so, after a turn."""

    reason = Reason.PREDICATE
    strength = Strength.SAID

    def is_met(self, end: Predicate, facts: Facts) -> bool:
        return end.name in facts.predicates

    def words(self, at: AtEnd) -> str:
        names = [repr(end.name) for end in at.those(Predicate)]
        return f"the predicate {_joined(names)} says so"


class EndingToolCalled(Named[ToolCalled]):
    """A tool that ends it was called and has answered without an error."""

    reason = Reason.TOOL_CALLED
    strength = Strength.SAID

    def is_met(self, end: ToolCalled, facts: Facts) -> bool:
        return bool(_doers(end.tool, end.by, facts.tools_called))

    def words(self, at: AtEnd) -> str:
        tools = [repr(end.tool) for end in at.those(ToolCalled)]
        return f"{_joined(self._callers(at))} called the tool {_joined(tools)}"

    def by(self, at: AtEnd) -> str:
        return self._callers(at)[-1]

    def _callers(self, at: AtEnd) -> list[str]:
        ends, called = at.those(ToolCalled), at.facts.tools_called
        return [name for end in ends for name in _doers(end.tool, end.by, called)]

    def causes(self, step: CountedMessage) -> Iterator[OutcomeStep]:
        ends = [end for _, end in leaves(step.conversation.end_chat.when)]
        for tool, who in step.facts.tools_called:
            is_new = (tool, who) not in step.before.tools_called
            awaited = any(
                isinstance(end, ToolCalled) and _doers(end.tool, end.by, ((tool, who),))
                for end in ends
            )
            if is_new and awaited:
                yield self._cause(step, OutcomeStepKind.CALLED, who, f"called {tool}")


class NoCodeWritten(Named[NoCodeBlock]):
    """A speaker whose code is run wrote none."""

    reason = Reason.NO_CODE_BLOCK
    strength = Strength.SAID
    because = "{by} wrote no more code"

    def is_met(self, end: NoCodeBlock, facts: Facts) -> bool:
        return facts.no_code_by == end.by

    def by(self, at: AtEnd) -> str | None:
        return at.position.speaker

    def causes(self, step: CountedMessage) -> Iterator[OutcomeStep]:
        ends = leaves(step.conversation.end_chat.when)
        who = step.facts.no_code_by
        awaited = any(isinstance(end, NoCodeBlock) and end.by == who for _, end in ends)
        if awaited and is_public_speech(step.about):
            yield self._cause(step, OutcomeStepKind.SAID, who, "wrote no code")


class Terminated(EndRule):
    """A termination message came, and no person wanted to go on (AutoGen)."""

    reason = Reason.TERMINATION
    strength = Strength.SAID
    because = "{by} ended it with a termination message"

    def waits(self, position: Position) -> bool:
        # A person who has ended it is no word.
        return position.left is None

    def holds(self, conversation: Conversation, position: Position) -> bool:
        if position.left is not None and position.left.reason == self.reason:
            return True
        name = answers_unasked(conversation, position)
        return name is not None and is_terminated(conversation, position, name)

    def by(self, at: AtEnd) -> str | None:
        return at.facts.said_by

    def causes(self, step: CountedMessage) -> Iterator[OutcomeStep]:
        if step.facts.terminated and is_public_speech(step.about):
            who = step.facts.said_by
            yield self._cause(step, OutcomeStepKind.SAID, who, "a termination message")


def answers_unasked(conversation: Conversation, position: Position) -> str | None:
    """Give who answers next, where that is an automatic reply for a person who is never asked."""
    if position.phase not in TURN_ENDS or is_due(conversation, position, Phase.CHOSEN):
        return None
    name, stage = next_turn(conversation, position)
    answers = stage in ALOUD and never_asked(conversation, name)
    return name if answers and not begins(conversation, position, name) else None


def _sayers(end: DoneToken, facts: Facts) -> list[str]:
    """Return those who said a done token that counts."""
    waiting = facts.tokens_unanswered if end.answered else ()
    said = tuple(pair for pair in facts.tokens_said if pair not in waiting)
    return _doers(end.token, end.by, said)


def _doers(what: str, by: str | None, done: tuple[tuple[str, str], ...]) -> list[str]:
    """Give those who said a token or called a tool, of those who may."""
    return [speaker for one, speaker in done if one == what and by in (None, speaker)]


def _joined(words: list[str]) -> str:
    return " and ".join(dict.fromkeys(words))


SAID: Final = (TokenSaid(), PredicateHeld(), EndingToolCalled(), NoCodeWritten(), Terminated())
