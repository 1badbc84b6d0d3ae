"""Functions of the user's own: what they are given, and the one way to call them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable, iscoroutinefunction, signature
from typing import Any, TypeAlias, TypeVar, cast

from langchain_core.messages import BaseMessage

from ...graphs.common.errors import failed
from ...graphs.common.threads import in_thread
from .hooks import Turn

T = TypeVar("T")

PredicateFunction: TypeAlias = Callable[[Sequence[BaseMessage]], bool | Awaitable[bool]]
"""Takes what all heard in the rounds and as last words, oldest first, each with ``name`` and
``text``; True ends it."""

OrderFunction: TypeAlias = Callable[[Sequence[BaseMessage], Sequence[str]], str | Awaitable[str]]
"""Takes what all heard, oldest first, and the speakers' names; gives who speaks next."""

ReplyFunction: TypeAlias = Callable[[Turn], str | Awaitable[str | None] | None]
"""Takes the speaker's turn; gives its reply, or None to leave it to what comes after it."""


async def call(
    what: str,
    name: str,
    function: Callable[..., T | Awaitable[T]],
    *given: Any,
    at: str | None = None,
) -> T:
    """Call a function of the user's own, sync or async.

    One that is not async gets a thread of its own: whatever it waits for holds up no other
    conversation. It can't be ended: where the run is cancelled it runs on, unheard.
    """
    try:
        if iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
            answer: object = function(*given)
        else:
            answer, raised = await in_thread(_outcome, function, *given)
            if raised is not None:
                raise raised
        return cast("T", await answer if isawaitable(answer) else answer)
    except GeneratorExit:
        # Nobody waits for the answer any more.
        raise
    except BaseException as error:
        # What is no exception would end the loop that runs all sessions.
        if is_cancelled():
            raise asyncio.CancelledError from error
        raise failed(what, name, error, at) from error


def _outcome(
    function: Callable[..., object], *given: object
) -> tuple[object, BaseException | None]:
    """Give what a function gives, and what it raises, which not every thread hands on."""
    try:
        return function(*given), None
    except BaseException as error:
        return None, error


def is_cancelled() -> bool:
    """Whether the whole run is cancelled, and not only what a function awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def takes_values(score: Callable[..., object]) -> bool:
    """Whether a score is given the values of its cell, too: it needs them, or names them."""
    try:
        takes = signature(score)
    except (TypeError, ValueError):
        # Some that are written in C do not tell.
        return False
    try:
        takes.bind("result", "values")
    except TypeError:
        return False
    second = [*takes.parameters.values()][1:2]
    return any(one.name == "values" or one.default is one.empty for one in second)
