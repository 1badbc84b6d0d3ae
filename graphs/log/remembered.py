"""What a speaker remembers of a log: what its memory being reset, or replaced, leaves in its view.

Pure functions, also for writing it down as data and back. How a speaker sees what it remembers is
in `graphs.log.viewpoint`; what is written when a memory is reset in `graphs.sessions.forgetting`.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    InvalidToolCall,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import ToolCall

from ..speakers.memory import BrokenCall, DumpedCall, Remembered, Said
from ..speakers.speaker import Speaker
from .messages import make_message, metadata, metadata_kwargs, place_name, place_of, storable
from .metadata import (
    Instruction,
    MemoryReset,
    MessageMetadata,
    RememberedMessage,
    Summary,
    ToolCalls,
    Utterance,
    original_metadata,
    parsed_of,
    replaced_places,
)
from .stage import Stage


def remembered(log: Sequence[BaseMessage], name: str) -> list[BaseMessage]:
    """Leave out of a log what a speaker has forgotten."""
    place = next(
        (place for place in reversed(range(len(log))) if _forgets(log[place], name)),
        None,
    )
    if place is None:
        return list(log)
    reset = metadata(log[place])
    since = reset.since if isinstance(reset, MemoryReset) else None
    first = next((number for number in range(place) if place_of(log[number]) == since), place)
    behind = log[place + 1 :]
    loaded = [message for message in behind if _is_loaded(message, name)]
    # An earlier reset, what was loaded then, and a summary are of what is forgotten now.
    kept = [message for message in log[first:place] if not _is_of_the_past(message, name)]
    return [*loaded, *kept, *(message for message in behind if not _is_loaded(message, name))]


def memory(log: Sequence[BaseMessage], name: str) -> list[BaseMessage]:
    """Give what is in a speaker's memory, message by message."""
    known = [
        message for message in remembered(log, name) if not isinstance(metadata(message), Summary)
    ]
    found = [message for message in known if is_in_view(message, metadata(message), name)]
    return list(_as_hooks_made_it(found))


def _forgets(message: BaseMessage, name: str) -> bool:
    about = metadata(message)
    return isinstance(about, MemoryReset) and about.speaker == name


def _is_loaded(message: BaseMessage, name: str) -> bool:
    about = metadata(message)
    return isinstance(about, RememberedMessage) and about.is_heard_by(name)


def _is_of_the_past(message: BaseMessage, name: str) -> bool:
    about = metadata(message)
    return about.is_memory and (name == about.speaker or name in (about.audience or ()))


def is_in_view(message: BaseMessage, about: MessageMetadata, name: str) -> bool:
    """Whether a line that a speaker remembers stands in its view, where no hook has changed it."""
    if isinstance(message, SystemMessage):
        return False
    if about.speaker == name:
        seen = about.seen_by_speaker
        return seen == "always" or (seen == "heard" and about.is_heard_by(name))
    # Others hear only the text of a call of tools, and no result.
    says_nothing = isinstance(about, ToolCalls) and not message.text.strip()
    return about.is_heard_by(name) and not says_nothing and not isinstance(message, ToolMessage)


def _as_hooks_made_it(found: Sequence[BaseMessage]) -> Iterator[BaseMessage]:
    made = [message for message in found if replaced_places(metadata(message))]
    instead = {one: message for message in made for one in replaced_places(metadata(message))}
    known = {place_of(message) for message in found}
    for message in found:
        other = instead.get(place_of(message))
        if other is not None:
            # It stands once, in the place of the first of those that it takes the place of.
            if replaced_places(metadata(other))[0] == place_of(message):
                yield other
        elif message not in made or not known.intersection(replaced_places(metadata(message))):
            yield message


def is_told(about: MessageMetadata) -> bool:
    """Whether the conversation itself tells something."""
    return about.speaker is None and isinstance(about, Instruction | RememberedMessage)


def is_brought_along(about: MessageMetadata) -> bool:
    """Whether a line is of a memory with which a speaker came into the session."""
    return isinstance(about, RememberedMessage) and about.stage is Stage.ROUNDS


def brought_along(speaker: Speaker, number: int) -> Iterator[AnyMessage]:
    """Give what a speaker remembers when the session begins, from this place of the log on."""
    # Several conversations may have had the same ids of calls, and this one may have them again.
    ids: dict[str, str] = {}

    def renamed(old: str) -> str:
        return ids.get(old, old)

    for place, one in enumerate(speaker.memory, start=number):
        ids.update((old, f"{old}-{place_name(place)}") for old in one.made_calls)
        told = one.with_call_ids(renamed)
        about = RememberedMessage(
            speaker=one.speaker,
            audience=(speaker.name,),
            to=one.to,
            parsed=one.parsed,
            to_user=told.to_user,
        )
        yield message_of(told, place, about)


def remembered_by(speaker: str, message: BaseMessage) -> Remembered:
    """Write down a message of the log as something that a speaker remembers."""
    about = metadata(message)
    says: dict[str, Any] = {"text": message.text}
    if about.speaker == speaker:
        says = what_is_said(message)
        says["to_user"] = about.to_user if isinstance(about, Utterance) else {}
    to = about.to if isinstance(about, Instruction | RememberedMessage) else None
    return Remembered(speaker=about.speaker, to=to, parsed=parsed_of(about), **says)


def what_is_said(message: BaseMessage) -> dict[str, Any]:
    """Write down what a message of the log says."""
    found: dict[str, Any] = {"text": message.text}
    if isinstance(message, ToolMessage):
        found |= {"call_id": message.tool_call_id, "failed": message.status == "error"}
    if isinstance(message, AIMessage):
        found["tool_calls"] = [
            DumpedCall(name=call["name"], args=call["args"], id=call["id"])
            for call in message.tool_calls
        ]
        found["invalid_tool_calls"] = [
            BrokenCall(name=call["name"], args=call["args"], id=call["id"], error=call["error"])
            for call in message.invalid_tool_calls
        ]
    return found


def message_of(
    says: Said, number: int, about: MessageMetadata, answer: AIMessage | None = None
) -> AnyMessage:
    """Make the message at this place of the log out of what was written down.

    Its id and usage are those of a model's answer, if it has one.
    """
    message_id = (answer.id if answer else None) or str(uuid4())
    if says.call_id is not None:
        return ToolMessage(
            storable(says.text),
            id=message_id,
            tool_call_id=says.call_id,
            status="error" if says.failed else "success",
            additional_kwargs=metadata_kwargs(about, number),
        )
    return make_message(
        number,
        says.text,
        original_metadata(about),
        id=message_id,
        answer=answer,
        tool_calls=[
            ToolCall(name=call.name, args=dict(call.args), id=call.id, type="tool_call")
            for call in says.tool_calls
        ],
        invalid_tool_calls=[
            InvalidToolCall(
                name=call.name,
                args=call.args,
                id=call.id,
                error=call.error,
                type="invalid_tool_call",
            )
            for call in says.invalid_tool_calls
        ],
    ).model_copy(update={"additional_kwargs": metadata_kwargs(about, number)})
