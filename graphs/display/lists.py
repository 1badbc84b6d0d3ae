"""Lists that show themselves; in all else they are lists."""

from typing import Final, Self, SupportsIndex, TypeVar, overload

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.tool import ToolCall

from ..common.sanitize import dump_exact_json, escape_invisible
from .panel import Panel, Shown

MOST: Final = 60
"""How many lines are shown, the newest."""


T = TypeVar("T")


class ShownList(Shown, list[T]):
    """A list that shows itself; so does a part of it."""

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> T: ...

    @overload
    def __getitem__(self, place: slice, /) -> Self: ...

    def __getitem__(self, place: SupportsIndex | slice, /) -> "T | Self":
        found = super().__getitem__(place)
        return type(self)(found) if isinstance(place, slice) else found  # type: ignore[arg-type,return-value]


class Messages(ShownList[BaseMessage]):
    """Messages as a speaker sees them."""

    def _panel(self) -> Panel:
        rows = tuple((_ROLES.get(one.type, one.type), _text(one)) for one in self[-MOST:])
        return Panel(head=("Role", "Text"), rows=rows, left_out=len(self) - len(rows))


_ROLES: Final = {"ai": "assistant", "human": "user"}


def _text(message: BaseMessage) -> str:
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    said = [message.text] if message.text else []
    return "\n".join([*said, *map(_call, calls)])


def _call(call: ToolCall) -> str:
    return f"calls {escape_invisible(call['name'])} with {dump_exact_json(call['args'])}"
