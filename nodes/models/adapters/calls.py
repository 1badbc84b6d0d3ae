"""A call of a model: sent with the settings that it accepts, and made again where that may help."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from langchain_core.messages import BaseMessage
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from ....graphs.common.errors import ModelError
from ..client.failures import broke_off, describe_retry, name_of
from ..gate import AtGate, Gate, announce_tries
from ..refusals import is_for_now, text_of
from ..settings import CallSettings, message_of, refused_setting
from .base import Adapter

T = TypeVar("T")

_BREAKS: Final = 2
"""How often an answer that broke off is asked for once more, at most."""

_REFUSALS: Final = 10
"""How often a call that was refused for now is made again where a gate holds it back, at most."""


class SettingRefusedError(ModelError):
    """A model refuses a setting of the user's. Names the field."""


async def make_call(
    adapter: Adapter,
    settings: CallSettings,
    once: Callable[[CallSettings], Awaitable[T]],
    *,
    prompt: Sequence[BaseMessage],
    gate: Gate | None,
    notify: Callable[[str], None],
) -> T:
    """Make a call of a model.

    1. The settings are checked.
    2. The call is made without the defaults that the model refused before.
    3. If the answer breaks off, or the server refuses the call for now, it is made again.
    4. If the model refuses a default, the call is made again without it, or by another name.
    5. If the model then answers, the refused defaults are remembered.
    6. An error of the client becomes one of duologue.

    Args:
        adapter: The adapter of the model.
        settings: The settings of the call.
        once: Makes the call once, with the settings that are to be sent.
        prompt: The prompt of the call.
        gate: The gate that the call passes.
        notify: Is told when the call is made again.

    Raises:
        SettingRefusedError: The model refuses a setting of the user's.
        ModelError: The call fails.
    """
    if settings.is_set:
        adapter.check(settings)
    at_gate = None if gate is None else adapter.at_gate(gate, prompt)

    def call(sent: CallSettings) -> Awaitable[T]:
        return _answer(adapter, partial(once, sent), at_gate, notify)

    with adapter.errors(of_many=gate is not None):
        return await _negotiate(adapter, settings, call)


async def _answer(
    adapter: Adapter,
    once: Callable[[], Awaitable[T]],
    gate: AtGate | None,
    notify: Callable[[str], None],
) -> T:
    """Ask, and ask again if an answer breaks off, or if a gate holds back a refused call."""

    def is_refused(error: BaseException | None) -> bool:
        return gate is not None and error is not None and is_for_now(error)

    def is_enough(state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        most = _REFUSALS if is_refused(error) else min(adapter.retries, _BREAKS)
        return state.attempt_number > most

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        refused = f"{adapter.label} refuses for now: asking once more"
        notify(refused if is_refused(error) else describe_retry(adapter.label, state))

    where = partial(name_of, adapter.label, adapter.address)
    with announce_tries(notify, where, adapter.retries, gate):
        async for attempt in AsyncRetrying(
            retry=retry_if_exception(lambda error: broke_off(error) or is_refused(error)),
            stop=is_enough,
            before_sleep=tell,
            reraise=True,
        ):
            with attempt:
                return await (once() if gate is None else gate.make_call(once))
    raise AssertionError("the last attempt returns or raises")


async def _negotiate(
    adapter: Adapter, settings: CallSettings, call: Callable[[CallSettings], Awaitable[T]]
) -> T:
    """Make a call with the settings that the model accepts."""
    dropped: set[str] = set()
    renamed: set[str] = set()
    while True:
        refused = adapter.learned.refused | dropped
        sent = settings.without(refused) if refused else settings
        try:
            answer = await call(sent)
        except Exception as error:
            name = refused_setting(error, adapter.sent_names(sent), sent)
            if name is None:
                raise
            if name not in renamed and adapter.learns(name, text_of(error)):
                renamed.add(name)
            elif name in sent.defaults:
                dropped.add(name)
            else:
                raise _refused(adapter.label, name, sent, error) from error
        else:
            adapter.learned.refused |= dropped
            return answer


def _refused(
    label: str, name: str, settings: CallSettings, error: Exception
) -> SettingRefusedError:
    inner = "extra_args." if name in settings.extra_args else ""
    value = settings.values.get(name, settings.extra_args.get(name))
    return SettingRefusedError(
        f"{settings.where}.{inner}{name}: the model {label!r} refuses {value!r}; remove it, or "
        f"choose another model: {message_of(error)}"
    )
