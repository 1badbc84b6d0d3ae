"""The end conditions that are met at a position of a conversation, the strongest first.

Some end conditions depend on the position alone. ``end_chat.when`` does not name them; they are
defined here. The limits of an outer conversation also apply to a conversation inside it.
"""

from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from ..conversation.conversation import Conversation
from ..ends.end import (
    KINDS,
    AllOf,
    AnyOf,
    AtEnd,
    BaseEnd,
    CountedMessage,
    EndRule,
    EndStep,
    Facts,
    Strength,
    Tallies,
    alternatives,
    is_public_speech,
    listed,
)
from ..ends.end_chat import GUARDS, EndChatMode, Reason
from ..ends.events import StopRequested
from ..ends.guards import Guard
from ..ends.limits import Budget, CallBudget
from ..log.metadata import Stage
from ..speakers.reply_parts import ALOUD
from .position import TURN_ENDS, Phase
from .turns import Dialogue, is_never_asked


class PositionEnd(EndRule):
    """Base of the end conditions that depend on the position alone."""

    @classmethod
    def is_met_at(cls, dialogue: Dialogue) -> bool:
        """Return whether the end condition is met, unless a person has ended the conversation."""
        return False


class Quit(PositionEnd):
    """The end that is met when a person leaves the conversation."""

    reason = "quit"
    strength = Strength.HARD
    report = "A person left"

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        return f"{at.left_by or 'a person'} left"

    @classmethod
    def find_ender(cls, at: AtEnd) -> str | None:
        return at.left_by


class Termination(PositionEnd):
    """The end that is met when a termination message gets no answer (AutoGen).

    Either a person has declined to answer the message, or its receiver's person is never asked.
    """

    reason = "termination"
    strength = Strength.SAID
    report = "A termination message ended it"
    explanation = "{by} ended it with a termination message"

    @classmethod
    def waits(cls, *, has_left: bool) -> bool:
        # A person has ended the conversation, so the minimum of rounds does not apply.
        return not has_left

    @classmethod
    def is_met_at(cls, dialogue: Dialogue) -> bool:
        name = _next_without_person(dialogue)
        return name is not None and dialogue.is_terminated(name)

    @classmethod
    def find_ender(cls, at: AtEnd) -> str | None:
        return at.facts.said_by

    @classmethod
    def steps(cls, step: CountedMessage) -> Iterator[EndStep]:
        if step.facts.terminated and is_public_speech(step.about):
            yield EndStep("said", step.facts.said_by, "a termination message")


class Completed(PositionEnd):
    """The end that is met when the tasks that the end-chat mode requires are complete."""

    reason = "completed"
    strength = Strength.VERDICT
    report = "The tasks were complete"

    @classmethod
    def is_met_at(cls, dialogue: Dialogue) -> bool:
        conversation, completed = dialogue.conversation, dialogue.position.completed
        match conversation.end_chat.mode:
            case EndChatMode.MAX_ITERATIONS_ONLY:
                return False
            case EndChatMode.ALL_TASK_MUST_COMPLETE:
                return set(conversation.stoppers) <= set(completed)
            case _:
                return bool(completed)

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        if at.conversation.has_separate_judge:
            return "the judge found all criteria met"
        tasks = "their tasks" if len(at.completed) > 1 else "its task"
        return f"{listed(at.completed)} completed {tasks}"

    @classmethod
    def find_ender(cls, at: AtEnd) -> str | None:
        return None if at.conversation.has_separate_judge else at.completed[-1]


class AutoRepliesUsedUp(PositionEnd):
    """The end condition that is met when a person's automatic replies are used up (AutoGen)."""

    reason = "max_consecutive_auto_reply"
    strength = Strength.CAP
    report = "The cap on automatic replies was reached"
    explanation = "the cap on automatic replies was reached"
    stops_calls = True

    @classmethod
    def is_met_at(cls, dialogue: Dialogue) -> bool:
        if dialogue.has_capped_calls():
            return True
        name = _next_without_person(dialogue)
        return name is not None and dialogue.is_capped(name)


