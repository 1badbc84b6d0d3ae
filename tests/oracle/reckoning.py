"""An onlooker's facts about a conversation, and the published ends that they meet.

It follows the rules and not the engine. `onlooker` contains the consequences of an end.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple, TypeAlias

from duologue.graphs import (
    DoneToken,
    MaxCalls,
    MaxCost,
    MaxMessages,
    MaxSeconds,
    MaxTokens,
    NoCodeBlock,
    Predicate,
    StopRequested,
    ToolCalled,
)
from support.ends import AllOf, AnyOf, BaseEnd, End

Budget: TypeAlias = MaxCalls | MaxTokens | MaxCost | MaxSeconds

LADDER = (
    (
        "stop_requested",
        "quit",
        "max_cost",
        "max_tokens",
        "max_seconds",
        "max_calls",
        "call_errors",
        "tool_errors",
    ),
    ("done_token", "predicate", "tool_called", "no_code_block", "termination"),
    ("completed",),
    (
        "unreadable_verdicts",
        "role_flips",
        "blank_replies",
        "same_replies",
        "echo",
        "farewells",
        "standstill",
        "same_tool_calls",
    ),
    ("max_consecutive_auto_reply", "max_messages", "max_iterations"),
)
"""All reasons, the strongest first. Reasons on the same rung override the same weaker ones."""

HARD, SAID, VERDICT, GUARD, CAP = range(len(LADDER))

ALL = tuple(reason for rung in LADDER for reason in rung)

TEXTS = ("plain", "blank", "same", "farewell", "flip", "still", "echo")
"""Kinds of messages: a unique one, a blank one, the message that its speaker repeats, a farewell,
another's part, the end of a round without anything new, or another's last message.
"""


class Held(NamedTuple):
    """An end that is met."""

    rung: int
    reasons: tuple[str, ...]


class Tally(NamedTuple):
    """The messages, calls and used amounts so far."""

    messages: int = 0
    early: bool = False
    """R5: fewer rounds are complete than most ends require."""
    spent: tuple[tuple[str, float], ...] = ()
    """Used amounts, by their limit: its reason, and the speaker whose calls alone it counts."""
    stop: bool = False
    said: frozenset[tuple[str, str]] = frozenset()
    """Done tokens and their speakers."""
    open: frozenset[tuple[str, str]] = frozenset()
    """R20: done tokens that wait for an answer and have none yet."""
    only: str | None = ""
    """R19: the only speaker so far. Empty if there is none, None if several. Only for a separate
    judge.
    """
    called: frozenset[tuple[str, str]] = frozenset()
    """Tools that succeeded, and their callers."""
    true: frozenset[str] = frozenset()
    """Predicates that are met now."""
    blanks: int = 0
    farewells: int = 0
    still: int = 0
    same: int = 0
    repeated: tuple[tuple[str, int], ...] = ()
    flips: tuple[tuple[str, int], ...] = ()
    echoes: tuple[tuple[str, int], ...] = ()
    """R16: number of latest messages that are echoes, by speaker."""
    echo: int = 0
    """The same number for the last speaker."""
    equal_calls: int = 0
    call: str | None = None
    """The latest call of this turn."""
    code: str | None = None
    no_code: str | None = None
    """Speaker of the newest message, in `code` if it contains code, otherwise here. Only if code is
    run.
    """
    call_errors: int = 0
    tool_errors: int = 0
    """Number of calls in this turn that could not be run, and of those whose tool failed."""
    unreadable: int = 0
    said_by: str | None = None
    """Speaker of the newest public message. This field and the next three are only used with
    people.
    """
    begun: frozenset[str] = frozenset()
    """Speakers with a first message that have spoken."""
    told: tuple[str, ...] = ()
    """Speakers for whom the newest message is a termination message, by the word."""
    automatic: tuple[tuple[str, int], ...] = ()
    """Number of automatic replies in a row, by speaker with a person."""

    def heard(self, name: str, text: str) -> "Tally":
        """Return the tally after a public message."""
        repeated = _plus(self.repeated, name) if text == "same" else self.repeated
        others = tuple(one for one in self.echoes if one[0] != name)
        echoes = _plus(self.echoes, name) if text == "echo" else others
        return self._replace(
            blanks=self.blanks + 1 if text == "blank" else 0,
            farewells=self.farewells + 1 if text == "farewell" else 0,
            still=self.still + 1 if text == "still" else 0,
            same=dict(repeated)[name] if text == "same" else 1,
            repeated=repeated,
            flips=_plus(self.flips, name) if text == "flip" else self.flips,
            echoes=echoes,
            echo=dict(echoes).get(name, 0),
        )

    def replied(self, name: str, *, by_person: bool) -> "Tally":
        """Return the tally after a message of a person, or in a person's place."""
        counts = dict(self.automatic)
        if by_person:
            counts.pop(name, None)
            return self._replace(automatic=tuple(sorted(counts.items())), same=0)
        return self._replace(automatic=_plus(self.automatic, name))

    def calling(self, call: str) -> "Tally":
        """Return the tally after a call; only "equal" calls are equal to each other."""
        again = call == "equal" == self.call
        return self._replace(call=call, equal_calls=self.equal_calls + 1 if again else 1)


