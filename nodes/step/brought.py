"""The messages that a run is started with: what a person says next, or a task.

They stand in the state's `messages` already, under the ids that whoever gave them knows them by.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage

from ...graphs.common.errors import SpecError
from ...graphs.common.validation import listing
from ...graphs.log.messages import KEY, PLACE, make_message, stored_form, stored_metadata
from ...graphs.log.metadata import INPUT, InputMessage, RememberedMessage
from ...graphs.log.reducer import take_back
from ...graphs.spec.conversation import Conversation
from ...graphs.spec.questions import is_exit


class Brought(NamedTuple):
    """The messages that a run is started with."""

    new: Sequence[AnyMessage]
    """Those that the session does not know, oldest first."""
    known: list[AnyMessage]
    """The others."""
    last: Sequence[AnyMessage]
    """Of them the user's newest, with those of the user's right in front of it."""
    text: str | None
    """What these say. None: the user says nothing new."""

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Read what a run is started with.

        Raises:
            SpecError: The user's newest message is blank, or holds more than text.
        """
        messages = state.get("messages") or []
        new = _behind_own(messages, state.get("unspoken") or []) if state.get("spec") else messages
        ids = {one.id for one in new}
        known = [one for one in messages if one.id not in ids]
        end = len(new)
        while end and not isinstance(new[end - 1], HumanMessage):
            end -= 1
        first = end
        while first and isinstance(new[first - 1], HumanMessage):
            first -= 1
        last = new[first:end]
        if not last:
            return cls(new, known, (), None)
        newest = _only_text(last[-1])
        if not newest.strip():
            raise SpecError("messages: the user's newest message must not be empty")
        before = [text for text in map(_text_of, last[:-1]) if text.strip() and not is_exit(text)]
        return cls(new, known, last, "\n\n".join([*before, newest]))

    def speaker(self, conversation: Conversation) -> str | None:
        """Give who says it. None: nobody in the conversation is a person.

        Raises:
            SpecError: There are several people, and the message names none of them.
        """
        people = conversation.people
        named = self.last[-1].name if self.last else None
        if len(people) > 1 and named not in people:
            raise SpecError(
                f"messages: people speak for {listing(people)} in this conversation; name one of "
                "them in the message's name"
            )
        return (named if named in people else people[0]) if people else None

    def kept(self, sayer: str | None = None) -> list[AnyMessage]:
        """Give the writes with which the messages stay, as no lines of the log.

        Args:
            sayer: Who says the user's newest in its next turn, if anybody does.
        """
        writes: list[AnyMessage] = []
        said = {one.id for one in self.last} if sayer else set()
        for message in self.new:
            is_last = bool(self.last) and message is self.last[-1]
            if KEY in message.additional_kwargs or (message.id in said and not is_last):
                # A line of another conversation, or said together with the newest.
                writes.append(take_back(str(message.id)))
            if message.id not in said:
                writes.append(as_given(message))
            elif is_last:
                writes.append(as_given(message, sayer).model_copy(update={"content": self.text}))
        return writes

    def remembered(self, conversation: Conversation, sayer: str) -> list[AnyMessage]:
        """Give the lines by which the others know what was said before, elsewhere."""
        others = [name for name in conversation.names if name != sayer]
        lines: list[AnyMessage] = []
        for message in self.new:
            if self.last and message is self.last[0]:
                break
            text = _text_of(message)
            if not text.strip() or not isinstance(message, HumanMessage | AIMessage):
                continue
            name = message.name if message.name in others else others[0]
            if isinstance(message, HumanMessage):
                name = sayer
            about = RememberedMessage(speaker=name, audience=conversation.names)
            lines.append(make_message(len(lines), text, about))
        return lines


def waiting(messages: Sequence[AnyMessage], speaker: str) -> AnyMessage | None:
    """Give the message that a person has given a run, and that is still to be said."""
    for message in reversed(messages):
        about = stored_metadata(message)
        if about.get("speaker") == speaker:
            return message if about.get("kind") == INPUT else None
    return None


def is_task_given(messages: Sequence[AnyMessage]) -> bool:
    """Whether a message of the user's was kept that nobody says."""
    return any(isinstance(one, HumanMessage) and _is_kept(one) for one in messages)


def as_given(message: AnyMessage, sayer: str | None = None) -> AnyMessage:
    """Mark a message as no line of the log, to be said by a speaker where one is named."""
    about = InputMessage(speaker=sayer)
    extra = {name: one for name, one in message.additional_kwargs.items() if name != PLACE}
    extra[KEY] = stored_form(about)
    return message.model_copy(update={"additional_kwargs": extra})


def _behind_own(
    messages: Sequence[AnyMessage], unspoken: Sequence[BaseMessage]
) -> Sequence[AnyMessage]:
    """Give the messages behind the last line of the session's own, but for those kept earlier."""
    taken = {one.additional_kwargs.get(PLACE) for one in unspoken}
    end = 0
    for number, message in enumerate(messages):
        place = message.additional_kwargs.get(PLACE)
        if not isinstance(place, int):
            continue
        if place in taken:
            # A line of another conversation, and so is what stands behind it.
            break
        taken.add(place)
        end = number + 1
    return [one for one in messages[end:] if not _is_kept(one)]


def _is_kept(message: BaseMessage) -> bool:
    about = stored_metadata(message)
    return about.get("kind") == INPUT and about.get("speaker") is None


def _text_of(message: BaseMessage) -> str:
    return str(message.text)


def _only_text(message: BaseMessage) -> str:
    blocks = message.content if isinstance(message.content, list) else []
    for block in blocks:
        kind = "text" if isinstance(block, str) else block.get("type")
        if kind != "text":
            raise SpecError(f"messages: only text is understood here, and there is a {kind!r}")
    return _text_of(message)
