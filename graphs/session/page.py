"""Reading a session for its HTML page. `graphs.show` makes the page."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, cast

from langchain_core.messages import BaseMessage

from ...nodes.models.model import Models
from ...nodes.turn.node_context import Resources
from ...nodes.turn.prompt import last_prompt
from ...tools.registry.registry import Registry
from ..build import Graph, build_graph
from ..common.errors import DuologueError
from ..conversation.conversation import Conversation
from ..conversation.judges import SeparateJudge
from ..conversation.usage import add_usage, read_usage
from ..log.state import State
from ..rules.position import TURN_ENDS, Phase, Position
from ..show.page import PageSession, memory_page_of, page_of
from ..show.page_data import Spent
from ..store.open import Store
from .checkpoints import read_snapshot, read_states, reading_session
from .session_row import check_speaker, find_inner_session, known_session, read_session, title_of
from .stored_session import StoredSession, describe_later, read_verdicts

_LOGS: Final = 200
"""Number of steps, counted from the newest, that are searched for prompts."""


async def read_page(store: Store, session: str, speaker: str | None) -> str:
    """Return the HTML page of a session, or of one speaker's memory."""
    # One speaker's page shows nothing about the others.
    read = await read_for_page(store, session, speaker, past=speaker is None)
    return await asyncio.to_thread(_render_page, read, speaker)


async def read_for_page(
    store: Store, session: str, speaker: str | None = None, *, past: bool = True
) -> PageSession:
    """Read the data of a session's page. Without `past`, read only the newest state.

    The page of an inner session shows neither prompts nor the usage of its steps.
    """
    inner = await find_inner_session(store, session)
    if inner is not None:
        if speaker is not None:
            check_speaker(session, inner.conversation, speaker)
        return _page_session(inner, _Past())
    conversation = await known_session(store, session)
    if speaker is not None:
        check_speaker(session, conversation, speaker)
    graph = build_graph(checkpointer=store.checkpointer)
    result = await read_session(session, conversation, graph)
    told = await (_read_past if past else _read_now)(graph, result)
    later = describe_later(result.messages, await read_verdicts(store, session))
    return replace(_page_session(result, told), later=later)


def _page_session(result: StoredSession, past: "_Past") -> PageSession:
    return PageSession(
        id=result.session_id,
        title=title_of(result.conversation),
        conversation=result.conversation,
        log=result.messages,
        task=result.specified_task,
        outcome=result.outcome,
        pending=result.pending,
        position=past.position,
        steps=past.steps,
        prompts=past.prompts,
    )


@dataclass(frozen=True)
class _Past:
    """Data that must be read from all steps of a session."""

    position: Position = field(default_factory=Position)
    steps: Sequence[Spent] = ()
    prompts: Mapping[str, Sequence[BaseMessage]] = field(default_factory=dict)


async def _read_now(graph: Graph, result: StoredSession) -> _Past:
    with reading_session(graph, result.session_id):
        state = await read_snapshot(graph, result.session_id)
        return _Past(_position(cast("State", state.values)))


async def _read_past(graph: Graph, result: StoredSession) -> _Past:
    states = await read_states(graph, result.session_id, logs=_LOGS)
    with reading_session(graph, result.session_id):
        prompts = {
            name: prompt
            for name in result.conversation.names
            if (prompt := await _prompt(states[-_LOGS:], name)) is not None
        }
        newest = states[-1] if states else State()
        return _Past(_position(newest), [*_measure_steps(result.conversation, states)], prompts)


async def _prompt(states: Sequence[State], name: str) -> Sequence[BaseMessage] | None:
    """Return the last prompt to a speaker's model, or None if it needs registered objects."""
    resources = Resources(Models(), Registry({}), allow_host=True)
    with suppress(DuologueError):
        return await last_prompt(states, resources, name)
    return None


def _render_page(session: PageSession, speaker: str | None) -> str:
    # Imported here, because only this export needs Jinja.
    from ..show.render import render

    return render(page_of(session) if speaker is None else memory_page_of(session, speaker))


def _position(state: State) -> Position:
    return Position.model_validate(state.get("position") or {})


_CHOICE: Final = {Phase.UNCHOSEN, Phase.CHOSEN}
_BESIDE: Final = {Phase.CHECKED, Phase.ASKED, Phase.UNREAD, Phase.JUDGED, *_CHOICE}
"""Phases between turns."""


def _measure_steps(conversation: Conversation, states: Sequence[State]) -> Iterator[Spent]:
    """Yield the usage of each step: the difference between the usage after it and before it."""
    for before, after in pairwise([State(), *states]):
        was, now = _position(before), _position(after)
        used, spent = add_usage(read_usage(before).values()), add_usage(read_usage(after).values())
        if was == now or (now.phase is Phase.STARTED and used == spent):
            continue
        ended = not before.get("position") or was.phase in (*TURN_ENDS, Phase.STARTED)
        yield Spent(
            who=_who(conversation, now),
            is_new_turn=ended and now.phase not in _BESIDE,
            calls=max(0, spent.calls - used.calls),
            input_tokens=max(0, spent.input_tokens - used.input_tokens),
            output_tokens=max(0, spent.output_tokens - used.output_tokens),
            seconds=max(0.0, now.facts.seconds - was.facts.seconds),
            cost=None if spent.cost is None else max(0.0, spent.cost - (used.cost or 0.0)),
        )


def _who(conversation: Conversation, position: Position) -> str:
    """Return the label of a step: the speaker, or its purpose."""
    is_verdict = position.phase in (Phase.ASKED, Phase.UNREAD, Phase.JUDGED)
    if is_verdict and isinstance(conversation.judge, SeparateJudge):
        return "The judge"
    if position.phase in _CHOICE:
        return "Who speaks next"
    if position.phase is Phase.CHECKED:
        return "Predicates"
    return position.speaker or "The task"
