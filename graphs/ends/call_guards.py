"""The guards on tool calls: calls that go round in circles, and calls that fail.

All of them count messages with calls, within one turn. Calls that one message makes at the same
time count once.
"""

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import ClassVar, Final, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from ..speakers.replies import Failure
from ..text.similarity import is_near
from .end import (
    ConversationLike,
    Metadata,
    ResultMetadata,
    Strength,
    Tally,
    is_speech,
    is_tool_calls,
    is_tool_result,
)
from .guards import Guard

_Value: TypeAlias = tuple[str, str]
"""An argument: its path, and its value as JSON."""

_Call: TypeAlias = tuple[str, tuple[_Value, ...]]
"""A call: the tool's name and the arguments."""


def _calls_of(message: AIMessage) -> dict[str | None, _Call]:
    """Return the calls of a message, by their ids."""
    made = (*message.tool_calls, *message.invalid_tool_calls)
    return {one["id"]: (str(one["name"]), tuple(_values(one["args"]))) for one in made}


def _values(value: object, path: str = "") -> Iterator[_Value]:
    """Yield the simple values in arguments, ordered by their paths. None is no value."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _values(value[key], f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for place, one in enumerate(value):
            yield from _values(one, f"{path}.{place}")
    elif isinstance(value, str):
        yield path, json.dumps(" ".join(value.casefold().split()), ensure_ascii=False)
    elif value is not None:
        whole = int(value) if isinstance(value, float) and value.is_integer() else value
        yield path, json.dumps(whole, default=str)


_Made: TypeAlias = frozenset[tuple[_Call, str]]
"""The calls of a message, each with its result."""


def _are_near(some: _Made, others: _Made) -> bool:
    """Return whether two messages have nearly equal calls with the same results."""
    pairs = zip(sorted(some), sorted(others), strict=False)
    return some == others or (
        len(some) == len(others)
        and all(
            one[0] == other[0] and result == its and _have_near_values(one[1], other[1])
            for (one, result), (other, its) in pairs
        )
    )


def _have_near_values(some: Sequence[_Value], others: Sequence[_Value]) -> bool:
    return [path for path, _ in some] == [path for path, _ in others] and all(
        one == other or (one[:1] == other[:1] == '"' and is_near(one, other))
        for (_, one), (_, other) in zip(some, others, strict=True)
    )


class _CallsTally(Tally):
    """Base of the counters of a turn's messages with calls."""

    def __init__(self) -> None:
        # The calls of the newest message that have no result yet, by their ids.
        self._waiting: dict[str | None, _Call] = {}
        self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """Reset the count."""

    @abstractmethod
    def _add_calls(self, calls: Collection[_Call]) -> None:
        """Count a message with calls, whose results have not arrived yet."""

    @abstractmethod
    def _add_result(self, call: _Call, result: ToolMessage, about: ResultMetadata) -> None:
        """Count the result of a call of the newest message."""

    def _is_over(self, about: Metadata) -> bool:
        """Return whether a message ends the count."""
        return about.ends_turn

    def add(self, message: BaseMessage, about: Metadata) -> None:
        if self._is_over(about):
            self._waiting = {}
            self._begin()
        elif is_tool_calls(about) and isinstance(message, AIMessage):
            self._waiting = _calls_of(message)
            self._add_calls(self._waiting.values())
        elif is_tool_result(about) and isinstance(message, ToolMessage):
            call = self._waiting.pop(message.tool_call_id, None)
            if call is not None:
                self._add_result(call, message, about)


_DIFFERENT: Final = 3
"""Maximum number of different messages in a loop of calls."""


class SameToolCalls(Guard):
    """Calls of one speaker, within a turn, that repeat at most three different ones."""

    reason = "same_tool_calls"
    report = "A speaker kept repeating its tool calls"
    explanation = "{by} made {count} tool calls that repeat each other"
    stops_calls = True
    counted = "a repeated tool call"
    first_shown = 2

    @classmethod
    def tally(cls, conversation: ConversationLike) -> "RepeatedCalls":
        return RepeatedCalls()

    @classmethod
    def may_count(cls, about: Metadata) -> bool:
        return is_tool_calls(about)


