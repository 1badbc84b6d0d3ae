"""Forks: a new session that goes on from any message of another one, by other rules if wanted.

The new state is the one after the step that wrote the message; the steps before it are copied, so
that a fork can itself be forked from any message. The session it comes from is only read.
"""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import AnyMessage

from duologue.graphs.background import run
from duologue.graphs.build import Graph, build_graph
from duologue.graphs.end_chat import Event, Node, Position, Stage, judged
from duologue.graphs.errors import SpecError
from duologue.graphs.history import Step, config_of, copy_steps, find_step
from duologue.graphs.log import Kind, Line, message_id, said
from duologue.graphs.migrations import restored
from duologue.graphs.outcome import Outcome
from duologue.graphs.sessions import known_store, title_of
from duologue.graphs.spec import Conversation, Speaker, listing
from duologue.graphs.state import State
from duologue.graphs.store import Store, check_session_id, taken_session, unknown_session
from duologue.graphs.validation import did_you_mean, validated
from duologue.nodes import prompts
from duologue.nodes.agents import first_lines
from duologue.nodes.resources import Moment

_FIXED: Final = ("version", "opening")
_LONGEST: Final = 128  # the characters of a session's id
_PENDING: Final = {Event.CALLED: 1, Event.REJECTED: 1, Event.ASKED: 2}
"""After these events the next node reads so many of the newest lines by their place."""


def fork(
    session: str,
    *,
    at: str | None = None,
    into: str | None = None,
    store: str | Path | None = None,
    **changes: object,
) -> str:
    """Make a new session that goes on from a message of another one.

    The other session, finished or not, running or not, stays as it is. The new one is in the same
    store, and `resume` goes on with it; where the conversation is over by its rules, it is finished
    from the start.

    Args:
        session: The id of the session to go on from.
        at: The id of the last message to keep, such as ``m0007``; what was written in one step with
            it is kept, too. None: the newest message.
        into: The new session's id. None: made from the other's.
        store: Where sessions are kept. None: the setting, else the user's data folder.
        **changes: Fields of the conversation that are other from here on; what is nested is given
            as dicts of what changes, speakers by their names, as in
            ``end_chat={"max_iterations": 9}`` or ``speakers={"Ann": {"role_prompt": "…"}}``. Who
            speaks, in which order, and the opening can't change. A new task is not rewritten.

    Returns:
        The new session's id.

    Raises:
        SpecError: A change is not valid; names the field.
        SessionError: There is no such session or message, or the new id is odd or taken.
        StoreError: The store can't be opened, read or written.

    Example:
        >>> from duologue.graphs import converse, fork, resume, role_play
        >>> from duologue.nodes.scripted import ScriptedChatModel
        >>> garden = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
        >>> model = ScriptedChatModel(script=["<CAMEL_TASK_DONE>"])
        >>> result = converse(garden, session="one", model=model, store="memory:fork-docs")
        >>> fork("one", into="two", store="memory:fork-docs")
        'two'
        >>> resume("two", store="memory:fork-docs").outcome == result.outcome
        True
    """
    return run(afork(session, at=at, into=into, store=store, **changes))


async def afork(
    session: str,
    *,
    at: str | None = None,
    into: str | None = None,
    store: str | Path | None = None,
    **changes: object,
) -> str:
    """Make a new session that goes on from a message of another one; `fork` says how."""
    check_session_id(session)
    new = _new_id(session) if into is None else check_session_id(into)
    async with known_store(store) as opened:
        row = await opened.get(session)
        if row is None:
            raise unknown_session(session, opened.url)
        spec = restored(json.loads(row.spec), f"session {session!r}: ")
        conversation = changed(spec, changes)
        graph = build_graph(checkpointer=opened.checkpointer)
        step = await find_step(graph, session, at)
        await _write(opened, graph, new, conversation, step)
    return new


def changed(conversation: Conversation, changes: Mapping[str, object]) -> Conversation:
    """Give a conversation by other rules, between the same speakers.

    Args:
        conversation: The spec.
        changes: What is other, as `fork` takes it.

    Returns:
        The new spec.

    Raises:
        SpecError: A change is not valid, or is one that no fork can make; names the field.
    """
    for field in _FIXED:
        if field in changes:
            raise SpecError(f"{field}: can't change in a fork")
    data = conversation.stored()
    speakers = _changed_speakers(conversation, data["speakers"], changes.get("speakers", {}))
    return restored(_merged(data, changes) | {"speakers": speakers})


