"""What a run is started with, and what it means for a session: the rules of the chat protocol.

What the user says in `messages` is a person's next turn where a person takes part, else the task.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.messages import AnyMessage

from ...graphs.common.errors import SessionError, SpecError
from ...graphs.common.validation import validated
from ...graphs.log.channels import log_of
from ...graphs.log.messages import PLACE
from ...graphs.log.reducer import take_back
from ...graphs.log.state import State
from ...graphs.rules.end_chat import Node, decide
from ...graphs.rules.moves import BETWEEN_TURNS
from ...graphs.rules.people import asking_of_calls
from ...graphs.rules.position import Position
from ...graphs.rules.removal import standing
from ...graphs.spec.conversation import Conversation, Form
from ...graphs.spec.questions import is_exit
from ...graphs.spec.versions import restored
from .brought import Brought, as_given
from .saying import is_opening, spoken


class Given(NamedTuple):
    """The conversation that a run is started with."""

    conversation: Conversation | None
    filled: Mapping[str, Any]
    """The form's fields that a message has filled in."""
    is_task: bool
    """Whether the message is the task."""


def given_to(state: State, form: type[Form] | None, brought: Brought, *, is_new: bool) -> Given:
    """Read the conversation that a run is started with.

    Args:
        state: The state, with the input.
        form: The form of the graph.
        brought: What the user says.
        is_new: Whether a message begins a new conversation on this thread, with its own task.
    """
    text = brought.text
    whole: object = state.get("conversation")
    if whole:
        # In Python it may be the object itself.
        given = whole if isinstance(whole, Conversation) else _read(state, text)
        is_said = is_new or not given.task or given.task == text
        is_task = text is not None and is_said and not given.people
        return Given(given.model_copy(update={"task": text}) if is_task else given, {}, is_task)
    if form is None:
        return Given(None, {}, is_task=False)
    fields: Mapping[str, Any] = state
    known = {name: fields[name] for name in form.model_fields if fields.get(name) is not None}
    filled: dict[str, Any] = {}
    if text is not None:
        filled = {name: one for name, one in form.beside_message.items() if name not in known}
        if form.message_field and (is_new or form.message_field not in known):
            filled[form.message_field] = text
    return Given(validated(form, known | filled).conversation(), filled, is_task="task" in filled)


def _read(state: State, text: str | None) -> Conversation:
    """Read a whole conversation, whose task may be what the user says, or has said."""
    given: object = state["conversation"]
    if not isinstance(given, Mapping):
        what = type(given).__name__
        raise SpecError(f"conversation: give the fields of a Conversation, not a {what}")
    task = text or (state.get("spec") or {}).get("task")
    if task and not given.get("task"):
        told = restored({**given, "task": task})
        if not told.people:
            return told
    return restored({**given})


def begins_anew(brought: Brought, known: Conversation, state: State) -> bool:
    """Whether what the user says is another task for a conversation without a person."""
    if brought.text is None or known.people:
        return False
    return bool(state.get("outcome")) or brought.text != known.task


def emptied(state: State, brought: Brought) -> dict[str, Any]:
    """Give the writes that leave of a session what it has said, as no lines of the log.

    What was brought now comes behind it.
    """
    messages: list[AnyMessage] = []
    for message in state.get("messages") or ():
        if PLACE in message.additional_kwargs:
            messages += [take_back(str(message.id)), as_given(message)]
    messages += [take_back(str(message.id)) for message in brought.new]
    unspoken = [take_back(str(message.id)) for message in state.get("unspoken") or ()]
    nothing: dict[str, Any] = {"position": {}, "outcome": {}, "usage": {}}
    nothing |= {"interpreter": {}, "decisions": {}}
    return {**nothing, "messages": messages, "unspoken": [unspoken]}


def gone_on(state: State, conversation: Conversation, brought: Brought) -> dict[str, Any]:
    """Give what is written where a session goes on, or has ended.

    A person who is asked, or whose turn it is, says it then; in any other place it is said at once,
    as `graphs.sessions.say` does.
    """
    sayer = brought.speaker(conversation) if brought.text else None
    position = standing(Position.model_validate(state["position"]), log_of(state))
    text, ended = brought.text or "", bool(state.get("outcome"))
    if sayer is None or (ended and is_exit(text)):
        return {"messages": brought.kept()}
    if is_opening(conversation, position):
        if ended:
            raise SessionError("this session ended at its opening: start a new thread")
        return {"messages": brought.kept(sayer)}
    if not ended and _is_next(conversation, position, sayer):
        return {"messages": brought.kept(sayer)}
    message_id = str(brought.last[-1].id)
    written = spoken(state, conversation, position, sayer, text, message_id)
    said = written["messages"]
    kept = [one for one in brought.kept(sayer) if one.id != message_id]
    # What comes of calls that waited stands right behind them.
    moved = [take_back(message_id)] if len(said) > 1 else []
    return {**written, "messages": [*kept, *moved, *said]}


def _is_next(conversation: Conversation, position: Position, name: str) -> bool:
    """Whether a speaker's person is the next to say something."""
    turn = decide(conversation, position)
    if turn.node is Node.TOOL_EXECUTOR:
        asked = asking_of_calls(conversation, position, turn.speaker)
        return asked is not None and asked.speaker == name
    speaks = turn.node in (Node.USER_AGENT, Node.ASSISTANT_AGENT)
    return speaks and position.phase in BETWEEN_TURNS and turn.speaker == name


def both(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Give two updates as one: what the second writes to the log comes behind the first's."""
    names = {"messages", "unspoken"} & first.keys() & then.keys()
    return {**first, **then, **{name: [*first[name], *then[name]] for name in names}}
