"""The budgets of a batch: the usage of answered calls, and reservations for calls in flight.

Each call reserves the most that it may use before it is made, so the calls in flight can't exceed a
budget together. The reservation is stored before the call. If the process is killed, the next run
finds the calls whose answers were lost, and counts them as used.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from typing import Final, NamedTuple

from ...nodes.models.gate import PlannedCall
from ..common.errors import PausedError
from ..conversation.usage import Usage, add_usage
from ..store.batches import CallRow
from .spec import BatchLimits

_FIRST_ANSWER: Final = 500
"""Estimated tokens of an answer without a limit, before the batch's first answer."""

_ROUNDING: Final = 1e-9
"""The relative error of a sum of many costs."""


class _State(Enum):
    OPEN = "open"
    """The call is in flight."""
    ANSWERED = "answered"
    """The call is counted, but its answer may not be stored yet."""
    RELEASED = "released"
    """The call was refused or has failed."""


@dataclass(eq=False)
class Reservation:
    """The part of the budgets that is reserved for one call."""

    session: str
    number: int
    """The place of the call among the calls of its session, from 1."""
    guessed: int
    """Estimated tokens of the prompt, without a correction."""
    used: Usage
    """The reserved usage, or the actual one if the call is answered."""
    place: int = 0
    """The place of its row among the rows of the batch, from 1. 0 if it has no row yet."""
    state: _State = _State.OPEN

    def row(self, batch: str, *, lost: bool = False) -> CallRow:
        """Return its row in the store."""
        return CallRow(
            batch=batch,
            place=self.place,
            session=self.session,
            number=0 if self.state is _State.RELEASED else self.number,
            input_tokens=self.used.input_tokens,
            output_tokens=self.used.output_tokens,
            cost=self.used.cost,
            lost=lost,
        )

    @classmethod
    def of(cls, row: CallRow) -> "Reservation":
        """Return the reservation that a row describes."""
        return cls(row.session, row.number, row.input_tokens, usage_of(row), row.place)


def usage_of(row: CallRow) -> Usage:
    """Return the estimated usage of a call."""
    tokens = {"input_tokens": row.input_tokens, "output_tokens": row.output_tokens}
    return Usage(calls=1, estimated_calls=1, cost=row.cost, **tokens)


class _Part(NamedTuple):
    """A part of a budget."""

    name: str
    """The name of the limit."""
    text: str
    """The limit as text."""
    limit: float
    amount: float

    def __str__(self) -> str:
        return f"limits.{self.name} of {self.text}"

    @property
    def left(self) -> float:
        """The rest of the budget."""
        return max(0.0, self.limit - self.amount)


@dataclass
class _Answers:
    """The answers of one model so far."""

    calls: int = 0
    tokens: int = 0
    shortfall: int = 0
    """The largest number of prompt tokens by which an estimate was too low."""


