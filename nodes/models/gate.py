"""A gate, which can delay the model calls of many sessions, and the attempts of each call.

OpenAI's client itself repeats some requests, so the HTTP client below it reports each attempt.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from ...graphs.conversation.usage import Usage
from .refusals import (
    Refusal,
    failed_in_reply,
    find_refusal,
    is_for_now,
    is_outage,
    is_status_error,
    read_retry_seconds,
)

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

_COUNT: Final = "x-stainless-retry-count"
"""The header in which OpenAI's client reports the number of earlier attempts."""

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


async def report_outage(
    gate: Gate, model: str, server: str, failed: BaseException | Refusal
) -> int | None:
    """Report to a gate that a server is down. See `Gate.report_outage`."""
    refusal = failed if isinstance(failed, Refusal) else find_refusal(failed)
    how = "can't be reached" if refusal is None else f"answers with an error ({refusal.status})"
    seconds = None if refusal is None else read_retry_seconds(refusal.headers)
    # A page instead of an answer may come from another server than that of the model.
    is_in_reply = isinstance(failed, BaseException) and failed_in_reply(failed)
    is_reached = refusal is not None and not is_in_reply
    return await gate.report_outage(model, f"{server} {how}", seconds, is_reached=is_reached)


class GatedCall:
    """A model call that passes a gate once for all of the client's retries.

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
        self._outage = 0
        """The number of the outage that ends if the current attempt is answered. 0 if none."""
        self._outages = set[int]()
        """Numbers of the outages that this call has met."""

    async def make_call(self, once: Callable[[], Awaitable[T]]) -> T:
        """Make the call when the gate allows it.

        If the server refuses the call for now, delay all calls of the model.
        """
        while True:
            await self._begin()
            try:
                answer = await once()
            except Exception as error:
                if self._is_handled(error):
                    raise
                if await self._waits_for_server(error):
                    continue
                if find_refusal(error) is not None:
                    self._end_outage()
                if is_for_now(error):
                    self._hold_back(find_refusal(error))
                raise
            self._end_outage()
            return answer

    async def send_try(self, send: Callable[[], Awaitable["httpx2.Response"]]) -> "httpx2.Response":
        """Send one attempt of the call. Used only by this project's HTTP client."""
        return await send()

    async def _begin(self) -> None:
        """Wait until the gate allows the call."""
        await self._enter()

    def _is_handled(self, error: Exception) -> bool:
        """Return whether an attempt has reported an error to the gate."""
        return False

    async def _enter(self) -> None:
        self._outage = await self._gate.enter(self._call)

    def _end_outage(self) -> None:
        if self._outage:
            self._gate.end_outage(self._call.model, self._outage)

    def _hold_back(self, found: Refusal | None) -> bool:
        """Delay all calls of the model and return True if the server refuses them for now."""
        if found is None or not found.is_for_now:
            return False
        self._gate.refused(self._call.model, read_retry_seconds(found.headers))
        return True

    async def _waits_for_server(self, failed: Exception | Refusal) -> bool:
        """Report an outage if the server is down. Return whether the call should be repeated."""
        is_down = is_outage(failed) if isinstance(failed, Exception) else failed.is_outage
        if self._server is None or not is_down:
            return False
        number = await report_outage(self._gate, self._call.model, self._server, failed)
        if number is None:
            return False
        self._outages.add(number)
        return len(self._outages) <= MOST_OUTAGES


class GatedTries(GatedCall):
    """A model call through this project's HTTP client. Each attempt waits for the gate."""

    async def _begin(self) -> None:
        """Do nothing, since each attempt waits for the gate."""

    def _is_handled(self, error: Exception) -> bool:
        """Return whether `send_try` has seen the status of an error. It has not read the reply."""
        return is_status_error(error) and not failed_in_reply(error)

    async def send_try(self, send: Callable[[], Awaitable["httpx2.Response"]]) -> "httpx2.Response":
        """Send one attempt of the call when the gate allows it."""
        while True:
            await self._enter()
            try:
                response = await send()
            except Exception as error:
                if await self._waits_for_server(error):
                    continue
                raise
            refusal = Refusal(response.status_code, response.headers)
            if await self._waits_for_server(refusal):
                await response.aclose()
                continue
            if response.is_error:
                # A reply may still report that the server is down.
                self._end_outage()
            if self._hold_back(refusal):
                # The gate waits instead of OpenAI's client, which would not notice a pause.
                response.headers["retry-after-ms"] = "1"
            return response


@dataclass
class _Tries:
    """The actions at each attempt of a model call."""

    tell: Callable[[int], None]
    gate: GatedCall | None
    may_repeat: bool
    """Whether the call is repeated if its reply has no end."""


_tries: ContextVar[_Tries | None] = ContextVar("_tries", default=None)


@contextmanager
def announce_tries(
    notify: Callable[[str], None],
    where: Callable[[], str],
    retries: int,
    gate: GatedCall | None = None,
) -> Iterator[None]:
    """Announce each retry of the calls inside the block, and let each attempt pass the gate."""

    def tell(number: int) -> None:
        name = where()
        at = f"{name[:1].upper()}{name[1:]}"
        notify(f"{at} is busy or can't be reached: try {number} of {1 + retries}.")

    token = _tries.set(_Tries(tell, gate, retries > 0))
    try:
        yield
    finally:
        _tries.reset(token)


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


async def tell_try(request: "httpx2.Request") -> None:
    """Announce a request if it is a retry. Called by the HTTP client before each request."""
    count = request.headers.get(_COUNT, "0")
    tries = _tries.get()
    if tries is not None and count.isdecimal() and int(count) > 0:
        tries.tell(1 + int(count))


async def through_gate(send: Callable[[], Awaitable["httpx2.Response"]]) -> "httpx2.Response":
    """Send one attempt of the current call as soon as its gate allows it."""
    tries = _tries.get()
    return await send() if tries is None or tries.gate is None else await tries.gate.send_try(send)


def take_repeat() -> bool:
    """Return whether the current call may be repeated since its reply has no end: once."""
    tries = _tries.get()
    if tries is None or not tries.may_repeat:
        return False
    tries.may_repeat = False
    return True
