"""The memory of a speaker: the messages that it sees after resets, replacements and shared rounds.

In a shared round all speakers speak at once, so each hears the others in the next round.

Pure functions. `graphs.log.viewpoint` shows the messages as the speaker sees them.
`graphs.session.edits` writes resets.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from uuid import uuid4

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import ToolCall

from ..conversation.conversation import Conversation
from ..conversation.judges import Concurrent
from ..speakers.reply_parts import THOUGHT, Thought
from ..speakers.speaker import Speaker
from .heard_text import provider_names
from .messages import (
    M,
    make_message,
    metadata,
    metadata_kwargs,
    place_name,
    place_of,
    storable_content,
)
from .metadata import (
    EarlierEnd,
    HookVersion,
    Instruction,
    MemoryReset,
    MessageMetadata,
    PendingAnswer,
    RememberedMessage,
    Speech,
    Stage,
    Summary,
    ToolCalls,
    original_metadata,
)


def recall(log: Sequence[BaseMessage], name: str) -> list[BaseMessage]:
    """Return a log without the messages that a speaker has forgotten."""
    resets = (
        (place, about.since)
        for place in reversed(range(len(log)))
        if isinstance(about := metadata(log[place]), MemoryReset) and about.speaker == name
    )
    place, since = next(resets, (None, None))
    if place is None:
        return list(log)
    first = next((number for number in range(place) if place_of(log[number]) == since), place)
    behind = log[place + 1 :]
    loaded = [message for message in behind if _is_loaded(message, name)]
    # An earlier reset, messages loaded then, and a summary belong to the forgotten part.
    kept = [message for message in log[first:place] if not _is_of_the_past(message, name)]
    return [*loaded, *kept, *(message for message in behind if not _is_loaded(message, name))]


def memory(log: Sequence[BaseMessage], name: str) -> list[BaseMessage]:
    """Return the messages in a speaker's memory."""
    known = [message for message in recall(log, name) if not isinstance(metadata(message), Summary)]
    found = [message for message in known if is_in_view(message, metadata(message), name)]
    return list(_as_hooks_made_it(found))


def talk_of(log: Sequence[BaseMessage], name: str) -> list[BaseMessage]:
    """Return the messages that a speaker has sent and heard, each with its speaker's name."""
    told = ((message, metadata(message)) for message in memory(log, name))
    return [
        AIMessage(message.text, name=about.speaker)
        if about.speaker == name
        else HumanMessage(message.content, name=about.speaker)
        for message, about in told
        if about.is_talk and not isinstance(message, ToolMessage) and message.text.strip()
    ]


def _is_loaded(message: BaseMessage, name: str) -> bool:
    about = metadata(message)
    return isinstance(about, RememberedMessage) and about.is_heard_by(name)


def _is_of_the_past(message: BaseMessage, name: str) -> bool:
    about = metadata(message)
    return about.is_memory and (name == about.speaker or name in (about.audience or ()))


def is_in_view(message: BaseMessage, about: MessageMetadata, name: str) -> bool:
    """Return whether a remembered message is in a speaker's view, unless a hook replaced it."""
    if isinstance(message, SystemMessage):
        return False
    if about.speaker == name:
        seen = about.seen_by_speaker
        return seen == "always" or (seen == "heard" and about.is_heard_by(name))
    # Other speakers hear only the text of a message with tool calls, and no results.
    says_nothing = isinstance(about, ToolCalls) and not message.text.strip()
    return about.is_heard_by(name) and not says_nothing and not isinstance(message, ToolMessage)


def _as_hooks_made_it(found: Sequence[BaseMessage]) -> Iterator[BaseMessage]:
    made = [message for message in found if _replaced_places(metadata(message))]
    instead = {one: message for message in made for one in _replaced_places(metadata(message))}
    known = {place_of(message) for message in found}
    for message in found:
        other = instead.get(place_of(message))
        if other is not None:
            # A version appears once, at the first message that it replaces.
            if _replaced_places(metadata(other))[0] == place_of(message):
                yield other
        elif message not in made or not known.intersection(_replaced_places(metadata(message))):
            yield message


def is_told(about: MessageMetadata) -> bool:
    """Return whether the message comes from the conversation itself."""
    return about.speaker is None and isinstance(about, Instruction | RememberedMessage)


