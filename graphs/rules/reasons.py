"""Which reasons to end a conversation hold at a position. Pure functions.

What follows from them is in `graphs.rules.end_chat`.
"""

from collections.abc import Iterator
from enum import IntEnum, StrEnum
from typing import NamedTuple

from ..log.stage import ALOUD
from ..spec.conversation import Conversation
from ..spec.ends import (
    AllOf,
    AnyOf,
    DoneToken,
    End,
    EndChatMode,
    EndingTool,
    Leaf,
    MaxCalls,
    MaxCost,
    MaxMessages,
    MaxSeconds,
    MaxTokens,
    NoCode,
    Predicate,
    StopRequested,
    leaves,
)
from .people import has_capped_calls, is_capped, is_terminated, never_asked
from .position import TURN_ENDS, Facts, Position
from .turns import begins, must_choose, next_turn


class Reason(StrEnum):
    """Why a conversation ended, in order of precedence."""

    STOP_REQUESTED = "stop_requested"
    """Somebody outside asked it to stop."""
    QUIT = "quit"
    """A person has left it."""
    MAX_COST = "max_cost"
    """The money is spent."""
    MAX_TOKENS = "max_tokens"
    """The tokens are used up."""
    MAX_SECONDS = "max_seconds"
    """The time is over."""
    MAX_CALLS = "max_calls"
    """The model calls are used up."""
    CALL_ERRORS = "call_errors"
    """In one turn too many calls named no tool there is, or gave arguments that did not fit."""
    TOOL_ERRORS = "tool_errors"
    """In one turn too many calls of tools failed."""
    DONE_TOKEN = "done_token"  # noqa: S105
    """A speaker said the done token."""
    PREDICATE = "predicate"
    """A registered function said so."""
    ENDING_TOOL = "ending_tool"
    """A tool was called that ends it."""
    NO_CODE = "no_code"
    """A speaker whose code is run has written none."""
    TERMINATION = "termination"
    """A termination message was received, and no person wanted to go on."""
    COMPLETED = "completed"
    """The tasks are complete that the end-chat mode asks for."""
    UNREADABLE_VERDICTS = "unreadable_verdicts"
    """Verdicts in a row could not be read."""
    ROLE_FLIPS = "role_flips"
    """A speaker kept speaking another's part."""
    BLANK_REPLIES = "blank_replies"
    """Replies in a row were blank."""
    SAME_REPLIES = "same_replies"
    """A speaker kept giving the same reply."""
    FAREWELLS = "farewells"
    """Messages in a row were nothing but thanks or farewells."""
    SAME_TOOL_CALLS = "same_tool_calls"
    """A speaker kept calling a tool with equal arguments."""
    MAX_CONSECUTIVE_AUTO_REPLY = "max_consecutive_auto_reply"
    """So many automatic replies were given in the place of a person."""
    MAX_MESSAGES = "max_messages"
    """The message cap is reached."""
    MAX_ITERATIONS = "max_iterations"
    """The round cap is reached."""


class Strength(IntEnum):
    """What an end overrules, the strongest first."""

    HARD = 0
    """Ends it at once, in the middle of a turn too where that is known there, and cancels promised
    last words."""
    SAID = 1
    """Ends it before anybody answers or is asked, and cancels promised last words."""
    VERDICT = 2
    """Ends it once promised last words are spoken, as those that follow do."""
    GUARD = 3
    """Yields to a verdict."""
    CAP = 4
    """Yields to everything."""


_STRENGTHS = {
    Reason.STOP_REQUESTED: Strength.HARD,
    Reason.QUIT: Strength.HARD,
    Reason.MAX_COST: Strength.HARD,
    Reason.MAX_TOKENS: Strength.HARD,
    Reason.MAX_SECONDS: Strength.HARD,
    Reason.MAX_CALLS: Strength.HARD,
    Reason.CALL_ERRORS: Strength.HARD,
    Reason.TOOL_ERRORS: Strength.HARD,
    Reason.DONE_TOKEN: Strength.SAID,
    Reason.PREDICATE: Strength.SAID,
    Reason.ENDING_TOOL: Strength.SAID,
    Reason.NO_CODE: Strength.SAID,
    Reason.TERMINATION: Strength.SAID,
    Reason.COMPLETED: Strength.VERDICT,
    Reason.MAX_CONSECUTIVE_AUTO_REPLY: Strength.CAP,
    Reason.MAX_MESSAGES: Strength.CAP,
    Reason.MAX_ITERATIONS: Strength.CAP,
}


_PLACES = {reason: place for place, reason in enumerate(Reason)}


class Held(NamedTuple):
    """Something that ends a conversation and holds now."""

    strength: Strength
    """What it overrules; of several ends joined by ``&`` what the weakest does."""
    reasons: frozenset[Reason]
    """What it consists of."""
    ends: tuple[Leaf, ...] = ()
    """The ends of the spec that it consists of."""


def holding(conversation: Conversation, position: Position) -> list[Held]:
    """Give everything that holds at a position, the strongest first."""
    held = [
        *_other_ends(conversation, position.facts),
        *(_one(reason) for reason in _by_the_rules(conversation, position)),
    ]
    return sorted(held, key=lambda one: (one.strength, _places(one)))


def reasons_of(held: list[Held]) -> tuple[Reason, ...]:
    """Give the reasons of all that holds, each once, the strongest first."""
    ordered = [reason for one in held for reason in sorted(one.reasons, key=_PLACES.__getitem__)]
    return tuple(dict.fromkeys(ordered))


