"""Reading a log once: what was read of it goes on with what is new."""

from collections.abc import Callable, Sequence
from operator import is_
from typing import Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Fold(Generic[S, T]):
    """Something that is read from a log, message by message.

    For a log that begins with the one before, only what is new is read. Any other log, as after a
    message was removed, is read from its beginning.
    """

    def __init__(self, begin: Callable[[], S], add: Callable[[S, T], object]) -> None:
        self._begin = begin
        self._add = add
        self._read: list[T] = []
        self._state = begin()

    def of(self, log: Sequence[T]) -> S:
        """Give what is read from a log; the next call changes it."""
        if not continues_log(self._read, log):
            self._read, self._state = [], self._begin()
        for one in log[len(self._read) :]:
            self._add(self._state, one)
            self._read.append(one)
        return self._state


def continues_log(before: Sequence[object], log: Sequence[object]) -> bool:
    """Whether a log begins with another one. Messages are never changed, but replaced."""
    return len(before) <= len(log) and all(map(is_, before, log))