def _plus(counts: tuple[tuple[str, int], ...], name: str) -> tuple[tuple[str, int], ...]:
    found = dict(counts)
    found[name] = found.get(name, 0) + 1
    return tuple(sorted(found.items()))


def reason_of(end: BaseEnd) -> str:
    """Return the reason of a single end, which is the name of its kind."""
    return end.kind


def amount_of(end: Budget) -> str:
    """Return the name of the amount that a budget limits, such as ``max_calls of Ann``."""
    owner = None if isinstance(end, MaxSeconds) else end.by
    return end.kind if owner is None else f"{end.kind} of {owner}"


@cache
def rung_of(reason: str) -> int:
    """Return the rung of a reason, where 0 is the strongest."""
    return next(place for place, rung in enumerate(LADDER) if reason in rung)


def _leaf_holds(end: BaseEnd, tally: Tally) -> bool:
    if tally.early and rung_of(reason_of(end)) == SAID:
        return False
    match end:
        case DoneToken():
            said = tally.said - tally.open if end.answered else tally.said
            return any(token == end.token and end.by in (None, speaker) for speaker, token in said)
        case ToolCalled():
            return any(
                tool == end.tool and end.by in (None, speaker) for speaker, tool in tally.called
            )
        case Predicate():
            return end.name in tally.true
        case StopRequested():
            return tally.stop
        case NoCodeBlock():
            return tally.no_code == end.by
        case MaxMessages():
            return tally.messages >= end.limit
        case MaxCalls() | MaxTokens() | MaxCost() | MaxSeconds():
            return dict(tally.spent).get(amount_of(end), 0) >= end.limit
        case _:
            raise AssertionError(end)


def _holds(end: End, tally: Tally, weakest: int) -> bool:
    """Return whether an end is met by reasons that are at least as strong as this rung."""
    if isinstance(end, AnyOf):
        return any(_holds(part, tally, weakest) for part in end.of)
    if isinstance(end, AllOf):
        return all(_holds(part, tally, weakest) for part in end.of)
    return rung_of(reason_of(end)) <= weakest and _leaf_holds(end, tally)


def _found(end: End, tally: Tally) -> Iterator[str]:
    if not _holds(end, tally, CAP):
        return
    if isinstance(end, AnyOf | AllOf):
        for part in end.of:
            yield from _found(part, tally)
    else:
        yield reason_of(end)


def held_of(end: End | None, tally: Tally) -> Iterator[Held]:
    """Yield the met ends among those joined by ``|``, each with the rung of its weakest part."""
    if isinstance(end, AnyOf):
        for part in end.of:
            yield from held_of(part, tally)
        return
    for rung in range(len(LADDER)):
        if end is not None and _holds(end, tally, rung):
            found = set(_found(end, tally))
            yield Held(rung, tuple(reason for reason in ALL if reason in found))
            return


def names_a_stop(end: End | None) -> bool:
    """Return whether an end contains its own stop request."""
    if isinstance(end, AnyOf | AllOf):
        return any(names_a_stop(part) for part in end.of)
    return isinstance(end, StopRequested)
