"""Judging a stored session, without running it again."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from langchain_core.callbacks import AsyncCallbackManager
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import set_config_context

from ...nodes.judge.separate_judge import LogDecisions, judge_log, make_verdict
from ...nodes.models.adapters.composed import Chat
from ...nodes.models.adapters.families import adapter_of
from ...nodes.turn.node_context import Resources
from ..build import build_graph
from ..common.errors import SessionError, SpecError
from ..common.files import read_fields, read_file
from ..common.settings import load_settings
from ..common.validation import validate
from ..conversation.judges import SeparateJudge, Verdict
from ..store.errors import unknown_session
from ..store.open import SessionLease, Store
from .checkpoints import stored_conversation
from .options import Options, check_run
from .run import make_resources
from .session_row import read_session
from .stored_session import (
    LaterVerdict,
    StoredSession,
    hash_log,
    read_verdicts,
    verdict_at_end,
    verdicts_on,
    write_verdict,
)

_MOST_TRIES: Final = 2
"""Maximum number of requests for one verdict. The second one asks for a readable answer."""

Criteria: TypeAlias = SeparateJudge | Sequence[str]
"""A separate judge, or only its criteria."""


class Judged(NamedTuple):
    """A session that was judged."""

    session: StoredSession
    """The session with all its verdicts."""
    verdict: Verdict
    """The verdict about its last message."""


async def judge_session(
    store: Store,
    session: str,
    judge: SeparateJudge | None,
    resources: Resources,
    options: Options,
    *,
    model: str | None = None,
) -> Judged:
    """Have a stored session judged, unless the same judge has read the same messages before.

    Args:
        store: The store of the session.
        session: The session's id.
        judge: The judge. If None, the conversation's separate judge is used, and it is not asked if
            the log contains its verdict about the last message.
        resources: The models.
        options: The options of the run. Only its callbacks are used.
        model: The name of the model that judges. If None, the judge's model.

    Raises:
        SpecError: No judge is given, and the conversation has none.
        SessionError: The session does not exist, another run is using it, or nothing was said.
        ModelError: The model is not available or did not answer.
    """
    async with store.lock(session) as held:
        row = await store.get(session)
        if row is None:
            raise unknown_session(session, store.url)
        conversation = stored_conversation(row, store.url)
        graph = build_graph(checkpointer=store.checkpointer)
        found = await read_session(session, conversation, graph)
        known = await read_verdicts(store, session)
        found = replace(found, later_verdicts=known)
        return await judge_read(held, found, judge, resources, options, model=model)


async def judge_read(
    held: SessionLease,
    found: StoredSession,
    judge: SeparateJudge | None,
    resources: Resources,
    options: Options,
    *,
    model: str | None = None,
    batch: str | None = None,
) -> Judged:
    """Have a session judged that was read with its verdicts. See `judge_session`.

    Args:
        held: The lease on the session.
        found: The session.
        judge: As in `judge_session`, like the other arguments.
        resources: The models.
        options: The options of the run.
        model: The name of the model that judges.
        batch: The name of the batch that pays for the calls. None if there is no batch.
    """
    known = found.later_verdicts
    logged = None if judge or model else verdict_at_end(found.messages)
    own = found.conversation.judge
    asked = judge or (own if isinstance(own, SeparateJudge) else None)
    if asked is None:
        raise SpecError(
            f"criteria: the conversation of session {found.session_id!r} has no separate judge; "
            "pass the criteria"
        )
    if model is not None:
        asked = asked.model_copy(update={"model": model})
    if logged is not None:
        return Judged(found, logged)
    if not found.transcript:
        raise SessionError(
            f"Session {found.session_id!r} has no message yet to judge; resume it first."
        )
    alike = [one for one in verdicts_on(found.messages, known) if one.judge == asked]
    tries = 0
    while tries < _MOST_TRIES and not (alike and alike[-1].verdict.readable):
        answer = await _ask(found, asked, resources, options, is_second=bool(alike))
        alike.append(await _store(held, found, asked, answer, len(known) + 1, batch))
        known = *known, alike[-1]
        tries += 1
    return Judged(replace(found, later_verdicts=known), alike[-1].verdict)


async def judge_with(
    store: Store,
    session: str,
    criteria: Criteria | None,
    model: Chat | str | None,
    options: Options,
) -> Judged:
    """Have a stored session judged by the given criteria and model. See `Session.judge`.

    ``options`` are the models that the judge may name, and the callbacks.
    """
    judge = None if criteria is None else make_judge(criteria)
    if model is not None and not isinstance(model, str):
        # The verdict is stored with the model's name, and an object has none.
        label = adapter_of(None, model).label
        options, model = options | {"models": {label: model}}, label
    check_run(options)
    resources = make_resources(options, await asyncio.to_thread(load_settings))
    return await judge_session(store, session, judge, resources, options, model=model)


def make_judge(criteria: Criteria) -> SeparateJudge:
    """Return the judge with these criteria.

    Raises:
        SpecError: The criteria are not valid.
    """
    if isinstance(criteria, SeparateJudge):
        return criteria
    given = [criteria] if isinstance(criteria, str) else criteria
    return validate(SeparateJudge, {"criteria": given})


def read_judge(path: Path) -> SeparateJudge:
    """Read a judge from a file.

    Args:
        path: A ``.txt`` file with one criterion on each line, or a ``.toml`` or ``.json`` file with
            the fields of a `SeparateJudge`.

    Raises:
        SpecError: The file can't be read, or a field is not valid; the message names both.
    """
    if path.suffix.lower() == ".txt":
        lines: list[str] = read_file(path, str.splitlines)
        given: dict[str, Any] = {"criteria": [line.strip() for line in lines if line.strip()]}
    elif path.suffix.lower() in (".toml", ".json"):
        given = read_fields(path, "judge")
    else:
        raise SpecError(f"{path}: must be a .txt, .toml or .json file with criteria")
    return validate(SeparateJudge, given, f"{path}: ")


async def _ask(
    found: StoredSession,
    judge: SeparateJudge,
    resources: Resources,
    options: Options,
    *,
    is_second: bool,
) -> LogDecisions:
    asking = judge_log(
        resources,
        found.conversation,
        found.messages,
        found.specified_task,
        judge,
        is_second=is_second,
    )
    # In a run, LangGraph adds the thread's id to each call. Traces find the session by it.
    callbacks = AsyncCallbackManager.configure(
        inheritable_callbacks=[*(options.get("callbacks") or ())],
        inheritable_metadata={"thread_id": found.session_id},
    )
    config = RunnableConfig(callbacks=callbacks)
    with set_config_context(config) as context:
        return await asyncio.create_task(asking, context=context)


async def _store(
    held: SessionLease,
    found: StoredSession,
    judge: SeparateJudge,
    answer: LogDecisions,
    number: int,
    batch: str | None,
) -> LaterVerdict:
    spoke, _ = found.transcript[-1]
    verdict = LaterVerdict(
        judge=judge,
        usage=answer.usage,
        log=hash_log(found.messages, judge),
        answer=answer.text,
        verdict=make_verdict(spoke, answer.decisions, is_final=True),
        batch=batch,
        created_at=datetime.now(UTC),
    )
    await write_verdict(held, number, verdict)
    return verdict
