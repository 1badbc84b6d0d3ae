"""From where a session is to its end or a question, and on from its end if more is said."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import NamedTuple

from ...nodes.turn.context import Resources
from ...nodes.turn.running import StepProgress
from ...tools.sandbox import sandbox
from ..build import Graph, compile_graph
from ..common.errors import SessionError
from ..conversation.conversation import Conversation
from ..conversation.questions import is_exit
from ..events import ConversationEnded, Event, QuestionAsked
from ..store.open import SessionLease
from .answers import BoundAnswer
from .checkpoints import config_of
from .events import events_of
from .options import Options
from .records import read_session
from .steps import RunOptions, Steps
from .stored_session import StoredSession
from .take_over import say_in


class Begun(NamedTuple):
    """What a run begins with."""

    resources: Resources
    conversation: Conversation
    ended: StoredSession | None  # how the session has ended already
    person: str  # who says the message of its options, if there is one
    waits: bool  # whether it waits for a person
    is_new: bool  # whether nothing is stored but its row


async def play(
    held: SessionLease, begun: Begun, reply: BoundAnswer | None, options: Options
) -> AsyncGenerator[Event | StoredSession, None]:
    """Run a session to its end, or to a question; then on from its end, if more is to be said."""
    resources, conversation, result, person, waits, is_new = begun
    progress = StepProgress()
    # The engine has checked the conversation, and that the session has no other one.
    running_in = replace(resources, progress=progress)
    graph = compile_graph(running_in, held.checkpointer, checks_inputs=False)
    runs_code = bool(resources.registry.languages_of(conversation))
    running = RunOptions(
        list(options.get("callbacks") or ()),
        options.get("durability") or "sync",
        progress,
    )
    answer, message = options.get("answer"), options.get("message")
    while result is None or (result.outcome is not None and says_more(message)):
        if result is not None and message is not None:
            known = {one.id for one in result.messages}
            result, message = await say_in(held, conversation, person, message), None
            new = [one for one in result.messages if one.id not in known]
            for event in events_of(conversation, new):
                yield event
            if result.outcome is not None:
                break
        steps = Steps(
            graph, held.session, conversation, running, answer, reply, message, is_new=is_new
        )
        async with aclosing(_noted(held, steps, waits=waits)) as events:
            async for event in events:
                yield event
        message, reply, waits, is_new = steps.message, None, False, False
        result = await _finished(held, conversation, graph, runs_code=runs_code)
    if result.outcome is None and message is not None:
        # A result would look as if it had been said.
        raise SessionError(
            f"Session {held.session!r} waits for another answer, so the message was not said: "
            "answer what is asked first, or stop the session"
        )
    if result.outcome is not None:
        yield ConversationEnded.of(held.session, result.outcome)
    yield result


def says_more(message: str | None) -> bool:
    """Whether a session that has ended goes on with a message: who leaves it says nothing more."""
    return message is not None and not is_exit(message)


async def _noted(held: SessionLease, steps: Steps, *, waits: bool) -> AsyncGenerator[Event, None]:
    """Run a session, and keep its status in the sessions table: waiting for a person or not."""

    async def note(now: bool) -> None:
        nonlocal waits
        if now is not waits:
            await (held.wait() if now else held.reopen())
            waits = now

    try:
        async with aclosing(steps.run()) as events:
            async for event in events:
                await note(isinstance(event, QuestionAsked))
                yield event
    except Exception:
        # What has failed may have come after the answer.
        await note(bool(await steps.waiting()))
        raise


async def _finished(
    held: SessionLease, conversation: Conversation, graph: Graph, *, runs_code: bool
) -> StoredSession:
    """Read a session after its run, and note its outcome in the sessions table."""
    session = held.session
    result = await read_session(session, conversation, graph)
    if result.outcome is not None:
        await held.finish(result.outcome.reason.value)
        if runs_code:
            await _close_interpreter(graph, session)
    return result


async def _close_interpreter(graph: Graph, session: str) -> None:
    """End the interpreter of a session that has ended, with its files."""
    state = (await graph.aget_state(config_of(session))).values
    if state.get("interpreter"):
        await sandbox.close(state["interpreter"]["key"])
