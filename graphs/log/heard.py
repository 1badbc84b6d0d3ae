"""What was heard: by a speaker since its last turn, and by somebody who takes no part."""

from collections.abc import Sequence

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from ..spec.conversation import Conversation
from .messages import metadata, place_of, says_something
from .metadata import MessageMetadata
from .remembered import is_in_view, remembered
from .viewpoint import SILENCE, viewpoint


def heard_since(log: Sequence[BaseMessage], name: str) -> list[str]:
    """Give the places of what a speaker has heard, and not forgotten, since its own latest line."""
    found: list[str] = []
    for message in reversed(remembered(log, name)):
        about = metadata(message)
        if isinstance(message, ToolMessage) or not is_in_view(message, about, name):
            continue
        if about.speaker == name:
            break
        found.append(place_of(message))
    return found[::-1]


def newly_heard(conversation: Conversation, log: Sequence[BaseMessage], name: str) -> str:
    """Give what a speaker has heard since its own latest line, as it stands in its view."""
    since = {*heard_since(log, name)}
    view = viewpoint(conversation, [message for message in log if place_of(message) in since], name)
    last = view[-1] if view else None
    return last.text if isinstance(last, HumanMessage) else ""


def overheard(log: Sequence[BaseMessage], *, private: bool) -> str:
    """Write down what was said, as somebody hears it who takes no part."""
    spoken = ((message, metadata(message)) for message in log)
    return "\n\n".join(
        f"{_from_outside(about)}: {message.text.strip() or SILENCE}"
        for message, about in spoken
        if (private or about.audience is None) and says_something(message, about)
    )


def _from_outside(about: MessageMetadata) -> str:
    if about.audience is None:
        return f"{about.speaker}"
    if about.confidants:
        return f"{about.speaker} (to {' and '.join(about.confidants)} only)"
    return f"{about.speaker} (private)"
