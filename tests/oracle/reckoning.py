"""What an onlooker notes of a conversation, and which published ends hold by it.

Written from the rules and not from the engine. What follows from an end is in `onlooker`.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from duologue.graphs.ends.done_token import DoneToken
from duologue.graphs.ends.end import AllOf, AnyOf, BaseEnd, End
from duologue.graphs.ends.limits import Budget, MaxMessages
from duologue.graphs.ends.no_code_block import NoCodeBlock
from duologue.graphs.ends.outside import Predicate, StopRequested
from duologue.graphs.ends.tool_called import ToolCalled

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
"""All reasons, the strongest first; those on one rung overrule the same."""

HARD, SAID, VERDICT, GUARD, CAP = range(len(LADDER))

ALL = tuple(reason for rung in LADDER for reason in rung)

TEXTS = ("plain", "blank", "same", "farewell", "flip", "still", "echo")
"""What a message may be: like no other, blank, the one line that its speaker repeats, a farewell,
another's part, the end of a round in which nobody said anything new, or what another has just
said."""


class Held(NamedTuple):
    """An end that holds."""

    rung: int
    reasons: tuple[str, ...]


class Tally(NamedTuple):
    """What was said, called and used so far."""

    messages: int = 0
    early: bool = False
    """R5: whether too few rounds are complete for most ends."""
    spent: tuple[tuple[str, float], ...] = ()
    """How much of what, by the reason that a limit on it is."""
    stop: bool = False
    said: frozenset[tuple[str, str]] = frozenset()
    """Done tokens, with who said them."""
    open: frozenset[tuple[str, str]] = frozenset()
    """R20: those that nobody has answered yet, of those that wait for an answer."""
    only: str | None = ""
    """R19: who alone has spoken; empty: nobody, None: several. Noted for a separate judge."""
    called: frozenset[tuple[str, str]] = frozenset()
    """Tools that answered without an error, with who called them."""
    true: frozenset[str] = frozenset()
    """The predicates that hold now."""
    blanks: int = 0
    farewells: int = 0
    still: int = 0
    same: int = 0
    repeated: tuple[tuple[str, int], ...] = ()
    flips: tuple[tuple[str, int], ...] = ()
    echoes: tuple[tuple[str, int], ...] = ()
    """R16: how many of its messages in a row were echoes, by speaker."""
    echo: int = 0
    """The same of whoever spoke last."""
    equal_calls: int = 0
    call: str | None = None
    """The latest call of this turn."""
    code: str | None = None
    no_code: str | None = None
    """Who said the newest message, by whether code stands in it; noted where code is run."""
    call_errors: int = 0
    tool_errors: int = 0
    """How many calls of this turn could not be run, and in how many a tool failed."""
    unreadable: int = 0
    said_by: str | None = None
    """Who said the newest message that all hear. This and the next three are noted where people
    take part."""
    begun: frozenset[str] = frozenset()
    """Of those who have a first message who has said something."""
    told: tuple[str, ...] = ()
    """Whom the newest message tells that it is over, by the word."""
    automatic: tuple[tuple[str, int], ...] = ()
    """How many replies in a row were automatic, by whom people speak for."""

    def heard(self, name: str, text: str) -> "Tally":
        """What is noted of a message that all hear."""
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
        """What is noted of a message by a person, or in a person's place."""
        counts = dict(self.automatic)
        if by_person:
            counts.pop(name, None)
            return self._replace(automatic=tuple(sorted(counts.items())), same=0)
        return self._replace(automatic=_plus(self.automatic, name))

    def calling(self, call: str) -> "Tally":
        """What is noted of a call: "equal" ones are equal to each other, all others differ."""
        again = call == "equal" == self.call
        return self._replace(call=call, equal_calls=self.equal_calls + 1 if again else 1)


def _plus(counts: tuple[tuple[str, int], ...], name: str) -> tuple[tuple[str, int], ...]:
    found = dict(counts)
    found[name] = found.get(name, 0) + 1
    return tuple(sorted(found.items()))


def reason_of(end: BaseEnd) -> str:
    """Which reason an end is that is not made of others: its kind is the reason's name."""
    return end.kind


@cache
def rung_of(reason: str) -> int:
    """How strong a reason is."""
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
        case Budget():
            return dict(tally.spent).get(reason_of(end), 0) >= end.limit
        case _:
            raise AssertionError(end)


def _holds(end: End, tally: Tally, weakest: int) -> bool:
    """Whether an end holds by nothing that is weaker than this rung."""
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
    """Which of the ends joined by ``|`` hold, each as strong as the weakest that it needs."""
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
    """Whether ends say themselves when a request to stop counts."""
    if isinstance(end, AnyOf | AllOf):
        return any(names_a_stop(part) for part in end.of)
    return isinstance(end, StopRequested)
