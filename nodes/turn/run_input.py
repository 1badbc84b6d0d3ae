"""The input of a run, and its meaning for a session: the rules of the chat protocol.

If a person takes part, the user's message in `messages` is that person's next turn. Otherwise it is
the task. The messages are in the state already, under their sender's ids.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple, Self

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage

from ...graphs.common.content import Content, arrange_blocks, files_of, join_content, text_of
from ...graphs.common.content_input import keep_inline, read_content
from ...graphs.common.errors import SessionError, SpecError, list_names, validate
from ...graphs.conversation.conversation import Conversation, Form, restore_conversation
from ...graphs.conversation.questions import is_exit
from ...graphs.log.messages import KEY, PLACE, make_message, stored_form, stored_metadata
from ...graphs.log.metadata import INPUT, InputMessage, RememberedMessage
from ...graphs.log.reducer import take_back
from ...graphs.log.state import State, log_of
from ...graphs.rules.position import BETWEEN_TURNS, Position
from ...graphs.rules.transitions import Node, decide, position_after_removals
from ...graphs.rules.turns import asking_of_calls
from .next_message import is_opening, say_as_speaker


class RunInput(NamedTuple):
    """The messages in a run's input."""

    new: Sequence[AnyMessage]
    """The messages that are new to the session, oldest first."""
    known: list[AnyMessage]
    """The messages that the session knows."""
    last: Sequence[AnyMessage]
    """The user's newest message, with the user messages directly before it."""
    content: Content | None
    """The content of `last`. None if the user sends nothing new."""

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Read the messages in a run's input.

        Raises:
            SpecError: The user's newest message is blank, or a file in it is not accepted.
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
        newest = read_content(last[-1].content, "messages.content")
        if not text_of(newest).strip():
            raise SpecError("messages: the user's newest message must not be empty")
        before = map(_earlier_content, last[:-1])
        said = (one for one in before if text_of(one).strip() and not is_exit(one))
        return cls(new, known, last, reduce(join_content, [*said, newest]))

    @property
    def text(self) -> str | None:
        """The text of `last`. None if the user sends nothing new."""
        return None if self.content is None else text_of(self.content)

    def speaker(self, conversation: Conversation) -> str | None:
        """Return the speaker that the user's message belongs to. None if no speaker is a person.

        Raises:
            SpecError: There are several people, and the message names none of them.
        """
        people = conversation.people
        named = self.last[-1].name if self.last else None
        if len(people) > 1 and named not in people:
            raise SpecError(
                f"messages: people speak for {list_names(people)} in this conversation; set "
                "the message's name to one of them"
            )
        return (named if named in people else people[0]) if people else None

    def kept(self, sayer: str | None = None) -> list[AnyMessage]:
        """Return the writes that keep the messages in the state without adding them to the log.

        Args:
            sayer: The speaker who says the user's newest message in its next turn, if there is one.
        """
        writes: list[AnyMessage] = []
        said = {one.id for one in self.last} if sayer else set()
        for message in self.new:
            is_last = bool(self.last) and message is self.last[-1]
            if KEY in message.additional_kwargs or (message.id in said and not is_last):
                # The message belongs to another conversation's log, or is joined to the newest one.
                writes.append(take_back(str(message.id)))
            if message.id not in said:
                writes.append(mark_run_input(message))
            elif is_last:
                writes.append(
                    mark_run_input(message, sayer).model_copy(update={"content": self.content})
                )
        return writes

    def remembered(self, conversation: Conversation, sayer: str) -> list[AnyMessage]:
        """Return messages from before this conversation as log messages that speakers remember."""
        others = [name for name in conversation.names if name != sayer]
        lines: list[AnyMessage] = []
        for message in self.new:
            if self.last and message is self.last[0]:
                break
            content = _earlier_content(message)
            is_blank = not text_of(content).strip()
            if is_blank or not isinstance(message, HumanMessage | AIMessage):
                continue
            name = message.name if message.name in others else others[0]
            if isinstance(message, HumanMessage):
                name = sayer
            about = RememberedMessage(speaker=name, audience=conversation.names)
            lines.append(make_message(len(lines), content, about))
        return lines


