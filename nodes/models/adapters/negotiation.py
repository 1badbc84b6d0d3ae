"""Calls that are made again without the defaults that a model refuses."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ....graphs.common.errors import ModelError
from ..refusals import text_of
from ..settings import CallSettings
from .base import Adapter
from .refused import message_of, refused_setting

T = TypeVar("T")


class SettingRefusedError(ModelError):
    """A model refuses a setting of the user's. Names the field."""


async def negotiate(
    adapter: Adapter, settings: CallSettings, call: Callable[[CallSettings], Awaitable[T]]
) -> T:
    """Make a call with the settings that the model accepts.

    1. The call is made without the defaults that the model refused before.
    2. If the model refuses a default, the call is made again without it, or by another name.
    3. If the model then answers, the refused defaults are remembered.

    Raises:
        SettingRefusedError: The model refuses a setting of the user's.
    """
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
