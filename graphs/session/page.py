"""Reading a session for its HTML page. `graphs.show` makes the page."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Final, cast

from langchain_core.messages import BaseMessage

from ...nodes.models.model import Models
from ...nodes.turn.node_context import Resources
from ...nodes.turn.prompt import last_prompt
from ...tools.registry.registry import Registry
from ..build import build_graph
from ..common.errors import DuologueError
from ..conversation.conversation import Conversation
from ..conversation.judges import SeparateJudge
from ..conversation.usage import add_usage, read_usage
from ..log.state import State
from ..rules.position import TURN_ENDS, Phase, Position
from ..show.page import PageSession, PageVerdict, memory_page_of, page_of
from ..show.page_data import Spent
from ..store.open import Store
from .checkpoints import read_snapshot, read_states, reading_session
from .session_row import check_speaker, find_inner_session, known_session, read_session, title_of
from .stored_session import StoredSession, describe_later, read_verdicts

_LOGS: Final = 200
"""Number of steps, counted from the newest, that are searched for prompts."""


async def read_page(
    store: Store, session: str, speaker: str | None, verdict: PageVerdict | None = None
) -> str:
    """Return the HTML page of a session, or of one speaker's memory.

    Args:
        store: The store.
        session: The session's id.
        speaker: The speaker whose memory is shown. None for the whole session.
        verdict: The outcome of the simulation. None if the session is no simulation of a suite.
    """
    # One speaker's page shows nothing about the others.
    read = await read_for_page(store, session, speaker, past=speaker is None)
    read = replace(read, verdict=verdict)

    def render_page() -> str:
        # Imported here, because only this export needs Jinja.
        from ..show.render import render

        return render(page_of(read) if speaker is None else memory_page_of(read, speaker))

    return await asyncio.to_thread(render_page)


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
        return _make_page(inner)
    conversation = await known_session(store, session)
    if speaker is not None:
        check_speaker(session, conversation, speaker)
    graph = build_graph(checkpointer=store.checkpointer)
    page = _make_page(await read_session(session, conversation, graph))
    later = describe_later(page.log, await read_verdicts(store, session))
    if past:
        states = await read_states(graph, session, logs=_LOGS)
    with reading_session(graph, session):
        if not past:
            newest = await read_snapshot(graph, session)
            return replace(page, later=later, position=_position(cast("State", newest.values)))
        return replace(
            page,
            later=later,
            position=_position(states[-1] if states else State()),
            steps=[*_measure_steps(conversation, states)],
            prompts=await _read_prompts(states[-_LOGS:], conversation.names),
        )


def _make_page(result: StoredSession) -> PageSession:
    return PageSession(
        id=result.session_id,
        title=title_of(result.conversation),
        conversation=result.conversation,
        log=result.messages,
        task=result.specified_task,
        outcome=result.outcome,
        pending=result.pending,
    )


async def _read_prompts(
    states: Sequence[State], names: Sequence[str]
) -> dict[str, Sequence[BaseMessage]]:
    """Return the last prompt to each speaker's model, except those that need registered objects."""
    resources = Resources(Models(), Registry({}), allow_host=True)
    prompts: dict[str, Sequence[BaseMessage]] = {}
    for name in names:
        with suppress(DuologueError):
            prompt = await last_prompt(states, resources, name)
            if prompt is not None:
                prompts[name] = prompt
    return prompts


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
