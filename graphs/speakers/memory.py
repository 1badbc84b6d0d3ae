"""What a speaker remembers, as data: in its spec, and in dumps.

A change of its shape is one of both: of a spec's version, and of a dump's.
"""

from collections.abc import Callable, Iterable
from typing import Any, Self

from pydantic import Field, JsonValue

from ..common.data import Data


class DumpedCall(Data):
    """A call of a tool."""

    name: str
    """The tool."""
    args: dict[str, JsonValue]
    """Its arguments."""
    id: str | None = None
    """Its id, by which its result is found."""


class BrokenCall(Data):
    """A call of a tool whose arguments are not JSON."""

    name: str | None = None
    """The tool."""
    args: str | None = None
    """Its arguments, as the model wrote them."""
    id: str | None = None
    """Its id."""
    error: str | None = None
    """What is wrong with them."""


class Said(Data):
    """What a message says, whoever says it."""

    text: str
    """Its text."""
    tool_calls: tuple[DumpedCall, ...] = ()
    """The tools it calls."""
    invalid_tool_calls: tuple[BrokenCall, ...] = ()
    """Calls whose arguments are not JSON."""
    call_id: str | None = None
    """The id of the call that it answers, where it is a tool's answer."""
    failed: bool = False
    """Whether that call failed."""


class Remembered(Said):
    """Something that a speaker remembers."""

    speaker: str | None = None
    """Who said it. None: the conversation itself."""
    to: str | None = None
    """Whom it is meant for, where others hear it too."""
    parsed: JsonValue = None
    """What it says by the speaker's output format, as plain values."""
    to_user: dict[str, str] = Field(default_factory=dict)
    """What of the text it said by an argument of its calls, by their ids."""

    @property
    def made_calls(self) -> list[str]:
        """The ids of the calls that it makes."""
        whole = [call.id for call in self.tool_calls]
        ids = [*whole, *(call.id for call in self.invalid_tool_calls)]
        return [one for one in ids if one is not None]

    def with_call_ids(self, change: Callable[[str], str]) -> Self:
        """Give the same with other ids of calls."""

        def changed(one: str | None) -> str | None:
            return None if one is None else change(one)

        return self.model_copy(
            update={
                "tool_calls": tuple(
                    call.model_copy(update={"id": changed(call.id)}) for call in self.tool_calls
                ),
                "invalid_tool_calls": tuple(
                    call.model_copy(update={"id": changed(call.id)})
                    for call in self.invalid_tool_calls
                ),
                "call_id": changed(self.call_id),
                "to_user": {change(key): text for key, text in self.to_user.items()},
            }
        )

    def as_of(self, owner: str, name: str) -> dict[str, Any]:
        """Give who said it to whom where its owner, who was called so, has another name."""
        speaker = self.speaker
        if speaker == owner:
            speaker = name
        elif speaker == name:
            # Somebody else of its own name: nothing that it said itself.
            speaker = None
        return {"speaker": speaker, "to": name if self.to == owner else self.to}


def check_memory(lines: Iterable[Remembered], owner: str, where: str) -> None:
    """Make sure that nobody else's calls of tools are remembered."""
    for place, one in enumerate(lines):
        calls = (*one.tool_calls, *one.invalid_tool_calls, *one.to_user)
        uses_tools = calls or one.call_id is not None
        if uses_tools and one.speaker != owner:
            raise ValueError(
                f"{where}{place}.speaker: must be {owner!r}, who alone remembers calls "
                f"of tools, not {one.speaker!r}"
            )
