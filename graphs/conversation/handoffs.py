"""Handoffs between speakers, derived from the spec by pure functions."""

from collections.abc import Sequence

from pydantic import JsonValue

from ..speakers.formats import SchemaFormat
from ..speakers.speaker import Speaker
from ..text.names import read_name
from .conversation import Conversation
from .judges import Handoff


def hand_off_targets(conversation: Conversation, name: str) -> tuple[str, ...]:
    """Return the names a speaker may hand over to; empty unless the turn order is `Handoff`."""
    order = conversation.turn_order
    if not isinstance(order, Handoff):
        return ()
    others = tuple(other for other in conversation.names if other != name)
    return order.to.get(name, others)


def has_tool(conversation: Conversation, speaker: Speaker) -> bool:
    """Return whether a speaker's model is offered the tool that names the next speaker."""
    may = hand_off_targets(conversation, speaker.name)
    # With a single target there is nothing to choose.
    has_choice = len(may) > 1 or (bool(may) and may_be_private(conversation))
    return has_choice and speaker.has_model and not isinstance(speaker.format, SchemaFormat)


def may_be_private(conversation: Conversation) -> bool:
    """Return whether a speaker may restrict its message to the next speaker."""
    order = conversation.turn_order
    return isinstance(order, Handoff) and order.private


def read_target(conversation: Conversation, name: str, text: str) -> str | None:
    """Return the speaker that a text names, if this speaker may hand over to it, or None."""
    return read_name(text, hand_off_targets(conversation, name), conversation.names)


def first_allowed(conversation: Conversation, name: str, given: Sequence[str]) -> str | None:
    """Return the first of the named speakers that this speaker may hand over to, or None."""
    return next(filter(None, (read_target(conversation, name, one) for one in given)), None)


def read_next_speaker(conversation: Conversation, parsed: JsonValue) -> tuple[str, ...]:
    """Return the next speaker as named in a speaker's JSON, unchecked. Empty if it names none."""
    order = conversation.turn_order
    if not isinstance(order, Handoff) or not isinstance(parsed, dict):
        return ()
    found = parsed.get(order.field)
    return () if found is None or found == "" else (str(found),)