def _earlier_content(message: BaseMessage) -> Content:
    """Return the text and the inline files of a message that is not the user's newest.

    Other parts, such as an address, are left out: an earlier run has refused them.
    """
    if isinstance(message.content, str):
        return message.content
    return arrange_blocks([str(message.text), *files_of(keep_inline(message.content))])


def has_unread_message(state: Mapping[str, Any]) -> bool:
    """Return whether the user's newest message is new to a session and no run has read it yet.

    Raises:
        SpecError: This message is blank, or a file in it is not accepted.
    """
    last = RunInput.of(state).last if state.get("spec") else ()
    return bool(last) and not stored_metadata(last[-1])


def waiting_message(messages: Sequence[AnyMessage], speaker: str) -> AnyMessage | None:
    """Return the message in a run's input that this speaker's person has yet to say."""
    for message in reversed(messages):
        about = stored_metadata(message)
        if about.get("speaker") == speaker:
            return message if about.get("kind") == INPUT else None
    return None


def mark_run_input(message: AnyMessage, sayer: str | None = None) -> AnyMessage:
    """Mark a message as outside the log. If a speaker is named, it will say the message."""
    about = InputMessage(speaker=sayer)
    extra = {name: one for name, one in message.additional_kwargs.items() if name != PLACE}
    extra[KEY] = stored_form(about)
    return message.model_copy(update={"additional_kwargs": extra})


def _behind_own(
    messages: Sequence[AnyMessage], unspoken: Sequence[BaseMessage]
) -> Sequence[AnyMessage]:
    """Return the messages after the session's own last message, without earlier inputs."""
    taken = {one.additional_kwargs.get(PLACE) for one in unspoken}
    end = 0
    for number, message in enumerate(messages):
        place = message.additional_kwargs.get(PLACE)
        if not isinstance(place, int):
            continue
        if place in taken:
            # The message belongs to another conversation's log, and so do those that follow it.
            break
        taken.add(place)
        end = number + 1
    return [one for one in messages[end:] if not _is_kept(one)]


def _is_kept(message: BaseMessage) -> bool:
    about = stored_metadata(message)
    return about.get("kind") == INPUT and about.get("speaker") is None


class RequestedConversation(NamedTuple):
    """The conversation that a run requests."""

    conversation: Conversation | None
    filled: Mapping[str, Any]
    """The values of the short form's fields that the user's message sets, by field name."""
    is_task: bool
    """Whether the user's message is the task."""


def read_requested_conversation(
    state: State,
    form: type[Form] | None,
    brought: RunInput,
    *,
    is_new: bool,
    served: Conversation | None = None,
) -> RequestedConversation:
    """Read the conversation that a run requests.

    Args:
        state: The state, including the input.
        form: The form of the graph, if it has one.
        brought: The messages of the input.
        is_new: Whether a message begins a new conversation on this thread, with a new task.
        served: The graph's own conversation. A run can set only its task. None if the graph has
            no conversation.
    """
    text = brought.text
    if served is not None:
        is_task = text is not None and not served.people
        return RequestedConversation(
            served.model_copy(update={"task": text}) if is_task else served, {}, is_task
        )
    whole: object = state.get("conversation")
    if whole:
        # In Python it can be a Conversation object.
        given = whole if isinstance(whole, Conversation) else _read(state, text)
        is_said = is_new or not given.task or given.task == text
        is_task = text is not None and is_said and not given.people
        return RequestedConversation(
            given.model_copy(update={"task": text}) if is_task else given, {}, is_task
        )
    if form is None:
        return RequestedConversation(None, {}, is_task=False)
    fields: Mapping[str, Any] = state
    known = {name: fields[name] for name in form.model_fields if fields.get(name) is not None}
    filled: dict[str, Any] = {}
    if text is not None:
        filled = {name: one for name, one in form.beside_message.items() if name not in known}
        if form.message_field and (is_new or form.message_field not in known):
            filled[form.message_field] = text
    return RequestedConversation(
        validate(form, known | filled).conversation(), filled, is_task="task" in filled
    )


