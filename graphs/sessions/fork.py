"""Forks: a new session that goes on from any message of another one, by other rules if wanted.

The new state is the one after the step that wrote the message, by the new rules
(`graphs.sessions.fork_state`); the steps before it are copied, so that a fork can itself be forked
from any message. The session it comes from is only read.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AnyMessage, RemoveMessage

from ..build import build_graph
from ..common.errors import SpecError
from ..log.channels import log_of, update_of
from ..log.reducer import append, take_back
from ..rules.outcome import Outcome
from ..spec.changes.laid_over import fields_in
from ..spec.conversation import Conversation
from ..spec.sandbox import Kept, new_key
from ..store.address import Store
from ..store.rows import check_session_id
from .checkpoints import MessageLike, StoredStep, copy_steps, find_step, write_state
from .fork_state import forked
from .session import known_session, made_up_id, new_session

_FIXED: Final = ("version", "opening")
_FIXED_OF_SPEAKERS: Final = ("name", "private_opening", "memory")


async def fork_session(
    store: Store,
    session: str,
    at: MessageLike | None,
    into: str | None,
    changes: Mapping[str, object],
) -> str:
    """Fork a session at a message, by other rules, and return the new session's id."""
    new = made_up_id(session, "fork") if into is None else check_session_id(into)
    conversation = changed(await known_session(store, session), changes)
    step = await find_step(build_graph(checkpointer=store.checkpointer), session, at)
    await _write(store, new, conversation, step)
    return new


def changed(conversation: Conversation, changes: Mapping[str, object]) -> Conversation:
    """Give a conversation by other rules, between the same speakers."""
    for field in _FIXED:
        if field in changes:
            raise SpecError(f"{field}: can't change in a fork")
    of_speakers = fields_in(changes.get("speakers", {}), "speakers", "from names to what changes")
    for name, fields in of_speakers.items():
        for field in _FIXED_OF_SPEAKERS:
            if isinstance(fields, Mapping) and field in fields:
                raise SpecError(f"speakers.{name}.{field}: can't change in a fork")
    given: dict[str, Any] = {**changes}
    found = conversation.replace(**given)
    for name, own in found.prompts.items():
        if own.text is None:
            raise SpecError(f"prompts.{name}: give the text itself: a fork has no registered texts")
    return found


async def _write(store: Store, session: str, conversation: Conversation, step: StoredStep) -> None:
    """Store a new session; until the row is there, which goes last, nobody knows of it."""
    # What was removed later stays removed, whatever message it goes on from.
    gone = [RemoveMessage(id=one) for one in step.removed]
    log = append(log_of(step.state), gone)
    state = forked({**step.state, "messages": log, "unspoken": []}, conversation)
    if state.get("interpreter"):
        # The other session's may be at work still.
        kept = Kept.model_validate(state["interpreter"])
        state["interpreter"] = kept.under(new_key())
    ended = state.get("outcome")
    reason = Outcome.model_validate(ended).reason.value if ended else None
    async with new_session(store, session, conversation, reason) as held:
        graph = build_graph(checkpointer=held.checkpointer)
        await copy_steps(graph, step.before, session)
        # An end that stands in the steps before it is not the fork's.
        if "outcome" in step.state:
            state = {"outcome": {}, **state}
        log = state.pop("messages")
        await write_state(graph, session, {**state, **update_of(_written(log, step.known), log)})


def _written(log: Sequence[AnyMessage], known: Sequence[AnyMessage]) -> list[AnyMessage]:
    """What makes a log of the one that the copied steps hold, whose lines may have moved."""
    both = enumerate(zip(known, log, strict=False))
    first = next((place for place, (old, new) in both if old != new), min(len(known), len(log)))
    stay = {message.id for message in log}
    gone = [take_back(str(message.id)) for message in known if message.id not in stay]
    return [*gone, *log[first:]]
