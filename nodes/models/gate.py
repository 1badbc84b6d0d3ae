"""A gate, which can delay the model calls of many sessions, and the calls that pass it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol, TypeVar

from ...graphs.conversation.usage import Usage
from .refusals import failed_in_reply, find_refusal, is_outage, read_retry_seconds

T = TypeVar("T")

MOST_OUTAGES: Final = 10
"""Maximum number of outages that one call waits for. A call that meets more may cause them itself,
by a prompt that makes the server break the connection.
"""


class PlannedCall(NamedTuple):
    """A model call that has not been made yet, as a gate sees it."""

    model: str
    """The model's label."""
    tokens: int
    """Estimated number of tokens in the prompt."""
    is_begun: bool = False
    """Whether a pause would lose answers: the step has answers that are not stored yet."""


class Gate(Protocol):
    """A gate through which each model call of a run passes. It can delay or pause the calls."""

    needs_prices: bool
    """Whether the gate counts costs, so that each model must have a price."""

    async def enter(self, call: PlannedCall) -> int:
        """Wait until a call may be made.

        Returns:
            The number of the outage that ends if the server answers. 0 if there is none.

        Raises:
            PausedError: No more calls are made for now. The session can be resumed.
        """
        ...

    def count(self, model: str, used: Usage) -> None:
        """Count the usage of one answered call.

        Args:
            model: The model's label.
            used: The usage of the call.
        """

    def refused(self, model: str, seconds: float | None) -> None:
        """Delay all calls of a model whose server refuses them for now.

        Args:
            model: The model's label.
            seconds: The delay in seconds that the server asks for. None if it asks for none.
        """

    async def report_outage(
        self, model: str, why: str, seconds: float | None, *, is_reached: bool
    ) -> int | None:
        """Delay all calls of a model whose server is down, if the server is expected to come back.

        Args:
            model: The model's label.
            why: The server and its failure, as a sentence without a period.
            seconds: The delay in seconds that the server asks for. None if it asks for none.
            is_reached: Whether the server has sent a reply, such as the status 503.

        Returns:
            The number of the outage if the failed call should be repeated. None if the call fails.

        Raises:
            ModelUnavailableError: The server has been down for too long.
            PausedError: No more calls are made for now.
        """
        ...

    def end_outage(self, model: str, number: int) -> None:
        """Allow the calls of a model again, because its server has answered.

        Args:
            model: The model's label.
            number: The number of the outage, as returned by `enter`.
        """


class StepGate:
    """A gate for the calls of one step, which are stored together.

    Args:
        gate: The gate of all sessions.
        is_resumable: Whether a pause between two calls of the step loses no answer.
    """

    def __init__(self, gate: Gate, *, is_resumable: bool = False) -> None:
        self.is_resumable = is_resumable
        self.needs_prices = gate.needs_prices
        self.refused = gate.refused
        self.report_outage = gate.report_outage
        self.end_outage = gate.end_outage
        self._gate = gate
        self._is_answered = False

    async def enter(self, call: PlannedCall) -> int:
        """See `Gate.enter`."""
        is_begun = self._is_answered and not self.is_resumable
        return await self._gate.enter(call._replace(is_begun=is_begun))

    def count(self, model: str, used: Usage) -> None:
        """See `Gate.count`."""
        self._is_answered = True
        self._gate.count(model, used)


async def report_outage(gate: Gate, model: str, server: str, error: BaseException) -> int | None:
    """Report to a gate that a server is down. See `Gate.report_outage`."""
    refusal = find_refusal(error)
    how = "can't be reached" if refusal is None else f"answers with an error ({refusal.status})"
    seconds = None if refusal is None else read_retry_seconds(refusal.headers)
    # A page instead of an answer may come from another server than that of the model.
    is_reached = refusal is not None and not failed_in_reply(error)
    return await gate.report_outage(model, f"{server} {how}", seconds, is_reached=is_reached)


class GatedCall:
    """A model call that passes a gate: once for each attempt, or for all of its client's retries.

    Args:
        gate: The gate.
        call: The call.
        server: The server's name in messages. If None, the call does not wait for a server that
            is down.
    """

    def __init__(self, gate: Gate, call: PlannedCall, server: str | None) -> None:
        self._gate = gate
        self._call = call
        self._server = server
        self._outages = set[int]()
        """Numbers of the outages that this call has met."""

    async def make_call(self, once: Callable[[], Awaitable[T]]) -> T:
        """Make the call when the gate allows it.

        If the server refuses the call for now, delay all calls of the model.
        """
        model = self._call.model
        while True:
            # The number of the outage that ends if this attempt is answered. 0 if there is none.
            outage = await self._gate.enter(self._call)
            try:
                answer = await once()
            except Exception as error:
                if await self._waits_for_server(error):
                    continue
                refusal = find_refusal(error)
                if refusal is not None and outage:
                    self._gate.end_outage(model, outage)
                if refusal is not None and refusal.is_for_now:
                    self._gate.refused(model, read_retry_seconds(refusal.headers))
                raise
            if outage:
                self._gate.end_outage(model, outage)
            return answer

    async def _waits_for_server(self, error: Exception) -> bool:
        """Report an outage if the server is down. Return whether the call should be repeated."""
        if self._server is None or not is_outage(error):
            return False
        number = await report_outage(self._gate, self._call.model, self._server, error)
        if number is None:
            return False
        self._outages.add(number)
        return len(self._outages) <= MOST_OUTAGES


reply_limit: Final[ContextVar[asyncio.Timeout | None]] = ContextVar("reply_limit", default=None)
"""The time limit of the reply of the current agent. None if it has none."""


@contextmanager
def suspend_reply_limit() -> Iterator[None]:
    """Stop the clock of the reply's time limit while a call waits for the gate."""
    limit, loop = reply_limit.get(), asyncio.get_running_loop()
    until = None if limit is None else limit.when()
    if limit is None or until is None:
        yield
        return
    left = until - loop.time()
    limit.reschedule(None)
    try:
        yield
    finally:
        # The reply may have been cancelled.
        with suppress(RuntimeError):
            limit.reschedule(loop.time() + left)