@dataclass
class Budget:
    """The budgets of a batch.

    Args:
        batch: The batch's name.
        limits: The limits of the batch.
        used: The usage of all calls that are answered.
        rows: The stored rows of calls. Rows that are not marked as lost are of calls in flight.
        pause: Called with the reason, as a sentence, if a budget is used up.
    """

    batch: str
    limits: BatchLimits
    used: Usage
    rows: Sequence[CallRow]
    pause: Callable[[str], None]
    lost: Usage = field(init=False)
    """The estimated usage of calls whose answers were lost."""

    def __post_init__(self) -> None:
        """Read the stored rows."""
        self.lost = add_usage(usage_of(row) for row in self.rows if row.lost)
        self._answers = defaultdict[str, _Answers](_Answers)
        self._by_place = dict[int, Reservation]()
        self._by_session = defaultdict[str, list[Reservation]](list)
        self._free = [row.place for row in self.rows if not (row.lost or row.number)]
        self._next = max((row.place for row in self.rows), default=0)
        self._waiting = deque[tuple[PlannedCall, asyncio.Future[Reservation]]]()
        self._in_flight = 0
        self._tokens = 0
        """Reserved tokens of the calls in flight."""
        self._cost = 0.0
        """Reserved cost of the calls in flight."""
        for row in self.rows:
            if row.number and not row.lost:
                self._add(Reservation.of(row))

    @property
    def is_limited(self) -> bool:
        """Return whether the batch has a budget, so that calls need reservations."""
        return self.limits.max_cost is not None or self.limits.max_tokens is not None

    def check(self) -> None:
        """Pause the batch if a budget is used up."""
        for part in self._taken():
            if part.left <= 0:
                self.pause(f"{part} is used up")

    async def reserve(self, call: PlannedCall) -> Reservation:
        """Reserve the usage of a call. Wait for the calls in flight if it does not fit.

        Raises:
            PausedError: It does not fit, although no call is in flight.
        """
        wait = asyncio.get_running_loop().create_future()
        entry = call, wait
        self._waiting.append(entry)
        self._admit()
        try:
            found: Reservation = await wait
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            elif not wait.cancelled() and wait.exception() is None:
                self.release(wait.result())
            self._admit()
            raise
        return found

    def settle(self, call: PlannedCall) -> list[CallRow]:
        """End the earlier reservations of a call's session. Return the rows of lost calls to store.

        Its earlier calls are either stored now, or their step was interrupted and is repeated.
        """
        lost = list[CallRow]()

        def is_repeated(old: Reservation) -> bool:
            first = call.repeats
            return first is not None and old.number >= first and old.state is not _State.RELEASED

        for old in [*self._by_session.get(call.session or "", ())]:
            if old.number <= call.stored:
                self._drop(old, is_stored=True)
            elif is_repeated(old):
                lost.append(self._lose(old))
        self._admit()
        return lost

    def place(self, reserved: Reservation) -> CallRow:
        """Find a place for the row of a call, and return the row."""
        for old in [*self._by_session[reserved.session]]:
            if old.number == reserved.number and old.state is _State.RELEASED:
                self._drop(old, is_stored=False)
        if not self._free:
            self._next += 1
            self._free.append(self._next)
        reserved.place = self._free.pop()
        self._by_place[reserved.place] = reserved
        return reserved.row(self.batch)

    def count(self, model: str, used: Usage, place: int) -> None:
        """Add the usage of an answered call."""
        self.used = add_usage((self.used, used))
        answers = self._answers[model]
        answers.calls += 1
        answers.tokens += used.output_tokens
        found = self._by_place.get(place)
        if found is not None and found.state is _State.OPEN:
            self._end(found, _State.ANSWERED)
            found.used = used
            shortfall = used.input_tokens - found.guessed
            answers.shortfall = max(answers.shortfall, shortfall)
        self.check()
        self._admit()

    def release(self, reserved: Reservation | int) -> None:
        """Take back the reservation of a call that was refused or has failed."""
        found = self._by_place.get(reserved) if isinstance(reserved, int) else reserved
        if found is not None and found.state is _State.OPEN:
            self._end(found, _State.RELEASED)
            if not found.place:
                self._by_session[found.session].remove(found)
            self._admit()

    def leave(self, session: str, calls: int) -> list[CallRow]:
        """End the reservations of a session, and return the rows to store.

        `free` must be called with the rows when they are stored.

        Args:
            session: The id of a session whose run has ended.
            calls: Number of its calls whose answers are stored.
        """
        rows = list[CallRow]()
        for old in [*self._by_session.get(session, ())]:
            if old.state is _State.RELEASED:
                rows.append(old.row(self.batch))
                self._forget(old)
            elif old.number <= calls:
                self._drop(old, is_stored=True)
            else:
                rows.append(self._lose(old))
        self._by_session.pop(session, None)
        self._admit()
        return rows

    def free(self, rows: Sequence[CallRow]) -> None:
        """Let other calls replace rows that `leave` returned, except those of lost calls.

        If another call replaced such a row before it is stored, the two writes could overlap, and
        the row of the other call could be lost.
        """
        self._free += [row.place for row in rows if not row.lost]

    def _admit(self) -> None:
        """Reserve for waiting calls, in their order, as long as the next one fits."""
        while self._waiting:
            call, wait = self._waiting[0]
            if wait.done():
                self._waiting.popleft()
                continue
            reserved, problem = self._try(call)
            if problem is None:
                self._waiting.popleft()
                self._add(reserved)
                wait.set_result(reserved)
            elif self._in_flight:
                return
            else:
                self._waiting.popleft()
                self.pause(problem)
                wait.set_exception(PausedError(problem))

    def _try(self, call: PlannedCall) -> tuple[Reservation, str | None]:
        """Return the reservation that a call needs, and why it does not fit, or None."""
        answers = self._answers.get(call.model, _Answers())
        prompt = call.tokens + answers.shortfall
        longest, is_guess = call.max_tokens, False
        if longest is None and answers.calls:
            longest = ceil(answers.tokens / answers.calls)
        elif longest is None and self.used.calls:
            longest = ceil(self.used.output_tokens / self.used.calls)
        elif longest is None:
            longest, is_guess = _FIRST_ANSWER, True
        used = self._usage(call, prompt, longest)
        problem = self._problem(used)
        if problem is not None and is_guess and not self._in_flight:
            # Nothing is known about the answers yet. One call is needed to find out.
            used = self._usage(call, prompt, 0)
            problem = self._problem(used)
        return Reservation(call.session or "", call.number, call.tokens, used), problem

    @staticmethod
    def _usage(call: PlannedCall, prompt: int, answer: int) -> Usage:
        used = Usage(calls=1, estimated_calls=1, input_tokens=prompt, output_tokens=answer)
        cost = None if call.price is None else call.price.of(used)
        return used.model_copy(update={"cost": cost})

    def _problem(self, needed: Usage) -> str | None:
        """Return the reason why a call does not fit, as a sentence, or None."""
        reserved = self._parts(self._tokens, self._cost)
        own = self._parts(needed.tokens, needed.cost or 0.0)
        for part, held, need in zip(self._taken(), reserved, own, strict=True):
            if held.amount + need.amount > part.left + _ROUNDING * part.limit:
                return (
                    f"{part} is used up: {part.left:.4g} is left, and the next call may need "
                    f"{need.amount:.4g}"
                )
        return None

    def _taken(self) -> list["_Part"]:
        """Return the part of each budget that calls have used, lost ones included."""
        taken = add_usage((self.used, self.lost))
        return self._parts(taken.tokens, taken.cost or 0.0)

    def _parts(self, tokens: int, cost: float) -> list["_Part"]:
        """Return the part of each budget that these tokens and this cost take."""
        most_cost, most_tokens = self.limits.max_cost, self.limits.max_tokens
        parts = list[_Part]()
        if most_cost is not None:
            parts.append(_Part("max_cost", f"{most_cost:g}", most_cost, cost))
        if most_tokens is not None:
            parts.append(_Part("max_tokens", str(most_tokens), most_tokens, tokens))
        return parts

    def _add(self, reserved: Reservation) -> None:
        self._in_flight += 1
        self._tokens += reserved.used.tokens
        self._cost += reserved.used.cost or 0.0
        self._by_session[reserved.session].append(reserved)
        if reserved.place:
            self._by_place[reserved.place] = reserved

    def _end(self, reserved: Reservation, state: _State) -> None:
        """Remove a call from the calls in flight."""
        self._in_flight -= 1
        self._tokens -= reserved.used.tokens
        # Without a rest of rounded sums.
        self._cost = self._cost - (reserved.used.cost or 0.0) if self._in_flight else 0.0
        reserved.state = state

    def _drop(self, old: Reservation, *, is_stored: bool) -> None:
        """Forget a reservation, so that its place can be used again."""
        if is_stored and old.state is _State.OPEN:
            # Its answer is stored, but it was never counted: the process that did it was killed.
            self._end(old, _State.ANSWERED)
            self.used = add_usage((self.used, old.used))
        self._forget(old)
        if old.place:
            self._free.append(old.place)

    def _forget(self, old: Reservation) -> None:
        self._by_session[old.session].remove(old)
        self._by_place.pop(old.place, None)

    def _lose(self, old: Reservation) -> CallRow:
        """Count a call whose answer is lost. Its place is kept. Return the row to store."""
        if old.state is _State.OPEN:
            self._end(old, _State.ANSWERED)
            self.lost = add_usage((self.lost, old.used))
        self._forget(old)
        return old.row(self.batch, lost=True)
