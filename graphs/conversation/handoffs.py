"""What follows from a spec in which speakers hand over to one another. Pure functions."""

from collections.abc import Sequence

from pydantic import JsonValue

from ..speakers.formats import SchemaFormat
from ..speakers.speaker import Speaker
from .conversation import Conversation
from .judges import Handoff


def hand_off_targets(conversation: Conversation, name: str) -> tuple[str, ...]:
    """Return whom a speaker may hand over to; nobody where the order is another."""
    order = conversation.turn_order
    if not isinstance(order, Handoff):
        return ()
    others = tuple(other for other in conversation.names if other != name)
    return order.to.get(name, others)


def has_tool(conversation: Conversation, speaker: Speaker) -> bool:
    """Whether a speaker's model is offered the tool that names who speaks next."""
    may = hand_off_targets(conversation, speaker.name)
    # Where only one may, nothing is to be chosen.
    has_choice = len(may) > 1 or (bool(may) and may_be_private(conversation))
    return has_choice and speaker.has_model and not isinstance(speaker.format, SchemaFormat)


def may_be_private(conversation: Conversation) -> bool:
    """Whether a speaker may say that only the one it hands over to hears its message."""
    order = conversation.turn_order
    return isinstance(order, Handoff) and order.private


def read_name(text: str, names: Sequence[str]) -> str | None:
    """Read an answer that must be a name and nothing else, whatever its case and its marks."""
    plain = text.strip(" \t\r\n*_`\"'.:!#>@").casefold()
    return next((name for name in names if name.casefold() == plain), None)


def first_allowed(conversation: Conversation, name: str, given: Sequence[str]) -> str | None:
    """Return the first of those a speaker names to speak next who may."""
    may = hand_off_targets(conversation, name)
    return next(filter(None, (read_name(one, may) for one in given)), None)


def read_next_speaker(conversation: Conversation, parsed: JsonValue) -> tuple[str, ...]:
    """Return whom a speaker's JSON names to speak next, as it is written there."""
    order = conversation.turn_order
    if not isinstance(order, Handoff) or not isinstance(parsed, dict):
        return ()
    found = parsed.get(order.field)
    return () if found is None or found == "" else (str(found),)
