"""A reply as it was given, and the turn as functions and hooks see it."""

from collections.abc import Sequence
from typing import NamedTuple

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from pydantic import JsonValue

from ...graphs.log.heard import newly_heard
from ...graphs.log.metadata import Source
from ...graphs.log.viewpoint import copied
from ...graphs.speakers.speaker import Speaker
from ...graphs.spec.usage import Usage
from ...tools.registry.hooks import Turn
from ..models.offered_tools import HandedOver
from ..step.resources import Moment, session_id
from .prompt import view_of


class Given(NamedTuple):
    """A reply as it was given."""

    message: AIMessage
    """The reply: text, or calls of tools."""
    source: Source
    """What gave it."""
    new: list[AnyMessage]
    """New lines of the log in front of it."""
    usage: dict[str, Usage]
    """What was used so far."""
    parsed: JsonValue = None
    """What it says, as plain values, where what gave it knows."""
    handed: HandedOver = HandedOver()
    """What it says by calls of ``hand_off``."""


def turn_of(moment: Moment, speaker: Speaker, log: Sequence[BaseMessage]) -> Turn:
    """Give the turn as functions and hooks see it."""
    # Functions and hooks may change what they are given.
    view = tuple(copied(view_of(moment, speaker, log)))
    return Turn(
        session_id(), speaker.name, view, newly_heard(moment.conversation, log, speaker.name)
    )
