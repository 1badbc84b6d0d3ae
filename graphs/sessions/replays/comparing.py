"""Comparing what a recorded session says when it is run once more with what its record holds."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from ...common.errors import SessionError
from ...log.messages import metadata, place_of
from ...log.metadata import Instruction, JudgeQuestion
from ..dumps.lines import dumped
from ..stored_session import StoredSession


def compare(
    recorded: StoredSession, messages: Sequence[BaseMessage], same: int, misfit: str
) -> None:
    """Make sure that so far the same was said, and that a person's answer fits as it did."""
    where = f"session {recorded.session_id!r} goes another way now, from message"
    said = zip(recorded.messages[same:], messages[same:], strict=False)
    for before, now in said:
        one, other = _plain(before), _plain(now)
        different = next((field for field in one if one[field] != other[field]), None)
        if different is not None:
            raise SessionError(
                f"{where} {place_of(before)} on: "
                f"its {different} is {other[different]!r} instead of {one[different]!r}"
            )
    if len(messages) > len(recorded.messages):
        raise SessionError(
            f"session {recorded.session_id!r} goes on now: message "
            f"{place_of(messages[len(recorded.messages)])} is not in the record"
        )
    if misfit:
        raise SessionError(f"{where} {place_of(recorded.messages[len(messages)])} on: {misfit}")


def compare_ends(recorded: StoredSession, again: StoredSession) -> None:
    """Make sure that what was run once more came to the end of the record."""
    if len(again.messages) < len(recorded.messages):
        raise SessionError(
            f"session {recorded.session_id!r} ends earlier now: message "
            f"{place_of(recorded.messages[len(again.messages)])} is not said"
        )


def _plain(message: BaseMessage) -> dict[str, Any]:
    """What is compared of a message: all that a dump holds of it but its id, and our own words."""
    # A model that speaks from a record uses nothing.
    says = dumped(message).model_dump(mode="json", exclude={"message_id", "usage", "model"})
    text, about = says.pop("text"), says.pop("metadata") | {"problem": None}
    # A newer release may word them otherwise.
    ours = isinstance(metadata(message), JudgeQuestion | Instruction)
    if ours or about.get("verdict") is not None:
        text = ""
    return {"id": says.pop("id"), "text": text, **about, **says}
