"""The state of the compiled graph, and the two channels of the log, with their reducer."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Final, Self, cast, get_args
from uuid import UUID, uuid4, uuid5

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    BaseMessageChunk,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from langgraph.channels import DeltaChannel
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ..common.errors import SpecError
from ..common.sanitize import excerpt
from .messages import KEY, PLACE, continues_log, metadata, place_of, stored_metadata
from .metadata import (
    INPUT,
    NOBODY,
    REMOVED,
    AnyMetadata,
    InputMessage,
    OpeningAnswer,
    RemovedMessage,
    SpeakerReply,
    Stage,
    kind_name,
    original_metadata,
)

TAKEN_BACK = "duologue_taken_back"
"""Marks a removal by duologue that leaves no trace of the message."""


_REPLIES: Final = {
    kind_name(kind) for kind in get_args(AnyMetadata) if issubclass(kind, SpeakerReply)
}
"""The stored names of the kinds of replies."""


def append(log: Sequence[BaseMessage], writes: Sequence[Any]) -> list[AnyMessage]:
    """Apply writes to messages: append one, replace the one with the same id, or remove one.

    A message that replaces another one inherits its metadata, unless it has metadata itself. If it
    changes the text of a reply, the reply is marked to be parsed again.

    A removed message of the log stays, with a mark, so that an answer is never assigned to the
    wrong request. `graphs.log.state.hide_removed` then moves it out of `messages`. A message that
    is not part of the log, such as a run's input, is dropped. An unknown id removes nothing. An
    error here would make a thread with such a write unreadable, so `read_messages` refuses invalid
    messages before they are written.

    Two batches applied one after the other have the same result as both applied at once, as
    LangGraph's delta channel requires.
    """
    new: list[Any] = [*log]
    known = set(map(_ID, new))
    for write in writes:
        parts = write if isinstance(write, list) else [write]
        # Messages that no stream shows are nested in one more list.
        flat = [one for part in parts for one in (part if isinstance(part, list) else [part])]
        for given in flat:
            message = _message(given)
            if isinstance(message, RemoveMessage) and TAKEN_BACK in message.additional_kwargs:
                new = [one for one in new if one.id != message.id]
                known.discard(message.id)
            elif isinstance(message, RemoveMessage):
                _remove(new, str(message.id))
                known = set(map(_ID, new))
            elif message.id is not None and message.id in known:
                place = next(place for place, one in enumerate(new) if one.id == message.id)
                new[place] = _instead(new[place], message)
            else:
                if message.id is None:
                    # Not random: the log is computed again from its writes whenever it is read.
                    made = uuid5(_IDS, f"{len(new)} {message.text}")
                    message = message.model_copy(update={"id": str(made)})
                known.add(message.id)
                new.append(message)
    return new


def _instead(known: AnyMessage, write: AnyMessage) -> AnyMessage:
    """Return the message that replaces a known one when a message with the same id is written."""
    was, new = stored_metadata(known), stored_metadata(write)
    if was.get("kind") == REMOVED and not new:
        # As with `add_messages`, a message that is written again after its removal stays.
        extra = {name: one for name, one in known.additional_kwargs.items() if name != KEY}
        if before := was.get("was"):
            extra[KEY] = before
        return _instead(known.model_copy(update={"additional_kwargs": extra}), write)
    if was.get("kind", INPUT) == INPUT and new:
        # Keep the caller's marks: whoever sent the input finds them on the message made from it.
        extra = {**known.additional_kwargs, **write.additional_kwargs}
        return write.model_copy(update={"additional_kwargs": extra})
    if was and new.get("kind", INPUT) == INPUT and write.text == known.text:
        # Clients and parent graphs send back messages that they received, without duologue's
        # metadata.
        return known
    return _apply_edit(known, write)


_ID: Final = attrgetter("id")  # many times as fast as a comprehension
_IDS: Final = UUID("8e7bb9c2-9c55-4d39-9f37-6d1ab0a4a1f5")


def _apply_edit(old: AnyMessage, new: AnyMessage) -> AnyMessage:
    """Return the message that replaces an older one, as when a person edits it."""
    about = stored_metadata(new) or stored_metadata(old)
    if not about:
        return new
    if about.get("kind") in _REPLIES and new.text != old.text:
        about = {**about, "edited": True}
    kept = {PLACE: old.additional_kwargs[PLACE]} if PLACE in old.additional_kwargs else {}
    extra = {**kept, **new.additional_kwargs, KEY: about}
    return new.model_copy(update={"additional_kwargs": extra, "name": new.name or old.name})


def read_messages(given: object, field: str = "messages") -> list[AnyMessage]:
    """Read a write to a channel of messages, in any form that LangGraph's `add_messages` accepts.

    Each message gets an id. Messages that the same write removes again are dropped.

    Raises:
        SpecError: A part is not a message. Such a write must not be stored, since the reducer would
            then fail whenever the thread is read.
    """
    if given is None:
        raise SpecError(f"{field}: is None; pass a list of messages, or leave the field out")
    # As in `add_messages`, a tuple is a pair of role and text.
    parts = given if isinstance(given, list) else [given]
    found: list[AnyMessage] = []
    for place, part in enumerate(parts):
        message = _read_message(part, f"{field}.{place}" if parts is given else field)
        if isinstance(message, RemoveMessage):
            from langgraph.graph.message import REMOVE_ALL_MESSAGES  # takes long to import

            is_all = message.id == REMOVE_ALL_MESSAGES
            found = [] if is_all else [one for one in found if one.id != message.id]
        found.append(message)
    return found


def _read_message(part: object, field: str) -> AnyMessage:
    try:
        message = _message(part)
    # LangChain raises errors of many types here.
    except Exception as error:
        raise SpecError(
            f"{field}: {excerpt(repr(part), 100)} is not a message; pass a text, a pair of a role "
            "and a text, or a dict with 'role' and 'content'"
        ) from error
    if isinstance(message, BaseMessageChunk):
        message = message_chunk_to_message(message)
    extra = message.additional_kwargs
    if type(extra.get(PLACE, 0)) is not int:
        # A place must be an integer, because the log is sorted by places. This value was not
        # written by duologue.
        extra = {name: one for name, one in extra.items() if name != PLACE}
        message = message.model_copy(update={"additional_kwargs": extra})
    if not message.id:
        message = message.model_copy(update={"id": str(uuid4())})
    return cast("AnyMessage", message)


def take_back(message_id: str) -> AnyMessage:
    """Return the write that removes a message without a trace, so that its place is free."""
    write = RemoveMessage(id=message_id, additional_kwargs={TAKEN_BACK: True})
    return cast("AnyMessage", write)  # LangChain's AnyMessage does not include RemoveMessage


@cache
def _message_adapter() -> TypeAdapter[AnyMessage]:
    return TypeAdapter(AnyMessage)


def _message(given: Any) -> Any:  # noqa: ANN401  # a message; LangChain knows RemoveMessage as none
    """Read a message in any form that LangChain accepts."""
    if isinstance(given, BaseMessage):
        return given
    is_dumped = isinstance(given, dict) and "role" not in given
    # ToolMessage alone would turn no content into "None".
    if is_dumped and isinstance(given.get("content"), str | list):
        # LangChain's own parser would drop invalid tool calls.
        try:
            return _message_adapter().validate_python(given)
        # TypeError: LangChain's validators expect tool calls in LangChain's form.
        except (ValidationError, TypeError):
            pass
    return convert_to_messages([given])[0]


def _remove(messages: list[AnyMessage], wanted: str) -> None:
    """Mark a message and its consequences as removed; drop it if it is not part of the log."""
    from langgraph.graph.message import REMOVE_ALL_MESSAGES  # takes long to import

    is_all = wanted == REMOVE_ALL_MESSAGES
    if is_all or any(one.id == wanted for one in messages):
        left = [
            one
            for one in messages
            if not (is_all or one.id == wanted) or stored_metadata(one).get("kind") != INPUT
        ]
        marked = [mark_removed(one) if is_all or one.id == wanted else one for one in left]
        messages[:] = mark_consequences(marked)


def mark_removed(message: AnyMessage) -> AnyMessage:
    """Return a message as a removed one. Its metadata before the removal is kept."""
    was = stored_metadata(message)
    if was.get("kind") == REMOVED:
        return message
    about: dict[str, Any] = {"kind": REMOVED, "audience": list(NOBODY)}
    if was:
        about["was"] = was
    extra = {**message.additional_kwargs, KEY: about}
    return message.model_copy(update={"additional_kwargs": extra})


def mark_consequences(log: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Return a log in which the consequences of removed messages are marked as removed, too."""
    gone = {
        place
        for message in log
        if (about := stored_metadata(message)).get("kind") == REMOVED
        for place in _find_consequences(message, about.get("was") or {}, log)
    }
    return [
        mark_removed(message) if place in gone else message for place, message in enumerate(log)
    ]


