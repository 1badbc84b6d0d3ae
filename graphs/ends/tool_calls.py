"""Guards against calls of tools that lead nowhere: equal calls, wrong calls, failing tools."""

import json
from typing import ClassVar

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from ..speakers.replies import Failure
from .end import Dialogue, Strength, Tally
from .facts import Metadata, is_speech, is_tool_calls, is_tool_result
from .guard import Guard


class SameToolCalls(Guard):
    """A speaker kept making the same call, with the same result, within a turn."""

    reason = "same_tool_calls"
    report = "A speaker kept making the same call"
    explanation = "{by} made the same call {count} times"
    stops_calls = True
    counted = "the same call"
    first_shown = 2

    @classmethod
    def tally(cls, dialogue: Dialogue) -> "EqualCalls":
        return EqualCalls()

    @classmethod
    def may_count(cls, about: Metadata) -> bool:
        return is_tool_calls(about)


_Call = tuple[str | None, str]
"""A call: the tool's name and the arguments as JSON."""


class EqualCalls(Tally):
    """How many messages in a row, in one turn, make the same calls and get the same results.

    The newest message counts before its results are there. Calls count as the same whatever their
    order, and equal calls of one message as one. A message of which a call has failed neither
    counts nor interrupts the row. Calls that were refused or not run count as the same: else a
    model could ask for the same permission for ever. Whatever anybody says ends the row.
    """

    count = 0

    def __init__(self) -> None:
        self._begin(frozenset())

    def _begin(self, calls: frozenset[_Call]) -> None:
        self._calls = calls
        self._results: frozenset[tuple[_Call, str]] | None = None
        self._row = 0
        # Of the newest message: the calls without a result, by their ids, and the results.
        self._waiting: dict[str | None, _Call] = {}
        self._found: set[tuple[_Call, str]] = set()
        self._has_failed = self._was_refused = False
        self.count = 0

    def add(self, message: BaseMessage, about: Metadata) -> None:
        if is_speech(about):
            self._begin(frozenset())
        elif is_tool_calls(about) and isinstance(message, AIMessage):
            waiting = _calls_of(message)
            calls = frozenset(waiting.values())
            if calls != self._calls:
                self._begin(calls)
            self._waiting, self._found = waiting, set()
            self._has_failed = self._was_refused = False
            self.count = self._row + 1
        elif is_tool_result(about) and isinstance(message, ToolMessage):
            call = self._waiting.pop(message.tool_call_id, None)
            if call is None:
                return
            refused = about.failure is Failure.PERSON
            self._was_refused |= refused
            self._has_failed |= message.status == "error" and not refused
            self._found.add((call, message.text))
            if not self._waiting:
                self._close()

    def _close(self) -> None:
        """Take the results of the newest message, which are all there."""
        if self._was_refused:
            self._row += 1
        elif not self._has_failed:
            self._row = self._row + 1 if self._results in (None, self._found) else 1
            self._results = frozenset(self._found)
        self.count = self._row

    def count_with(self, message: AIMessage) -> int:
        """Return the count if the newest message made these calls."""
        return self._row + 1 if frozenset(_calls_of(message).values()) == self._calls else 1


def _calls_of(message: AIMessage) -> dict[str | None, _Call]:
    """Return the calls of a message, by their ids."""
    made = (*message.tool_calls, *message.invalid_tool_calls)
    return {
        one["id"]: (one["name"], json.dumps(one["args"], sort_keys=True, default=str))
        for one in made
    }


class _TurnErrors(Guard):
    """Base of the guards that count the failed calls of one turn."""

    strength = Strength.HARD
    failure: ClassVar[Failure]

    @classmethod
    def tally(cls, dialogue: Dialogue) -> "_FailedCalls":
        return _FailedCalls(cls.failure)

    @classmethod
    def limit(cls, dialogue: Dialogue) -> int:
        limit: int = getattr(dialogue, f"max_{cls.reason}")
        return limit

    @classmethod
    def may_count(cls, about: Metadata) -> bool:
        return is_tool_result(about) and about.failure is cls.failure


class _FailedCalls(Tally):
    """How many calls of one turn failed, by the fault of the call or of the tool."""

    count = 0

    def __init__(self, failure: Failure) -> None:
        self._failure = failure

    def add(self, message: BaseMessage, about: Metadata) -> None:
        if about.ends_turn:
            self.count = 0
        elif is_tool_result(about):
            self.count += about.failure is self._failure


class CallErrors(_TurnErrors):
    """Too many calls in one turn named an unknown tool or had arguments that do not fit."""

    reason = "call_errors"
    report = "Calls of tools could not be run"
    failure = Failure.CALL
    explanation = "{count} calls of tools by {by} in one turn could not be run"
    counted = "a call of a tool that can't be run"


class ToolErrors(_TurnErrors):
    """Too many calls in one turn failed in the tool."""

    reason = "tool_errors"
    report = "Tools failed"
    failure = Failure.TOOL
    explanation = "{count} calls of tools by {by} in one turn failed"
    counted = "a tool that failed"