def _changed_speakers(
    conversation: Conversation, speakers: list[dict[str, Any]], changes: object
) -> list[dict[str, Any]]:
    names = conversation.names
    result = list(speakers)
    for name, fields in _fields(changes, "speakers", "from names to what changes").items():
        if name not in names:
            hint = did_you_mean(name, names) or f"; there are {listing(names)}"
            raise SpecError(f"speakers: nobody is called {name!r}{hint}")
        where = f"speakers.{name}"
        given = _fields(fields, where, "of its fields")
        if "name" in given:
            raise SpecError(f"{where}.name: can't change in a fork")
        place = names.index(name)
        result[place] = _merged(result[place], given)
        # Read alone first, so that an error names the speaker and not its number.
        validated(Speaker, result[place], f"{where}.")
    return result


def _fields(given: object, field: str, what: str) -> Mapping[str, object]:
    if not isinstance(given, Mapping):
        raise SpecError(f"{field}: must be a dict {what}, not {given!r}")
    return given


def _merged(data: Mapping[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """Put changes into data; a dict changes only the fields it names."""
    merged = dict(data)
    for field, value in changes.items():
        before = data.get(field) or {}
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            merged[field] = _merged(before, value)
        else:
            merged[field] = value
    return merged


def carried(old: Conversation, new: Conversation, position: Position) -> Position:
    """Give the position as the new rules would have it.

    With another end-chat mode, last words are promised anew: by the completion that has just been
    found, or not at all.

    Args:
        old: The spec it was reached by.
        new: The spec that the conversation goes on by.
        position: Where it is.

    Returns:
        The position to go on from.
    """
    if new.end_chat.mode is old.end_chat.mode:
        return position
    before = position.model_copy(update={"completed": position.completed[:-1], "owed": ()})
    just_completed = (
        position.event is Event.JUDGED
        and position.stage is Stage.ROUNDS
        and position.completed[-1:] == (position.speaker,)
    )
    if just_completed:
        return judged(new, before, complete=True)
    return position.model_copy(update={"owed": ()})


def _forked(found: State, new: Conversation) -> State:
    """Give the state that a new session goes on from."""
    # Not the listed one: a message from before a fork was written by the rules of its time.
    old = restored(found["spec"])
    log = list(found["messages"])
    state: State = {
        "conversation": new.stored(),
        "spec": new.stored(),
        "specified_task": found.get("specified_task", ""),
        "messages": log,
        "usage": found.get("usage", {}),
    }
    if new.task != old.task:
        state["specified_task"] = new.task or ""
    if "position" in found:
        position = carried(old, new, Position.model_validate(found["position"]))
        state["messages"] = _with_new_tasks(old, new, position, log)
    elif new.task != old.task or new.task_specification is None:
        # It was being rewritten; now it stands as given.
        state["specified_task"] = new.task or ""
        position = Position()
        state["messages"] = [*log, *_numbered(first_lines(new), len(log))]
    else:
        return state
    state["position"] = position.model_dump(mode="json")
    ended = Moment.of(state).step(position, []).get("outcome")
    if ended is not None:
        state["outcome"] = ended
    return state


def _with_new_tasks(
    old: Conversation, new: Conversation, position: Position, log: list[AnyMessage]
) -> list[AnyMessage]:
    """Tell speakers of their new tasks, where those stand in the log and not in system prompts."""
    told = [
        said(
            0,
            prompts.filled(prompts.NEW_TASK, task=speaker.task),
            Line(kind=Kind.INSTRUCTION, audience=(speaker.name,)),
        )
        for before, speaker in zip(old.speakers, new.speakers, strict=True)
        if new.opening.answers and speaker.task != before.task
    ]
    place = len(log) - _PENDING.get(position.event, 0)
    return [*log[:place], *_numbered([*told, *log[place:]], place)]


def _numbered(lines: list[AnyMessage], first: int) -> list[AnyMessage]:
    return [
        message.model_copy(update={"id": message_id(number)})
        for number, message in enumerate(lines, start=first)
    ]


async def _write(
    store: Store, graph: Graph, session: str, conversation: Conversation, step: Step
) -> None:
    """Store a new session; until the row is there, which goes last, nobody knows of it."""
    state = _forked(step.state, conversation)
    # Behind any speaker's node the rules say what comes next, as they did in the other session.
    node = Node.USER_AGENT if "position" in state else Node.TASK_SPECIFICATION
    async with store.lock(session):
        if await store.get(session) is not None:
            raise taken_session(session, store.url)
        # A fork that was killed half-way leaves a state that no row knows.
        await store.checkpointer.adelete_thread(session)
        await copy_steps(graph, step.before, session)
        new = {**state, "messages": state["messages"][step.known :]}
        await graph.aupdate_state(config_of(session), new, as_node=node.value)
        spec = json.dumps(conversation.stored(), ensure_ascii=False)
        await store.add(session, title=title_of(conversation), spec=spec)
        if "outcome" in state:
            reason = Outcome.model_validate(state["outcome"]).reason
            await store.finish(session, reason.value)


def _new_id(session: str) -> str:
    ending = f"-fork-{secrets.token_hex(3)}"
    return session[: _LONGEST - len(ending)] + ending