class RoundCap(PositionEnd):
    """The end condition that is met when the round cap is reached."""

    reason = "max_iterations"
    strength = Strength.CAP
    report = "The round cap was reached"
    explanation = "the round cap was reached"
    allows_final_verdict = True

    @classmethod
    def is_met_at(cls, dialogue: Dialogue) -> bool:
        cap = dialogue.conversation.end_chat.max_iterations
        return cap is not None and dialogue.rounds >= cap


_human_of: Final = attrgetter("human")


def _next_without_person(dialogue: Dialogue) -> str | None:
    """Return the next speaker if its person is never asked, so that automatic replies are used."""
    has_people = any(map(_human_of, dialogue.conversation.speakers))
    if dialogue.position.phase not in TURN_ENDS or not has_people:
        return None
    if dialogue.is_due(Phase.CHOSEN):
        return None
    name, stage = dialogue.next_turn()
    answers = stage in ALOUD and is_never_asked(dialogue.conversation, name)
    return name if answers and not dialogue.is_first_message_due(name) else None


POSITION_ENDS: Final = (Quit, Termination, Completed, AutoRepliesUsedUp, RoundCap)


_ALL: Final[tuple[type[EndRule], ...]] = (*KINDS.values(), *GUARDS, *POSITION_ENDS)
_BY_REASON: Final = {rule.reason: rule for rule in _ALL}

ENDS: Final[Mapping[Reason, type[EndRule]]] = {reason: _BY_REASON[reason] for reason in Reason}
"""Every end and guard, in order of precedence."""

_PLACES: Final = {reason: place for place, reason in enumerate(Reason)}


class MetEnd(NamedTuple):
    """A condition that ends a conversation and is met now."""

    strength: Strength
    """The strength. A stronger end condition overrules weaker ones. End conditions that are joined
    by ``&`` have the strength of the weakest one.
    """
    reasons: frozenset[Reason]
    """The reasons for the end."""
    ends: tuple[BaseEnd, ...] = ()
    """The end conditions of the spec that are met. Empty if the spec does not name any of them."""


def met_ends(dialogue: Dialogue) -> list[MetEnd]:
    """Return the end conditions met at a position, the strongest first."""
    end_chat, facts = dialogue.conversation.end_chat, dialogue.position.facts
    waiting = _find_waiting(dialogue)
    met = [] if end_chat.when is None else _terms(end_chat.when, facts, waiting)
    asks = end_chat.on_guard == "ask"
    unnamed: list[type[EndRule]] = [StopRequested, *_find_counting(facts)]
    met += [
        _one(rule)
        for rule in unnamed
        if rule.is_met_unnamed(dialogue.conversation, facts)
        and rule not in waiting
        and not (asks and rule.strength is Strength.GUARD)
    ]
    left = dialogue.position.left
    met += [
        _one(rule)
        for rule in POSITION_ENDS
        if rule not in waiting
        and ((left and left.reason == rule.reason) or rule.is_met_at(dialogue))
    ]
    return sorted(met, key=lambda one: (one.strength, sorted(_PLACES[of] for of in one.reasons)))


def _find_waiting(dialogue: Dialogue) -> Collection[type[EndRule]]:
    """Return the end conditions that wait until the minimum of rounds is complete."""
    if dialogue.may_end:
        return ()
    has_left = dialogue.position.left is not None
    return {rule for rule in ENDS.values() if rule.waits(has_left=has_left)}


def is_answer_due(dialogue: Dialogue) -> bool:
    """Return whether a done token ends the conversation as soon as another speaker answers it."""
    when, facts = dialogue.conversation.end_chat.when, dialogue.position.facts
    if when is None or not facts.tokens_unanswered or not dialogue.may_end:
        return False
    answered = facts.model_copy(update={"tokens_unanswered": ()})
    now = _terms(when, facts, ())
    return any(met not in now for met in _terms(when, answered, ()))


def met_guards(dialogue: Dialogue) -> list[type[Guard]]:
    """Return the met guards that give the turn to a person instead of ending the conversation."""
    if dialogue.conversation.end_chat.on_guard != "ask":
        return []
    waiting = _find_waiting(dialogue)
    return [
        guard
        for guard in _find_counting(dialogue.position.facts)
        if guard.strength is Strength.GUARD
        and guard not in waiting
        and guard.is_met_unnamed(dialogue.conversation, dialogue.position.facts)
    ]