def _one(reason: Reason) -> Held:
    return Held(_STRENGTHS.get(reason, Strength.GUARD), frozenset((reason,)))


def _places(held: Held) -> list[int]:
    return sorted(_PLACES[reason] for reason in held.reasons)


def _by_the_rules(conversation: Conversation, position: Position) -> Iterator[Reason]:
    if _completion_holds(conversation, position.completed):
        yield Reason.COMPLETED
    yield from _people(conversation, position)
    yield from _errors(conversation, position.facts)
    yield from _guards(conversation, position.facts)
    cap = conversation.end_chat.max_iterations
    if cap is not None and position.rounds(conversation) >= cap:
        yield Reason.MAX_ITERATIONS


def _completion_holds(conversation: Conversation, completed: tuple[str, ...]) -> bool:
    match conversation.end_chat.mode:
        case EndChatMode.MAX_ITERATIONS_ONLY:
            return False
        case EndChatMode.ALL_TASK_MUST_COMPLETE:
            return set(conversation.stoppers) <= set(completed)
        case _:
            return bool(completed)


def _people(conversation: Conversation, position: Position) -> Iterator[Reason]:
    """What a person has ended, or what ends it where a person is never asked (AutoGen)."""
    if position.left is not None:
        yield Reason(position.left.reason)
    if has_capped_calls(conversation, position):
        yield Reason.MAX_CONSECUTIVE_AUTO_REPLY
    if position.event not in TURN_ENDS or must_choose(conversation, position):
        return
    name, stage = next_turn(conversation, position)
    if stage not in ALOUD or not never_asked(conversation, name):
        return
    if begins(conversation, position, name):
        return
    if is_terminated(conversation, position, name):
        yield Reason.TERMINATION
    if is_capped(conversation, position, name):
        yield Reason.MAX_CONSECUTIVE_AUTO_REPLY


def _errors(conversation: Conversation, facts: Facts) -> Iterator[Reason]:
    """What is counted per turn and kind."""
    if facts.call_errors >= conversation.max_call_errors:
        yield Reason.CALL_ERRORS
    if facts.tool_errors >= conversation.max_tool_errors:
        yield Reason.TOOL_ERRORS


def _guards(conversation: Conversation, facts: Facts) -> Iterator[Reason]:
    guards = conversation.end_chat.guards
    for reason, count, limit in (
        (Reason.UNREADABLE_VERDICTS, facts.unreadable_verdicts, guards.unreadable_verdicts),
        (Reason.ROLE_FLIPS, max(facts.role_flips.values(), default=0), guards.role_flips),
        (Reason.BLANK_REPLIES, facts.blank_replies, guards.blank_replies),
        (Reason.SAME_REPLIES, facts.same_replies, guards.same_replies),
        (Reason.FAREWELLS, facts.farewells, guards.farewells),
        (Reason.SAME_TOOL_CALLS, facts.same_tool_calls, guards.same_tool_calls),
    ):
        if 0 < limit <= count:
            yield reason


def _other_ends(conversation: Conversation, facts: Facts) -> Iterator[Held]:
    when = conversation.end_chat.when
    named = any(isinstance(end, StopRequested) for _, end in leaves(when))
    if facts.stop_requested and not named:
        yield _one(Reason.STOP_REQUESTED)
    if when is not None:
        yield from _terms(when, facts)


def _terms(end: End, facts: Facts) -> list[Held]:
    """Give those of the ends joined by ``|`` that hold."""
    if isinstance(end, AnyOf):
        return [held for part in end.of for held in _terms(part, facts)]
    if not isinstance(end, AllOf):
        reason = _holds(end, facts)
        return [] if reason is None else [_one(reason)._replace(ends=(end,))]
    parts = [_terms(part, facts) for part in end.of]
    if not all(parts):
        return []
    # Of several ways in which one part holds the strongest counts; of the parts the weakest.
    return [
        Held(
            max(min(held.strength for held in part) for part in parts),
            frozenset().union(*(held.reasons for part in parts for held in part)),
            tuple(leaf for part in parts for held in part for leaf in held.ends),
        )
    ]


def _holds(end: Leaf, facts: Facts) -> Reason | None:
    """Give the reason that one end stands for, where it holds."""
    match end:
        case MaxCost() | MaxTokens() | MaxSeconds() | MaxCalls() | MaxMessages():
            reason = Reason(end.kind)
            holds = getattr(facts, end.kind.removeprefix("max_")) >= end.limit
        case StopRequested():
            holds, reason = facts.stop_requested, Reason.STOP_REQUESTED
        case DoneToken():
            holds, reason = _by(end.token, end.by, facts.tokens_said), Reason.DONE_TOKEN
        case EndingTool():
            holds, reason = _by(end.tool, end.by, facts.tools_called), Reason.ENDING_TOOL
        case NoCode():
            holds, reason = facts.no_code_by == end.by, Reason.NO_CODE
        case Predicate():
            holds, reason = end.name in facts.predicates, Reason.PREDICATE
    return reason if holds else None


def _by(what: str, who: str | None, found: tuple[tuple[str, str], ...]) -> bool:
    return bool(doers(what, who, found))


def doers(what: str, who: str | None, found: tuple[tuple[str, str], ...]) -> list[str]:
    """Give those who said a token or called a tool, of those who may."""
    return [speaker for one, speaker in found if one == what and who in (None, speaker)]
