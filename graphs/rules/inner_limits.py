"""The limits of an outer conversation, applied to a conversation inside it. Pure functions."""

from collections.abc import Iterator

from ..conversation.conversation import Conversation
from ..ends.end import BaseEnd, alternatives
from ..ends.facts import Facts
from ..ends.limits import Budget, CallBudget, MaxCalls, MaxCost, MaxSeconds, MaxTokens


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
    for end in _remaining(outer, facts, speaker):
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
"""The limit if nothing remains. It must be positive, and the first call reaches it."""


def _remaining(outer: Conversation, facts: Facts, speaker: str | None) -> Iterator[BaseEnd]:
    """Yield the rest of each hard limit of an outer conversation after its counts so far."""
    for end in _budgets(outer):
        by = end.by if isinstance(end, CallBudget) else None
        if by not in (None, speaker):
            continue
        left = end.limit - end.count_in(facts)
        match end:
            case MaxCalls():
                yield MaxCalls(max(int(left), 1))
            case MaxTokens():
                yield MaxTokens(max(int(left), 1))
            case MaxCost():
                yield MaxCost(max(left, _LEAST))
            case MaxSeconds():
                yield MaxSeconds(max(left, _LEAST))