def _find_counting(facts: Facts) -> list[type[Guard]]:
    """Return the guards with a count above zero, in order of precedence."""
    return [guard for guard in GUARDS if guard.reason in facts.counts]


def is_promised(dialogue: Dialogue) -> bool:
    """Return whether the current turn is completed even if a guard or a cap is met.

    This is true of last words, which follow a completed task, and of the answer to a done token.
    """
    return dialogue.position.stage is Stage.LAST_WORDS or is_answer_due(dialogue)


def stops_calls(dialogue: Dialogue) -> bool:
    """Return whether a guard gives the turn to a person before the waiting calls run."""
    waits = dialogue.position.phase is Phase.CALLED and not is_promised(dialogue)
    return waits and any(guard.stops_calls for guard in met_guards(dialogue))


def explain_guards(dialogue: Dialogue, tallies: Tallies) -> str:
    """Return why guards give the turn to a person, as text for people; empty if no guard does."""
    at = describe_end(dialogue, (), tallies)
    return "; ".join(guard.explain(at) for guard in met_guards(dialogue))


def describe_end(dialogue: Dialogue, met: tuple[BaseEnd, ...], tallies: Tallies) -> AtEnd:
    """Return the data that end conditions use to explain themselves."""
    conversation, position = dialogue.conversation, dialogue.position
    left_by = position.left.by if position.left else None
    return AtEnd(
        conversation, position.facts, position.speaker, position.completed, left_by, met, tallies
    )


def reasons_of(met: list[MetEnd]) -> tuple[Reason, ...]:
    """Return the reasons of the met end conditions, each once, the strongest first."""
    ordered = (reason for one in met for reason in sorted(one.reasons, key=_PLACES.__getitem__))
    return tuple(dict.fromkeys(ordered))


def _one(rule: type[EndRule], *ends: BaseEnd) -> MetEnd:
    return MetEnd(rule.strength, frozenset((Reason(rule.reason),)), ends)


def _terms(end: BaseEnd, facts: Facts, waiting: Collection[type[EndRule]]) -> list[MetEnd]:
    """Return the met end conditions in an expression of end conditions with ``|`` and ``&``."""
    if isinstance(end, AnyOf):
        return [met for part in end.of for met in _terms(part, facts, waiting)]
    if not isinstance(end, AllOf):
        is_met = type(end) not in waiting and end.is_met(facts)
        return [_one(type(end), end)] if is_met else []
    parts = [_terms(part, facts, waiting) for part in end.of]
    if not all(parts):
        return []
    # A part that is met in several ways has the strength of the strongest way. All parts together
    # have the strength of the weakest part.
    return [
        MetEnd(
            max(min(met.strength for met in part) for part in parts),
            frozenset().union(*(met.reasons for part in parts for met in part)),
            tuple(leaf for part in parts for met in part for leaf in met.ends),
        )
    ]


def limit_inner(
    inner: Conversation, outer: Conversation, facts: Facts, speaker: str | None = None
) -> Conversation:
    """Return an inner conversation with the rest of each hard limit of the outer one added.

    The inner conversation keeps its own ends. If it has no prices, it has those of the outer one.

    Args:
        inner: The inner conversation.
        outer: The outer conversation.
        facts: The counts of the outer conversation so far.
        speaker: The speaker of the outer conversation whose turn it is, to which limits of one
            speaker may apply. None if no speaker's limits apply.
    """
    when = inner.end_chat.when
    for end in _budgets(outer):
        by = end.by if isinstance(end, CallBudget) else None
        if by in (None, speaker):
            rest = end.compute_rest(facts)
            when = rest if when is None else when | rest
    end_chat = inner.end_chat.model_copy(update={"when": when})
    return inner.model_copy(update={"end_chat": end_chat, "prices": inner.prices or outer.prices})


def is_out_of_budget(conversation: Conversation, facts: Facts) -> bool:
    """Return whether a hard limit of a conversation is reached."""
    return any(end.is_met(facts) for end in _budgets(conversation))


def _budgets(conversation: Conversation) -> Iterator[Budget]:
    for end in alternatives(conversation.end_chat.when):
        if isinstance(end, Budget):
            yield end
