"""The tries of a call: each is told of, passes the gate, and is made again where that may help.

OpenAI's client makes some again by itself, so the HTTP client under it says when one begins.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from langchain_core.messages import BaseMessage
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from ....graphs.text.tokens import tokens_of_message
from ..gate import Gate
from ..refusals import Refusal, is_for_now, refusal, seconds_told
from .failures import broke_off, name_of, once_more
from .origin import is_status_error

if TYPE_CHECKING:
    import httpx2

_COUNT: Final = "x-stainless-retry-count"
"""The header in which the client says how often it has tried before."""

_BREAKS: Final = 2
"""How often an answer that broke off is asked for once more, at most."""

_REFUSALS: Final = 10
"""How often a call that was refused for now is made again where a gate holds it back, at most."""

T = TypeVar("T")


class AtGate:
    """What the tries of one call do at the gate."""

    def __init__(self, gate: Gate, model: str, prompt: Sequence[BaseMessage]) -> None:
        self._gate = gate
        self._model = model
        self._tokens = sum(map(tokens_of_message, prompt))

    async def enter(self) -> None:
        """Wait until the next try may begin."""
        await self._gate.enter(self._model, self._tokens)

    def hear(self, found: Refusal | None) -> bool:
        """Hold back all calls where a try was refused for now; say whether it was."""
        if found is None or not found.is_for_now:
            return False
        self._gate.refused(self._model, seconds_told(found.headers))
        return True


class _Tries(NamedTuple):
    """What is done at each try of a call."""

    tell: Callable[[int], None]
    gate: AtGate | None


_tries: ContextVar[_Tries | None] = ContextVar("_tries", default=None)


@contextmanager
def tries_told(
    notify: Callable[[str], None], where: str, retries: int, gate: AtGate | None = None
) -> Iterator[None]:
    """Tell of each further try of the calls inside the block; each passes the gate."""

    def tell(number: int) -> None:
        at = f"{where[:1].upper()}{where[1:]}"
        notify(f"{at} is busy or can't be reached: try {number} of {1 + retries}.")

    token = _tries.set(_Tries(tell, gate))
    try:
        yield
    finally:
        _tries.reset(token)


async def tell_try(request: "httpx2.Request") -> None:
    """Tell of a request that is a further try; a hook of the HTTP client."""
    count = request.headers.get(_COUNT, "0")
    tries = _tries.get()
    if tries is not None and count.isdecimal() and int(count) > 0:
        tries.tell(1 + int(count))


async def through_gate(send: Callable[[], Awaitable["httpx2.Response"]]) -> "httpx2.Response":
    """Send one try of the call that is under way, once the gate lets it through."""
    tries = _tries.get()
    if tries is None or tries.gate is None:
        return await send()
    await tries.gate.enter()
    response = await send()
    if tries.gate.hear(Refusal(response.status_code, response.headers)):
        # It is the gate that waits: OpenAI's client would beside it, and would hear of no pause.
        response.headers["retry-after-ms"] = "1"
    return response


class Asked(NamedTuple):
    """Which model is asked, and how often at most."""

    label: str
    address: str | None
    notify: Callable[[str], None]
    retries: int
    sends_tries: bool
    """Whether its client sends through the HTTP client here."""


async def answered(asked: Asked, once: Callable[[], Awaitable[T]], gate: AtGate | None) -> T:
    """Ask, and ask again where an answer broke off, or where a gate holds back what is refused."""
    label, notify = asked.label, asked.notify
    own = gate if asked.sends_tries else None

    async def passed() -> T:
        """Ask, and pass the gate where nothing does beneath."""
        if gate is None:
            return await once()
        if own is None:
            await gate.enter()
        try:
            return await once()
        except Exception as error:
            # Of an HTTP status it has heard beneath; some servers say it with status 200.
            if not (own and is_status_error(error)) and is_for_now(error):
                gate.hear(refusal(error))
            raise

    def is_refused(error: BaseException | None) -> bool:
        return gate is not None and error is not None and is_for_now(error)

    def is_enough(state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        most = _REFUSALS if is_refused(error) else min(asked.retries, _BREAKS)
        return state.attempt_number > most

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        refused = f"{label} refuses for now: asking once more"
        notify(refused if is_refused(error) else once_more(label, state))

    with tries_told(notify, name_of(label, asked.address), asked.retries, own):
        async for attempt in AsyncRetrying(
            retry=retry_if_exception(lambda error: broke_off(error) or is_refused(error)),
            stop=is_enough,
            before_sleep=tell,
            reraise=True,
        ):
            with attempt:
                return await passed()
    raise AssertionError("the last attempt returns or raises")
