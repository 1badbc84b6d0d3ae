"""What is written to a log when a speaker's memory is reset or replaced. Pure functions.

The log itself is never cut: `graphs.log.memory` leaves out of a view what is forgotten.
"""

from collections.abc import Sequence

from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage

from ..conversation.conversation import Conversation
from ..log.memory import memory, private_lines, told_privately
from ..log.messages import make_message, metadata, place_of
from ..log.metadata import NOBODY, MemoryReset, Reflection, Speech
from ..log.viewpoint import memory_messages
from ..prompts import speaking as prompts
from ..rules.position import Position
from ..rules.transitions import first_read
from .fork import insert_message


def forgetting(
    conversation: Conversation,
    position: Position,
    log: list[AnyMessage],
    name: str,
    messages: Sequence[AnyMessage] = (),
) -> list[AnyMessage]:
    """Return the end of the log with which a speaker's memory is reset, or replaced by messages.

    The speaker forgets everything up to its latest finished turn, that turn included. It keeps what
    it has heard since, so that it has something to answer.
    """
    place = first_read(position.phase, log)
    first = _behind_its_turn(log[:place], name)
    since = place_of(log[first]) if first < place else None
    about = MemoryReset(speaker=name, audience=NOBODY, since=since)
    new = [make_message(0, "", about)]
    kept = memory_messages(conversation, log[first:place], name)
    if kept and _texts(messages[-len(kept) :]) == _texts(kept):
        # A memory of this very session ends in what is kept anyway.
        messages = messages[: -len(kept)]
    new += private_lines(conversation, name, messages, len(log))
    knows = [message.text for message in memory(insert_message(new, position, log), name)]
    told = [
        text
        for given, text in _told_in_the_log_only(conversation, name)
        if not any(given in known for known in knows)
    ]
    new += private_lines(conversation, name, map(HumanMessage, told), stays=True)
    changed = insert_message(new, position, log)
    return changed[place:]


def _texts(messages: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    return [(message.type, message.text) for message in messages]


def _behind_its_turn(log: Sequence[BaseMessage], name: str) -> int:
    """Give the place after a speaker's latest finished turn, its reflection included."""
    for place in reversed(range(len(log))):
        about = metadata(log[place])
        own = isinstance(about, Speech) and about.speaker == name
        if own or (isinstance(about, Reflection) and about.audience == (name,)):
            return place + 1
    return 0


def _told_in_the_log_only(conversation: Conversation, name: str) -> list[tuple[str, str]]:
    """What the spec tells a speaker in the log and in no prompt; each as given, and as told now."""
    speaker = conversation.speaker(name)
    told = [(text, text) for text in map(str, (one.text for one in told_privately(speaker)))]
    if conversation.opening.answers and speaker.task is not None:
        told.append(
            (speaker.task, conversation.render_prompt(prompts.RESTATE_TASK, task=speaker.task))
        )
    return told
