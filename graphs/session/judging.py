"""Judging a stored session, without running it again."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import set_config_context

from ...nodes.judge.log_judge import LogFindings, judge_log
from ...nodes.judge.separate_judge import make_verdict
from ...nodes.turn.node_context import Resources
from ..build import build_graph
from ..common.errors import SessionError, SpecError
from ..conversation.conversation import Conversation
from ..conversation.judges import SeparateJudge
from ..store.errors import unknown_session
from ..store.open import SessionLease, Store
from .checkpoints import stored_conversation
from .later_verdicts import LaterVerdict, hash_log, is_judged_to_its_end, read_verdicts, verdicts_on
from .options import Options
from .session_row import read_session
from .stored_session import StoredSession

_MOST_TRIES: Final = 2
"""Maximum number of requests for one verdict. The second one asks for a readable answer."""


async def judge_session(
    store: Store,
    session: str,
    judge: SeparateJudge | None,
    resources: Resources,
    options: Options,
    *,
    batch: str | None = None,
) -> StoredSession:
    """Have a stored session judged, unless the judge has read the same messages before.

    Args:
        store: The store of the session.
        session: The session's id.
        judge: The judge. If None, the conversation's separate judge, which is not asked if its
            verdict about the last message is in the log.
        resources: The models.
        options: The options of the run: its callbacks.
        batch: The name of the batch that pays for the calls.

    Returns:
        The session with its verdicts.

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
        own = conversation.judge
        if (
            judge is None
            and isinstance(own, SeparateJudge)
            and is_judged_to_its_end(found.messages)
        ):
            return replace(found, later_verdicts=known)
        judge = judge or _separate_judge(session, conversation)
        if not found.transcript:
            raise SessionError(
                f"Session {session!r} has no message yet: there is nothing to judge."
            )
        given = [one for one in verdicts_on(found.messages, known) if one.judge == judge]
        tries = 0
        while tries < _MOST_TRIES and not (given and given[-1].verdict.readable):
            answer = await _ask(found, judge, resources, options, is_second=bool(given))
            given.append(await _store(held, found, judge, answer, len(known) + 1, batch))
            known = *known, given[-1]
            tries += 1
        return replace(found, later_verdicts=known)


def _separate_judge(session: str, conversation: Conversation) -> SeparateJudge:
    if not isinstance(conversation.judge, SeparateJudge):
        raise SpecError(
            f"criteria: the conversation of session {session!r} has no separate judge; "
            "say by which criteria it is judged"
        )
    return conversation.judge


async def _ask(
    found: StoredSession,
    judge: SeparateJudge,
    resources: Resources,
    options: Options,
    *,
    is_second: bool,
) -> LogFindings:
    asking = judge_log(
        resources,
        found.conversation,
        found.messages,
        found.specified_task,
        judge,
        is_second=is_second,
    )
    config = RunnableConfig(callbacks=[*(options.get("callbacks") or ())])
    with set_config_context(config) as context:
        return await asyncio.create_task(asking, context=context)


async def _store(
    held: SessionLease,
    found: StoredSession,
    judge: SeparateJudge,
    answer: LogFindings,
    number: int,
    batch: str | None,
) -> LaterVerdict:
    spoke, _ = found.transcript[-1]
    verdict = LaterVerdict(
        judge=judge,
        usage=answer.usage,
        log=hash_log(found.messages),
        answer=answer.text,
        verdict=make_verdict(spoke, answer.findings, is_final=True),
        batch=batch,
        created_at=datetime.now(UTC),
    )
    await held.put_verdict(number, verdict.model_dump_json())
    return verdict
