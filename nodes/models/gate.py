"""The gate for the model calls of many sessions, and the tries of each call.

OpenAI's client repeats some requests itself, so the HTTP client below it reports each try.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from langchain_core.messages import BaseMessage

from ...graphs.common.errors import PausedError
from ...graphs.conversation.usage import Usage
from ...graphs.text.words import tokens_of_message
from .refusals import Refusal, find_refusal, is_for_now, is_status_error, read_retry_seconds

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

_COUNT: Final = "x-stainless-retry-count"
"""The client's request header with the number of earlier tries."""


class Gate(Protocol):
    """A gate that each model call of a run passes."""

    needs_prices: bool
    """Whether it counts money, so that each model must have a price."""

    async def enter(self, model: str, tokens: int) -> None:
        """Wait until a model may be called.

        Args:
            model: The model's label.
            tokens: Estimated number of tokens in the prompt.

        Raises:
            PausedError: No more calls are made for now. The session can be resumed.
        """

    def count(self, model: str, used: Usage) -> None:
        """Count the usage of one answered call."""

    def refused(self, model: str, seconds: float | None) -> None:
        """Delay all calls of a model whose server refuses them for now.

        Args:
            model: The model's label.
            seconds: The delay that the server asks for. None if it asks for none.
        """


class Unbroken:
    """A gate for several calls recorded as one, which is not paused after the first answer.

    A pause in between would repeat the answered calls.
    """

    def __init__(self, gate: Gate) -> None:
        self.needs_prices = gate.needs_prices
        self.refused = gate.refused
        self._gate = gate
        self._is_answered = False

    async def enter(self, model: str, tokens: int) -> None:
        """Wait until a model may be called."""
        try:
            await self._gate.enter(model, tokens)
        except PausedError:
            if not self._is_answered:
                raise

    def count(self, model: str, used: Usage) -> None:
        """Count the usage of one answered call."""
        self._is_answered = True
        self._gate.count(model, used)


class AtGate:
    """A call that passes a gate once, with all retries of its client.

    Args:
        gate: The gate.
        model: The model's label.
        prompt: The prompt of the call.
    """

    def __init__(self, gate: Gate, model: str, prompt: Sequence[BaseMessage]) -> None:
        self._gate = gate
        self._model = model
        self._tokens = sum(map(tokens_of_message, prompt))

    async def make_call(self, once: Callable[[], Awaitable[T]]) -> T:
        """Make the call when the gate allows it. If it is refused for now, delay all others."""
        await self._enter()
        try:
            return await once()
        except Exception as error:
            if is_for_now(error):
                self._hold_back(find_refusal(error))
            raise

    async def send_try(self, send: Callable[[], Awaitable["httpx2.Response"]]) -> "httpx2.Response":
        """Send one try of the call. Used only by this project's HTTP client."""
        return await send()

    async def _enter(self) -> None:
        await self._gate.enter(self._model, self._tokens)

    def _hold_back(self, found: Refusal | None) -> bool:
        """Delay all calls of the model if it refuses them for now. Return whether it does."""
        if found is None or not found.is_for_now:
            return False
        self._gate.refused(self._model, read_retry_seconds(found.headers))
        return True


class TriesAtGate(AtGate):
    """A call whose tries each pass a gate, in this project's HTTP client."""

    async def make_call(self, once: Callable[[], Awaitable[T]]) -> T:
        """Make the call; its tries wait for the gate."""
        try:
            return await once()
        except Exception as error:
            # The try has already handled HTTP statuses; some servers refuse with status 200.
            if not is_status_error(error) and is_for_now(error):
                self._hold_back(find_refusal(error))
            raise

    async def send_try(self, send: Callable[[], Awaitable["httpx2.Response"]]) -> "httpx2.Response":
        """Send one try of the call when the gate allows it."""
        await self._enter()
        response = await send()
        if self._hold_back(Refusal(response.status_code, response.headers)):
            # The gate waits instead, since OpenAI's client would not notice a pause.
            response.headers["retry-after-ms"] = "1"
        return response


class _Tries(NamedTuple):
    """Actions at each try of a call."""

    tell: Callable[[int], None]
    gate: AtGate | None


_tries: ContextVar[_Tries | None] = ContextVar("_tries", default=None)


@contextmanager
def announce_tries(
    notify: Callable[[str], None],
    where: Callable[[], str],
    retries: int,
    gate: AtGate | None = None,
) -> Iterator[None]:
    """Announce each retry of the calls inside the block. Each try passes the gate."""

    def tell(number: int) -> None:
        name = where()
        at = f"{name[:1].upper()}{name[1:]}"
        notify(f"{at} is busy or can't be reached: try {number} of {1 + retries}.")

    token = _tries.set(_Tries(tell, gate))
    try:
        yield
    finally:
        _tries.reset(token)


async def tell_try(request: "httpx2.Request") -> None:
    """Announce a request that is a retry. A hook of the HTTP client."""
    count = request.headers.get(_COUNT, "0")
    tries = _tries.get()
    if tries is not None and count.isdecimal() and int(count) > 0:
        tries.tell(1 + int(count))


async def through_gate(send: Callable[[], Awaitable["httpx2.Response"]]) -> "httpx2.Response":
    """Send one try of the current call when its gate allows it."""
    tries = _tries.get()
    return await send() if tries is None or tries.gate is None else await tries.gate.send_try(send)
