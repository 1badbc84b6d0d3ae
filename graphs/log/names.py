"""Speakers' names as providers accept them, and as who hears something alone is told of them."""

import re
from collections.abc import Sequence
from itertools import count

from ...nodes.prompts.handoffs import PRIVATE_MESSAGE
from ..spec.conversation import Conversation
from .metadata import MessageMetadata


def provider_names(names: Sequence[str]) -> dict[str, str]:
    """Map display names to names that providers accept, each to its own."""
    mapped: dict[str, str] = {}
    for number, name in enumerate(names, start=1):
        # ASCII only: \w would let through letters that providers refuse.
        plain = re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")[:60] or f"speaker_{number}"
        # A number keeps names apart that differ in signs only, or after the cut; counted on where
        # another name ends in that very number.
        free = plain
        for suffix in count(number):
            if free not in mapped.values():
                break
            free = f"{plain[:56]}_{suffix}"
        mapped[name] = free
    return mapped


def as_heard_alone(conversation: Conversation, about: MessageMetadata, name: str, text: str) -> str:
    """Mark what another has said, in the rounds, to this speaker and not to all."""
    if not (about.is_spoken and about.is_aloud):
        return text
    names = ("you", *(one for one in about.confidants if one != name))
    return conversation.render_prompt(PRIVATE_MESSAGE, names=" and ".join(names), text=text)
