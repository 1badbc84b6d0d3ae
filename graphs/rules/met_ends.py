"""Which ends are met at a position, the strongest first."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from ..conversation.conversation import Conversation
from ..ends.all_ends import ENDS_TO_NAME, GUARDS, Reason
from ..ends.end import AllOf, AnyOf, AtEnd, BaseEnd, EndRule, Strength, Tallies
from ..ends.facts import Facts
from ..ends.guard import Guard
from ..log.metadata import Stage
from .position import Phase, Position
from .position_ends import POSITION_ENDS

_ALL: Final[tuple[type[EndRule], ...]] = (*ENDS_TO_NAME, *GUARDS, *POSITION_ENDS)
_BY_REASON: Final = {rule.reason: rule for rule in _ALL}

ENDS: Final[Mapping[Reason, type[EndRule]]] = {reason: _BY_REASON[reason] for reason in Reason}
"""Every end and guard, in order of precedence."""

_PLACES: Final = {reason: place for place, reason in enumerate(Reason)}
_REASONS: Final = {rule: reason for reason, rule in ENDS.items()}
_ALWAYS_ON: Final = tuple(end for end in ENDS_TO_NAME if end.works_unnamed)
"""The ends that may be met without being named."""
_GUARDS: Final = {guard.reason: guard for guard in GUARDS}


class MetEnd(NamedTuple):
    """Something that ends a conversation and is met now."""

    strength: Strength  # what it overrules; of ends joined by ``&`` the weakest counts
    reasons: frozenset[Reason]  # the reasons that it gives
    ends: tuple[BaseEnd, ...] = ()  # the ends of the spec that it consists of


def met_ends(conversation: Conversation, position: Position) -> list[MetEnd]:
    """Return all that is met at a position, the strongest first."""
    end_chat, facts = conversation.end_chat, position.facts
    waiting = _waiting(conversation, position)
    met = [] if end_chat.when is None else _terms(end_chat.when, facts, waiting)
    asks = end_chat.on_guard == "ask"
    met += [
        _one(rule)
        for rule in (*_ALWAYS_ON, *_counting(facts))
        if rule.is_met_unnamed(conversation, facts)
        and rule not in waiting
        and not (asks and rule.strength is Strength.GUARD)
    ]
    met += [
        _one(rule)
        for rule in POSITION_ENDS
        if rule not in waiting and rule.is_met_at(conversation, position)
    ]
    return sorted(met, key=lambda one: (one.strength, sorted(_PLACES[of] for of in one.reasons)))


def _waiting(conversation: Conversation, position: Position) -> Collection[type[EndRule]]:
    """Return the ends that wait until the least number of rounds is complete."""
    if position.may_end(conversation):
        return ()
    has_left = position.left is not None
    return {rule for rule in ENDS.values() if rule.waits(has_left=has_left)}


def is_answer_due(conversation: Conversation, position: Position) -> bool:
    """Return whether a done token ends the conversation as soon as another speaker answers it."""
    when, facts = conversation.end_chat.when, position.facts
    if when is None or not facts.tokens_unanswered or not position.may_end(conversation):
        return False
    answered = facts.model_copy(update={"tokens_unanswered": ()})
    now = _terms(when, facts, ())
    return any(met not in now for met in _terms(when, answered, ()))


def met_guards(conversation: Conversation, position: Position) -> list[type[Guard]]:
    """Return the met guards, if they give the turn to a person instead of ending it."""
    if conversation.end_chat.on_guard != "ask":
        return []
    waiting = _waiting(conversation, position)
    return [
        guard
        for guard in _counting(position.facts)
        if guard.strength is Strength.GUARD
        and guard not in waiting
        and guard.is_met_unnamed(conversation, position.facts)
    ]


def _counting(facts: Facts) -> list[type[Guard]]:
    """Return the guards that have counted anything, in order of precedence."""
    return [guard for reason, guard in _GUARDS.items() if reason in facts.counts]


def is_promised(conversation: Conversation, position: Position) -> bool:
    """Return whether the turn under way is spoken whatever guard or cap is met.

    It has last words, or the answer to a done token.
    """
    return position.stage is Stage.LAST_WORDS or is_answer_due(conversation, position)


def stops_calls(conversation: Conversation, position: Position) -> bool:
    """Return whether a guard gives the turn to a person before waiting calls are run."""
    waits = position.phase is Phase.CALLED and not is_promised(conversation, position)
    return waits and any(guard.stops_calls for guard in met_guards(conversation, position))


def explain_guards(conversation: Conversation, position: Position, tallies: Tallies) -> str:
    """Say why guards give the turn to a person; empty if none does."""
    at = at_end(conversation, position, (), tallies)
    return "; ".join(guard.explain(at) for guard in met_guards(conversation, position))


def at_end(
    conversation: Conversation, position: Position, met: tuple[BaseEnd, ...], tallies: Tallies
) -> AtEnd:
    """Return what ends explain themselves by."""
    left_by = position.left.by if position.left else None
    return AtEnd(
        conversation, position.facts, position.speaker, position.completed, left_by, met, tallies
    )


def reasons_of(met: list[MetEnd]) -> tuple[Reason, ...]:
    """Return the reasons of all that is met, each once, the strongest first."""
    ordered = (reason for one in met for reason in sorted(one.reasons, key=_PLACES.__getitem__))
    return tuple(dict.fromkeys(ordered))


def _one(rule: type[EndRule], *ends: BaseEnd) -> MetEnd:
    return MetEnd(rule.strength, frozenset((_REASONS[rule],)), ends)


def _terms(end: BaseEnd, facts: Facts, waiting: Collection[type[EndRule]]) -> list[MetEnd]:
    """Return those of the ends joined by ``|`` that are met."""
    if isinstance(end, AnyOf):
        return [met for part in end.of for met in _terms(part, facts, waiting)]
    if not isinstance(end, AllOf):
        is_met = type(end) not in waiting and end.is_met(facts)
        return [_one(type(end), end)] if is_met else []
    parts = [_terms(part, facts, waiting) for part in end.of]
    if not all(parts):
        return []
    # Of several ways in which one part is met the strongest counts; of the parts the weakest.
    return [
        MetEnd(
            max(min(met.strength for met in part) for part in parts),
            frozenset().union(*(met.reasons for part in parts for met in part)),
            tuple(leaf for part in parts for met in part for leaf in met.ends),
        )
    ]
