"""The gate that the model calls of many sessions pass, and each try of a call on its way there.

OpenAI's client makes some tries again by itself, so the HTTP client under it says when one begins.
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
"""The header in which the client says how often it has tried before."""


class Gate(Protocol):
    """What each model call of a run passes."""

    needs_prices: bool
    """Whether it counts money, so that each model must have a price."""

    async def enter(self, model: str, tokens: int) -> None:
        """Wait until a model may be called.

        Args:
            model: The model's label.
            tokens: About how many tokens the prompt has.

        Raises:
            PausedError: No more calls are made for now. The session can be resumed.
        """

    def count(self, model: str, used: Usage) -> None:
        """Count what one answered call has used."""

    def refused(self, model: str, seconds: float | None) -> None:
        """Hold back all calls of a model, whose server refuses them for now.

        Args:
            model: The model's label.
            seconds: For how long the server asks. None: it does not say.
        """


class Unbroken:
    """A gate for what is recorded as one: once a call of it was answered, it is not paused.

    Else that call would be made again.
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
        """Count what one answered call has used."""
        self._is_answered = True
        self._gate.count(model, used)


class AtGate:
    """A call that passes a gate as a whole, whatever its client does below.

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
        """Make the call once it may begin; if it is refused for now, hold back all others."""
        await self._enter()
        try:
            return await once()
        except Exception as error:
            if is_for_now(error):
                self._hold_back(find_refusal(error))
            raise

    async def send_try(self, send: Callable[[], Awaitable["httpx2.Response"]]) -> "httpx2.Response":
        """Send one try of the call, if it goes through this project's HTTP client."""
        return await send()

    async def _enter(self) -> None:
        await self._gate.enter(self._model, self._tokens)

    def _hold_back(self, found: Refusal | None) -> bool:
        """Hold back all calls of the model if it refuses them for now. Return whether it does."""
        if found is None or not found.is_for_now:
            return False
        self._gate.refused(self._model, read_retry_seconds(found.headers))
        return True


class TriesAtGate(AtGate):
    """A call of which each try passes a gate, in this project's HTTP client."""

    async def make_call(self, once: Callable[[], Awaitable[T]]) -> T:
        """Make the call; its tries wait for the gate."""
        try:
            return await once()
        except Exception as error:
            # The try has heard an HTTP status already; some servers say it with status 200.
            if not is_status_error(error) and is_for_now(error):
                self._hold_back(find_refusal(error))
            raise

    async def send_try(self, send: Callable[[], Awaitable["httpx2.Response"]]) -> "httpx2.Response":
        """Send one try of the call once the gate lets it through."""
        await self._enter()
        response = await send()
        if self._hold_back(Refusal(response.status_code, response.headers)):
            # It is the gate that waits: OpenAI's client would beside it, and would hear of no
            # pause.
            response.headers["retry-after-ms"] = "1"
        return response


class _Tries(NamedTuple):
    """What is done at each try of a call."""

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
    """Announce each further try of the calls inside the block. Each passes the gate."""

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
    """Announce a request that is a further try. It is a hook of the HTTP client."""
    count = request.headers.get(_COUNT, "0")
    tries = _tries.get()
    if tries is not None and count.isdecimal() and int(count) > 0:
        tries.tell(1 + int(count))


async def through_gate(send: Callable[[], Awaitable["httpx2.Response"]]) -> "httpx2.Response":
    """Send one try of the call that is under way, once the gate lets it through."""
    tries = _tries.get()
    return await send() if tries is None or tries.gate is None else await tries.gate.send_try(send)