def _read(state: State, text: str | None) -> Conversation:
    """Read a whole conversation. Its task may come from the user's message, now or earlier."""
    given: object = state["conversation"]
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise SpecError(f"conversation: expected the fields of a Conversation, not {kind}")
    task = text or (state.get("spec") or {}).get("task")
    if task and not given.get("task"):
        with_task = restore_conversation({**given, "task": task})
        if not with_task.people:
            return with_task
    return restore_conversation({**given})


def begins_anew(brought: RunInput, known: Conversation, state: State) -> bool:
    """Return whether the user's message is a new task for a conversation without people."""
    if brought.text is None or known.people:
        return False
    return bool(state.get("outcome")) or brought.text != known.task


def empty_session(state: State, brought: RunInput) -> dict[str, Any]:
    """Return the writes that reset a session and keep its messages outside the log.

    The messages of the new input follow them.
    """
    messages: list[AnyMessage] = []
    for message in state.get("messages") or ():
        if PLACE in message.additional_kwargs:
            messages += [take_back(str(message.id)), mark_run_input(message)]
    messages += [take_back(str(message.id)) for message in brought.new]
    unspoken = [take_back(str(message.id)) for message in state.get("unspoken") or ()]
    nothing: dict[str, Any] = {"position": {}, "outcome": {}, "usage": {}}
    nothing |= {"interpreter": {}, "decisions": {}}
    return {**nothing, "messages": messages, "unspoken": [unspoken]}


def continue_session(state: State, conversation: Conversation, brought: RunInput) -> dict[str, Any]:
    """Return the update for a session that continues, or that has ended.

    If a person is asked, or has the next turn, the message waits for that question. Otherwise it
    enters the log at once, as with `graphs.session.take_over`.
    """
    sayer = brought.speaker(conversation) if brought.text else None
    position = position_after_removals(Position.model_validate(state["position"]), log_of(state))
    content, ended = brought.content or "", bool(state.get("outcome"))
    if sayer is None or (ended and is_exit(content)):
        return {"messages": brought.kept()}
    if is_opening(conversation, position):
        if ended:
            raise SessionError("this session ended during its opening; start a new thread")
        return {"messages": brought.kept(sayer)}
    if not ended and _is_next(conversation, position, sayer):
        return {"messages": brought.kept(sayer)}
    message_id = str(brought.last[-1].id)
    written = say_as_speaker(state, conversation, position, sayer, content, message_id)
    said = written["messages"]
    kept = [one for one in brought.kept(sayer) if one.id != message_id]
    # The results of waiting calls must directly follow the calls.
    moved = [take_back(message_id)] if len(said) > 1 else []
    return {**written, "messages": [*kept, *moved, *said]}


def _is_next(conversation: Conversation, position: Position, name: str) -> bool:
    """Return whether the next message comes from this speaker's person."""
    turn = decide(conversation, position)
    if turn.node is Node.TOOL_EXECUTOR:
        asked = asking_of_calls(conversation, position, turn.speaker)
        return asked is not None and asked.speaker == name
    speaks = turn.node in (Node.USER_AGENT, Node.ASSISTANT_AGENT)
    return speaks and position.phase in BETWEEN_TURNS and turn.speaker == name


def join_updates(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Join two updates. The messages of the second follow those of the first."""
    names = {"messages", "unspoken"} & first.keys() & then.keys()
    return {**first, **then, **{name: [*first[name], *then[name]] for name in names}}
