"""The limits of an outer conversation, applied to a conversation inside it. Pure functions."""

from collections.abc import Iterator

from ..conversation.conversation import Conversation
from ..ends.end import BaseEnd, alternatives
from ..ends.facts import Facts
from ..ends.limits import Budget, MaxCalls, MaxCost, MaxSeconds, MaxTokens


def limit_inner(inner: Conversation, outer: Conversation, facts: Facts) -> Conversation:
    """Return an inner conversation with what the outer one has left as its hard limits.

    An inner conversation without prices has those of the outer one.

    Args:
        inner: The inner conversation.
        outer: The outer conversation.
        facts: The counts of the outer conversation so far.
    """
    when = inner.end_chat.when
    for end in _remaining(outer, facts):
        when = end if when is None else when | end
    end_chat = inner.end_chat.model_copy(update={"when": when})
    return inner.model_copy(update={"end_chat": end_chat, "prices": inner.prices or outer.prices})


def is_out_of_budget(conversation: Conversation, facts: Facts) -> bool:
    """Return whether a hard limit of a conversation is reached."""
    return any(end.is_met(facts) for end in _budgets(conversation))


def _budgets(conversation: Conversation) -> Iterator[Budget]:
    for end in alternatives(conversation.end_chat.when):
        if isinstance(end, Budget):
            yield end


_LEAST = 1e-9
"""A positive limit, which the first call reaches."""


def _remaining(outer: Conversation, facts: Facts) -> Iterator[BaseEnd]:
    """Yield the hard limits of an outer conversation, less its counts so far."""
    for end in _budgets(outer):
        left = end.limit - getattr(facts, end.counted)
        match end:
            case MaxCalls():
                yield MaxCalls(max(int(left), 1))
            case MaxTokens():
                yield MaxTokens(max(int(left), 1))
            case MaxCost():
                yield MaxCost(max(left, _LEAST))
            case MaxSeconds():
                yield MaxSeconds(max(left, _LEAST))
