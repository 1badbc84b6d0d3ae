"""Which ends hold at a position, the strongest first."""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from ...log.stage import Stage
from ...spec.conversation import Conversation
from ...spec.ends import AllOf, AnyOf, End, Leaf, Reason
from ..moves import Strength
from ..position import Facts, Phase, Position
from .caps import CAPS
from .end import AtEnd, EndRule, Guard, Named, Tallies
from .guards import GUARDS
from .hard import HARD
from .said import SAID
from .verdicts import VERDICTS

ENDS: Final[Mapping[Reason, EndRule]] = {
    end.reason: end for end in (*HARD, *SAID, *VERDICTS, *GUARDS, *CAPS)
}
"""Every end, in order of precedence."""

# The enum is written out for type checkers and editors.
assert list(ENDS) == list(Reason), "Reason has each end's reason, in the same order"  # noqa: S101

_NAMED: Final[Mapping[str, Named[Any]]] = {
    reason: end for reason, end in ENDS.items() if isinstance(end, Named)
}
_UNNAMED: Final = {reason for reason, end in ENDS.items() if type(end).holds is not Named.holds}
"""The ends that may hold without being named."""
_PLACES: Final = {reason: place for place, reason in enumerate(ENDS)}


class HeldEnd(NamedTuple):
    """Something that ends a conversation and holds now."""

    strength: Strength  # what it overrules; of ends joined by ``&`` the weakest counts
    reasons: frozenset[Reason]  # the reasons that it gives
    ends: tuple[Leaf, ...] = ()  # the ends of the spec that it consists of


def holding(conversation: Conversation, position: Position) -> list[HeldEnd]:
    """Give everything that holds at a position, the strongest first."""
    when, early = conversation.end_chat.when, not position.may_end(conversation)
    ready = [end for end in ENDS.values() if not (early and end.waits(position))]
    reasons = ENDS.keys() if not early else {end.reason for end in ready}
    held = [] if when is None else _terms(when, position.facts, reasons)
    if conversation.end_chat.on_guard == "ask":
        ready = [end for end in ready if end.strength is not Strength.GUARD]
    held += [
        _one(end) for end in ready if end.reason in _UNNAMED and end.holds(conversation, position)
    ]
    return sorted(held, key=lambda one: (one.strength, sorted(_PLACES[of] for of in one.reasons)))


def is_answer_due(conversation: Conversation, position: Position) -> bool:
    """Return whether a done token ends the conversation as soon as another speaker answers it."""
    when, facts = conversation.end_chat.when, position.facts
    if when is None or not facts.tokens_unanswered or not position.may_end(conversation):
        return False
    answered = facts.model_copy(update={"tokens_unanswered": ()})
    now = _terms(when, facts, ENDS.keys())
    return any(held not in now for held in _terms(when, answered, ENDS.keys()))


def guards_held(conversation: Conversation, position: Position) -> list[Guard]:
    """Give the guards that hold where they give the turn to a person."""
    if conversation.end_chat.on_guard != "ask":
        return []
    early = not position.may_end(conversation)
    ready = (guard for guard in GUARDS if not (early and guard.waits(position)))
    return [guard for guard in ready if guard.holds(conversation, position)]


def is_promised(conversation: Conversation, position: Position) -> bool:
    """Return whether the turn under way is spoken whatever guard or cap holds.

    It has last words, or the answer to a done token.
    """
    return position.stage is Stage.LAST_WORDS or is_answer_due(conversation, position)


def stops_calls(conversation: Conversation, position: Position) -> bool:
    """Whether a guard gives the turn to a person before the calls that wait are run."""
    waits = position.phase is Phase.CALLED and not is_promised(conversation, position)
    return waits and any(guard.stops_calls for guard in guards_held(conversation, position))


def guards_in_words(conversation: Conversation, position: Position, tallies: Tallies) -> str:
    """Say why guards give the turn to a person; nothing where none does."""
    at = AtEnd(conversation, position, (), tallies)
    return "; ".join(guard.words(at) for guard in guards_held(conversation, position))


def reasons_of(held: list[HeldEnd]) -> tuple[Reason, ...]:
    """Give the reasons of all that holds, each once, the strongest first."""
    ordered = (reason for one in held for reason in sorted(one.reasons, key=_PLACES.__getitem__))
    return tuple(dict.fromkeys(ordered))


def _one(end: EndRule, *ends: Leaf) -> HeldEnd:
    return HeldEnd(end.strength, frozenset((end.reason,)), ends)


def _terms(end: End, facts: Facts, ready: Collection[Reason]) -> list[HeldEnd]:
    """Give those of the ends joined by ``|`` that hold."""
    if isinstance(end, AnyOf):
        return [held for part in end.of for held in _terms(part, facts, ready)]
    if not isinstance(end, AllOf):
        named = _NAMED[end.kind]
        met = named.reason in ready and named.is_met(end, facts)
        return [_one(named, end)] if met else []
    parts = [_terms(part, facts, ready) for part in end.of]
    if not all(parts):
        return []
    # Of several ways in which one part holds the strongest counts; of the parts the weakest.
    return [
        HeldEnd(
            max(min(held.strength for held in part) for part in parts),
            frozenset().union(*(held.reasons for part in parts for held in part)),
            tuple(leaf for part in parts for held in part for leaf in held.ends),
        )
    ]
