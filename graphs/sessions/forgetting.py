"""What is written to a log when a speaker's memory is reset or replaced. Pure functions.

The log itself is never cut: `graphs.log.remembered` leaves out of a view what is forgotten.
"""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage

from ...nodes.prompts import speaking as prompts
from ..log.messages import make_message, metadata, place_name, place_of
from ..log.metadata import (
    NOBODY,
    MemoryReset,
    MessageMetadata,
    Reflection,
    RememberedMessage,
    Speech,
)
from ..log.remembered import memory, message_of
from ..log.stage import Stage
from ..rules.position import Position
from ..rules.removal import first_read
from ..speakers.memory import Remembered
from ..spec.conversation import Conversation
from .dumps.dump import MemoryDump
from .fork_state import put_in


def forgetting(
    conversation: Conversation,
    position: Position,
    log: list[AnyMessage],
    name: str,
    dump: MemoryDump | None = None,
) -> list[AnyMessage]:
    """Reset a speaker's memory, or replace it.

    It forgets everything up to its latest finished turn, that turn included. What it has heard
    since stays, so that it has something to answer.
    """
    place = first_read(position.phase, log)
    first = _behind_its_turn(log[:place], name)
    since = place_of(log[first]) if first < place else None
    about = MemoryReset(speaker=name, audience=NOBODY, since=since)
    kept = memory(log[first:place], name)
    new = [
        make_message(0, "", about),
        *(_loaded(dump, name, log, kept) if dump is not None else ()),
    ]
    knows = [message.text for message in memory(put_in(new, position, log), name)]
    new += [
        make_message(0, text, _for(name))
        for given, text in _told_in_the_log_only(conversation, name)
        if not any(given in known for known in knows)
    ]
    changed = put_in(new, position, log)
    return changed[place:]


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
    told = [(text, text) for text in getattr(speaker.private_opening, "lines", ())]
    if conversation.opening.answers and speaker.task is not None:
        told.append(
            (speaker.task, conversation.render_prompt(prompts.RESTATE_TASK, task=speaker.task))
        )
    return told


def _for(name: str, **fields: Any) -> RememberedMessage:
    """Return the metadata of a message that a speaker remembers, and that no rule counts."""
    return RememberedMessage(stage=Stage.PRIVATE, audience=(name,), **fields)


def _loaded(
    dump: MemoryDump, name: str, log: Sequence[BaseMessage], kept: Sequence[BaseMessage]
) -> list[AnyMessage]:
    """Give the lines of a dump as messages that this speaker alone remembers.

    A dump of this very session ends in what is kept anyway, which must not stand there twice.
    """
    used = {
        str(call["id"])
        for message in log
        if isinstance(message, AIMessage)
        for call in (*message.tool_calls, *message.invalid_tool_calls)
    }
    # Results are found by the ids of their calls.
    ending = f"-{place_name(len(log))}"
    told = [(one.speaker, one.text) for one in dump.lines[-len(kept) :]] if kept else []
    is_kept = told == [(metadata(one).speaker, one.text) for one in kept]
    lines = [
        one.with_call_ids(lambda old: old + ending if old in used else old)
        for one in dump.lines[: -len(kept) if kept and is_kept else None]
    ]
    return [message_of(one, 0, _about(dump, one, name)) for one in lines]


def _about(dump: MemoryDump, one: Remembered, name: str) -> MessageMetadata:
    told = one.as_of(dump.speaker, name)
    return _for(name, **told, parsed=one.parsed, to_user=one.to_user)