def _find_consequences(
    message: AnyMessage, said: dict[str, Any], log: Sequence[AnyMessage]
) -> Iterator[int]:
    """Yield the places of messages that repeat a message or are heard only together with it."""
    calls: set[str | None] = set()
    if isinstance(message, AIMessage):
        calls = {call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls)}
    is_opening = said.get("stage") == Stage.OPENING
    for place, other in enumerate(log):
        about = stored_metadata(other)
        is_result = isinstance(other, ToolMessage) and other.tool_call_id in calls
        # A hook's version of the message. If the version replaced other messages, too, these are
        # heard again.
        is_remade = place_of(message) in (about.get("instead_of") or ())
        is_handed_on = (
            is_opening
            and about.get("kind") == kind_name(OpeningAnswer)
            and about.get("speaker") == said.get("speaker")
            and other.text == message.text
        )
        if is_result or is_remade or is_handed_on:
            yield place


# ToolRuntime fails with typing.TypedDict on Python 3.11.


def newest(kept: Any, writes: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return the newest write, or the value before it if there are no writes."""
    return writes[-1] if writes else kept


class _Messages(DeltaChannel[list[AnyMessage]]):
    """A channel of messages that remain messages after any store has stored them."""

    def from_checkpoint(self, checkpoint: Any) -> Self:  # noqa: ANN401
        """Read a snapshot. In the snapshots of LangGraph's servers, messages are dicts."""
        channel = super().from_checkpoint(checkpoint)
        channel.value = [_message(one) for one in channel.value]
        return channel


# DeltaChannel is in beta; only the class above and these aliases use it. With plain channels, the
# SQLite saver would write the whole log and the whole spec at every step. Each snapshot writes
# them, too, so snapshots are rare. This does not slow down reading: for the spec, the saver reads
# back to the first step in any case. Its query has a variable for each channel and step without a
# snapshot. Some builds of SQLite allow 32,766 variables; LangGraph's own snapshot of every channel
# comes after 5,000 steps.
Messages = Annotated[list[AnyMessage], _Messages(append, snapshot_frequency=1000)]
Latest = Annotated[dict[str, Any], DeltaChannel(newest, dict)]
KeptText = Annotated[str, DeltaChannel(newest, str)]


class Input(TypedDict, total=False):
    """The input of a run."""

    conversation: Latest
    """A `Conversation`, as a dict, or the options of a short form with its `kind`."""
    messages: Messages
    """A person's message, or the task of a conversation without a person."""


class Output(TypedDict, total=False):
    """The output of a run."""

    specified_task: KeptText
    """The task as the speakers received it."""
    messages: Messages
    """The messages that the speakers said to one another, with their tool calls and the results."""
    outcome: dict[str, Any]
    """Why, when and by whom the conversation ended: an `Outcome`, as a dict. Missing or empty until
    it has ended.
    """


class State(Input, Output, total=False):
    """The whole state of a session, from which it is resumed."""

    spec: Latest
    """The conversation of this session, complete and validated."""
    unspoken: Messages
    """The rest of the log, such as drafts, verdicts, instructions and removed messages. Each
    message contains its place; `graphs.log.state.log_of` merges both channels."""
    position: dict[str, Any]
    """The progress of the conversation: a `Position`, as a dict. Missing until the task is ready.
    """
    interpreter: Latest
    """The stored state of the interpreter that runs the conversation's code: a
    `graphs.conversation.sandbox.Kept`, as a dict. Missing until code has run.
    """
    decisions: Latest
    """A person's decisions about tool calls that have not run yet: ``message`` contains the id of
    the message with the calls, ``decisions`` the decisions. Empty or missing at any other time.
    """
    usage: dict[str, Any]
    """The usage of each model: a `Usage`, as a dict, by the model's name."""


def log_of(state: Mapping[str, Any]) -> list[AnyMessage]:
    """Return the log: all messages, in order."""
    channels = (state.get("messages") or (), state.get("unspoken") or ())
    placed = sorted(chain.from_iterable(map(_add_places, channels)), key=itemgetter(0))
    return mark_consequences([message for _, message in placed])


def new_messages(update: Mapping[str, Any]) -> list[AnyMessage]:
    """Return the messages that an update adds to the log, in order.

    A message that the update only moves from `messages` to `unspoken` is not among them.
    """
    if not update.get("outcome"):
        # Only an end moves messages.
        return log_of(update)
    written = update.get("messages") or ()
    moved = {one.id for one in written if isinstance(one, RemoveMessage)}
    return [one for one in log_of(update) if one.id not in moved]


class GrowingLog:
    """The log of a running session. When its state grows, only the new messages are sorted in."""

    def __init__(self) -> None:
        self._channels: tuple[list[AnyMessage], list[AnyMessage]] = ([], [])
        self._log: list[AnyMessage] = []
        self._is_plain = True

    def find_edited(self) -> list[int]:
        """Return the places of messages whose text was changed and not parsed again yet."""
        if self._is_plain:
            return []
        return [
            place
            for place, message in enumerate(self._log)
            if isinstance(about := metadata(message), SpeakerReply) and about.edited
        ]

    def read(self, state: Mapping[str, Any]) -> list[AnyMessage]:
        """Return the log, as `log_of` does."""
        channels = (state.get("messages") or [], state.get("unspoken") or [])
        known = self._channels
        goes = continues_log(known[0], channels[0]) and continues_log(known[1], channels[1])
        new = channels[0][len(known[0]) :], channels[1][len(known[1]) :]
        if goes and self._is_plain and all(map(_is_plain, chain(*new))):
            tail = sorted(chain(*new), key=_place)
            if not (self._log and tail) or _place(tail[0]) > _place(self._log[-1]):
                known[0].extend(new[0])
                known[1].extend(new[1])
                self._log += tail
                return [*self._log]
        self._log = log_of(state)
        self._channels = ([*channels[0]], [*channels[1]])
        self._is_plain = all(map(_is_plain, self._log))
        return [*self._log]


def _place(message: AnyMessage) -> int:
    number: int = message.additional_kwargs[PLACE]
    return number


def _is_plain(message: AnyMessage) -> bool:
    """Return whether a message has a place and an unchanged text, and was not removed."""
    about = metadata(message)
    is_edited = isinstance(about, SpeakerReply) and about.edited
    is_whole = not isinstance(about, RemovedMessage | InputMessage) and not is_edited
    return PLACE in message.additional_kwargs and is_whole


def with_own_ids(new: Sequence[AnyMessage], log: Sequence[BaseMessage]) -> list[AnyMessage]:
    """Return new messages with ids that are unique in the log: servers may repeat their ids."""
    known = {message.id for message in log}
    found: list[AnyMessage] = []
    for message in new:
        is_new = message.id not in known
        known.add(message.id)
        found.append(message if is_new else message.model_copy(update={"id": str(uuid4())}))
    return found


def update_of(new: Sequence[AnyMessage], log: Sequence[BaseMessage]) -> State:
    """Return the update that appends new messages to a log.

    Messages that the speakers say to one another are written to `messages`, and everything else to
    `unspoken`, including removed messages. The messages for `unspoken` are nested in one more list,
    so that LangGraph's stream mode ``messages`` does not show them.
    """
    has_results = any(isinstance(one, ToolMessage) for one in new)
    private = _private_calls([*log, *new]) if has_results else set()
    spoken: list[AnyMessage] = []
    unspoken: list[AnyMessage] = []
    for message in new:
        if isinstance(message, RemoveMessage):
            # A removal with an unknown id changes nothing.
            spoken.append(message)
            unspoken.append(message)
        elif isinstance(metadata(message), RemovedMessage):
            spoken.append(take_back(str(message.id)))
            unspoken.append(message)
        else:
            (spoken if _is_spoken(message, private) else unspoken).append(message)
    update: State = {}
    if spoken:
        update["messages"] = spoken
    if unspoken:
        update["unspoken"] = cast("list[AnyMessage]", [unspoken])
    return update


def hide_messages(
    hidden: Sequence[AnyMessage], stored: Sequence[AnyMessage], update: State
) -> State:
    """Return an update that also moves messages from `messages` to `unspoken`.

    Args:
        hidden: The messages to move. They are new in the update, or stored.
        stored: The stored value of `messages`.
        update: The update to change, as `update_of` returns it.
    """
    spoken = update.get("messages", [])
    known, new = {one.id for one in stored}, {one.id for one in spoken}
    moved = [one for one in hidden if one.id in known | new]
    if not moved:
        return update
    gone = {one.id for one in moved}
    taken = [take_back(str(one.id)) for one in moved if one.id in known]
    kept = [one for one in spoken if one.id not in gone]
    nested = [*update.get("unspoken", []), moved]
    return {**update, "messages": [*taken, *kept], "unspoken": cast("list[AnyMessage]", nested)}


def hide_removed(state: Mapping[str, Any]) -> State:
    """Return the writes that move removed messages out of `messages`; empty if there are none.

    The log keeps them in `unspoken`. A message of `unspoken` that a client sends again is dropped.
    """
    messages: list[AnyMessage] = state.get("messages") or []
    unspoken = [one for _, one in _add_places(state.get("unspoken") or ())]
    gone = {one.id for one in unspoken}
    sent_again = [take_back(str(one.id)) for one in messages if one.id in gone]
    known = [one for one in messages if one.id not in gone]
    removed = {one.id for one in known if is_removed(one)}
    update: State = {}
    if removed:
        log = log_of({"messages": known, "unspoken": unspoken})
        update = update_of([one for one in _number_places(log) if one.id in removed], log)
    if sent_again:
        update["messages"] = [*sent_again, *update.get("messages", [])]
    return update


def apply_update(state: State, update: Mapping[str, Any]) -> State:
    """Return a state with an update applied to it."""
    known: Mapping[str, Any] = state
    names = {"messages", "unspoken"} & update.keys()
    after = {name: append(known.get(name) or [], [update[name]]) for name in names}
    return cast("State", {**known, **update, **after})


def is_removed(message: BaseMessage) -> bool:
    """Return whether a message is marked as removed."""
    return stored_metadata(message).get("kind") == REMOVED


def _number_places(log: Sequence[AnyMessage]) -> Iterator[AnyMessage]:
    """Yield the messages of a log. A message without a place gets the next free place."""
    taken = {message.additional_kwargs.get(PLACE) for message in log}
    place = -1
    for message in log:
        known = message.additional_kwargs.get(PLACE)
        place = place + 1 if known is None else known
        if known is not None:
            yield message
            continue
        while place in taken:
            place += 1
        extra = {**message.additional_kwargs, PLACE: place}
        yield message.model_copy(update={"additional_kwargs": extra})


def _add_places(
    messages: Sequence[AnyMessage | list[AnyMessage]],
) -> Iterator[tuple[int, AnyMessage]]:
    """Yield messages with their places.

    A message without a place gets the place of the message before it.
    """
    place = 0
    for message in messages:
        if isinstance(message, list):
            yield from _add_places(message)
        elif stored_metadata(message).get("kind") != INPUT:
            place = message.additional_kwargs.get(PLACE, place)
            yield place, message


def _is_spoken(message: BaseMessage, private: set[str | None]) -> bool:
    about = original_metadata(metadata(message))
    if isinstance(message, ToolMessage):
        # A result is in the same channel as its call.
        return about.is_spoken and message.tool_call_id not in private
    return about.is_spoken and about.audience is None


def _private_calls(log: Sequence[BaseMessage]) -> set[str | None]:
    """Return the ids of calls that no other speaker hears, as in a private opening."""
    calls: dict[str | None, bool] = {}
    for message in log:
        if isinstance(message, AIMessage):
            is_spoken = _is_spoken(message, set())
            for call in (*message.tool_calls, *message.invalid_tool_calls):
                # A call that hooks see before it is heard is in the log twice. The newest counts.
                calls[call["id"]] = is_spoken
    return {call for call, is_spoken in calls.items() if not is_spoken}