def private_lines(
    conversation: Conversation,
    name: str,
    messages: Iterable[AnyMessage],
    first: int = 0,
    *,
    stays: bool = False,
) -> list[AnyMessage]:
    """Return messages as log messages that only one speaker sees.

    Args:
        conversation: The spec.
        name: The speaker's name.
        messages: The messages, from the speaker's side.
        first: The place of the first message in the log.
        stays: Whether context policies must keep the messages in prompts.
    """
    speakers = {plain: known for known, plain in provider_names(conversation.names).items()}
    # The ids of calls may repeat those of other conversations, and of later calls in this one.
    ids: dict[str | None, str] = {}
    lines: list[AnyMessage] = []
    speaker: str | None
    for number, message in enumerate(messages, start=first):
        speaker = name
        if isinstance(message, HumanMessage):
            heard_from = speakers.get(message.name or "", message.name)
            # The sender only has the same name: the speaker itself did not say this message.
            speaker = None if heard_from == name else heard_from
        thought: Thought | None = message.additional_kwargs.get(THOUGHT)
        about = RememberedMessage(speaker=speaker, audience=(name,), stays=stays)
        if isinstance(message, ToolMessage):
            call_id = ids.get(message.tool_call_id, message.tool_call_id)
            lines.append(
                ToolMessage(
                    storable_content(message.content),
                    id=str(uuid4()),
                    tool_call_id=call_id,
                    status=message.status,
                    additional_kwargs=metadata_kwargs(about, number),
                )
            )
            continue
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        for call in calls:
            # Providers limit the length of an id.
            known = _OF_ANOTHER_LOG.sub("", call["id"] or "call")
            ids[call["id"]] = f"{known}-{place_name(number)}"
        renamed = [ToolCall(**{**call, "id": ids[call["id"]]}) for call in calls]
        if thought is not None:
            new = {str(call["id"]): ids[call["id"]] for call in calls}
            about = about.model_copy(update={"thought": thought.rename_calls(new)})
        lines.append(make_message(number, message.content, about, tool_calls=renamed))
    return lines


_OF_ANOTHER_LOG: Final = re.compile(r"-m\d{4,}$")
"""The end of the id of a call that is remembered from another log."""


def list_known(conversation: Conversation, first: int) -> list[AnyMessage]:
    """Return the messages that speakers know from the start, with places from `first` on."""
    lines: list[AnyMessage] = []
    for speaker in conversation.speakers:
        for messages, stays in ((speaker.memory, False), (list_private(speaker), True)):
            place = first + len(lines)
            lines += private_lines(conversation, speaker.name, messages, place, stays=stays)
    return lines


def list_private(speaker: Speaker) -> list[AnyMessage]:
    """Return the messages of a speaker's private opening."""
    opening = speaker.private_opening
    return [] if opening is None else [HumanMessage(text) for text in opening.lines]


def _replaced_places(about: MessageMetadata) -> tuple[str, ...]:
    """Return the places of the messages that a hook's version replaces; empty for other kinds."""
    return about.instead_of if isinstance(about, HookVersion) else ()


def select_heard(conversation: Conversation, log: Sequence[M], name: str) -> Sequence[M]:
    """Return the part of the log that a speaker hears in its turn: all of it, if in turn.

    If all speak at once, the messages of the others follow its own in each round, because it hears
    them only in the next round. Those of the current round are left out.
    """
    if not isinstance(conversation.turn_order, Concurrent):
        return log
    heard: list[M] = []
    begin = 0
    for end in _ends_of_rounds(conversation, log, name):
        # Sorting is stable: its own messages come first, each part in its order.
        heard += sorted(log[begin:end], key=lambda one: _is_of_another(one, name))
        begin = end
    heard += (message for message in log[begin:] if not _is_of_another(message, name))
    return heard


def pending_answer(
    conversation: Conversation, log: Sequence[BaseMessage], name: str
) -> AIMessage | None:
    """Return the answer of a speaker's model that waits for the speaker's turn, or None."""
    begin = max(_ends_of_rounds(conversation, log, name), default=0)
    for message in reversed(log[begin:]):
        about = metadata(message)
        if isinstance(about, PendingAnswer) and about.speaker == name:
            return message if isinstance(message, AIMessage) else None
    return None


def pending_answers(conversation: Conversation, log: Sequence[BaseMessage]) -> list[AIMessage]:
    """Return the answers of all models that wait for their speakers' turns."""
    if not isinstance(conversation.turn_order, Concurrent):
        return []
    found = (pending_answer(conversation, log, name) for name in conversation.order)
    return [answer for answer in found if answer is not None]


def _is_of_another(message: BaseMessage, name: str) -> bool:
    """Return whether another speaker says, calls or receives something with a message."""
    about = metadata(message)
    return about.is_spoken and about.speaker not in (None, name)


def _ends_of_rounds(
    conversation: Conversation, log: Sequence[BaseMessage], name: str
) -> Iterator[int]:
    """Yield the log indexes at which the rounds before a speaker's turn end, in order.

    The turns of a round follow the order of the speakers. A turn outside of the rounds, such as an
    opening answer, counts as a whole round, so it is heard without delay.
    """
    order = conversation.order
    before: tuple[int, int] | None = None  # the index of the newest turn, and its speaker's place
    for index, message in enumerate(log):
        about = original_metadata(metadata(message))
        if isinstance(about, EarlierEnd):
            before = None
            yield index + 1
        elif isinstance(about, Speech) and about.ends_turn:
            place = order.index(about.speaker or "")
            if about.stage is not Stage.ROUNDS:
                before = None
                yield index + 1
                continue
            if before is not None and place <= before[1]:
                yield before[0] + 1
            before = index, place
    if before is not None and order.index(name) <= before[1]:
        yield before[0] + 1


def list_heard(log: Sequence[BaseMessage], name: str) -> list[str]:
    """Return the places of the messages that a speaker has heard since its own newest message."""
    found: list[str] = []
    for message in reversed(recall(log, name)):
        about = metadata(message)
        if isinstance(message, ToolMessage) or not is_in_view(message, about, name):
            continue
        if about.speaker == name:
            break
        found.append(place_of(message))
    return found[::-1]