class RepeatedCalls(_CallsTally):
    """A counter of the newest messages of a turn that bring nothing new.

    Each repeats one of at most three different ones: it has nearly equal calls, in any order, and
    the same results. The newest message counts before its results arrive. A message
    with a failed call does not count. Calls that did not run count as if they had the same results
    as before; otherwise a model could ask for the same permission for ever. Any message of a
    speaker ends the count.
    """

    count = 0

    def _begin(self) -> None:
        self._made: list[_Made] = []
        # For each message, the index of the first message that it repeats, or its own.
        self._firsts: list[int] = []
        # For the newest message.
        self._results = set[tuple[_Call, str]]()
        self._has_failed = self._was_refused = False
        self.count = 0

    def _is_over(self, about: Metadata) -> bool:
        return is_speech(about)

    def _add_calls(self, calls: Collection[_Call]) -> None:
        self._results = set()
        self._has_failed = self._was_refused = False
        self.count = self._count_after(calls)

    def _add_result(self, call: _Call, result: ToolMessage, about: ResultMetadata) -> None:
        is_refused = about.failure is Failure.PERSON
        self._was_refused |= is_refused
        self._has_failed |= result.status == "error" and not is_refused
        self._results.add((call, result.text))
        if self._waiting:
            return
        if self._was_refused or not self._has_failed:
            made = frozenset(self._results)
            first = (
                self._find_equal(call for call, _ in made)
                if self._was_refused
                else self._find_first(made, self._made)
            )
            self._firsts.append(first)
            self._made.append(made)
        self.count = _count_loop(self._firsts)

    def count_with(self, message: AIMessage) -> int:
        """Return the count that a new message with these calls would have."""
        return self._count_after(_calls_of(message).values())

    def _count_after(self, calls: Collection[_Call]) -> int:
        """Return the count if calls have the same results as before."""
        return _count_loop([*self._firsts, self._find_equal(calls)])

    def _find_equal(self, calls: Iterable[_Call]) -> int:
        """Return the index of the first message with these calls, whatever their results were."""
        earlier = [frozenset((call, "") for call, _ in made) for made in self._made]
        return self._find_first(frozenset((call, "") for call in calls), earlier)

    def _find_first(self, made: _Made, earlier: Sequence[_Made]) -> int:
        """Return the index of the first message that these calls repeat, or the next index."""
        found = (
            first
            for one, first in zip(reversed(earlier), reversed(self._firsts), strict=True)
            if _are_near(one, made)
        )
        return next(found, len(earlier))


def _count_loop(firsts: Sequence[int]) -> int:
    """Return the number of newest messages that repeat each other: 1 if the newest one is new."""
    newest = reversed(range(len(firsts)))
    repeated = sum(1 for _ in takewhile(lambda place: firsts[place] < place, newest))
    # The message before them is the first one that they may repeat.
    size = min(repeated + 1, len(firsts))
    while len(set(firsts[-size:])) > _DIFFERENT:
        size -= 1
    return size


class TurnErrors(Guard):
    """Base of the guards that count the failed calls of one turn."""

    strength = Strength.HARD
    failure: ClassVar[Failure]

    @classmethod
    def tally(cls, conversation: ConversationLike) -> "_FailedCalls":
        return _FailedCalls(cls.failure)

    @classmethod
    def limit(cls, conversation: ConversationLike) -> int:
        limit: int = getattr(conversation, f"max_{cls.reason}")
        return limit

    @classmethod
    def may_count(cls, about: Metadata) -> bool:
        return is_tool_result(about) and about.failure is cls.failure


class _FailedCalls(_CallsTally):
    """A counter of a turn's messages whose calls failed: in a row, or with equal errors.

    A message with a successful call ends the row. An error is equal if the same call had the same
    error before, even if other calls were successful since then.
    """

    count = 0

    def __init__(self, failure: Failure) -> None:
        self._failure = failure
        super().__init__()

    def _begin(self) -> None:
        self._row = self._before = self.count = 0
        self._errors = Counter[tuple[_Call, str]]()
        # For the newest message.
        self._failed = set[tuple[_Call, str]]()
        self._has_succeeded = False

    def _add_calls(self, calls: Collection[_Call]) -> None:
        self._errors.update(self._failed)
        self._before, self._failed, self._has_succeeded = self._row, set(), False

    def _add_result(self, call: _Call, result: ToolMessage, about: ResultMetadata) -> None:
        self._has_succeeded |= about.failure is None
        if about.failure is self._failure:
            self._failed.add((call, result.text))
        self._row = 0 if self._has_succeeded else self._before + bool(self._failed)
        equal = (self._errors[one] + 1 for one in self._failed)
        self.count = max(self._row, *equal, 0)


class CallErrors(TurnErrors):
    """Tool calls of one turn with an unknown tool or arguments that do not fit."""

    reason = "call_errors"
    report = "Tool calls could not be run"
    failure = Failure.CALL
    explanation = "tool calls by {by} could not be run, {count} times in one turn"
    counted = "a tool call that can't be run"


class ToolErrors(TurnErrors):
    """Tool calls of one turn that failed in the tool."""

    reason = "tool_errors"
    report = "Tools failed"
    failure = Failure.TOOL
    explanation = "tool calls by {by} failed, {count} times in one turn"
    counted = "a failed tool call"


TURN_ERRORS: Final = (CallErrors, ToolErrors)
"""The guards that end a conversation within a turn, because its calls fail."""
