"""The models of a round in which all speakers speak at once: they are called at the same time.

Each answer is recorded when it arrives, as the result of a task of the node. If the session is
interrupted, only the calls without a recorded answer are repeated. The answers wait in the log
until the turns of their speakers, which check them and add them to the conversation in order.
"""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any, Final

from langchain_core.messages import AnyMessage

from ...graphs.conversation.usage import add_models, dump_usage, read_usage
from ...graphs.log.memory import pending_answer
from ...graphs.log.messages import PLACE
from ...graphs.log.metadata import Stage
from ...graphs.rules.log_counter import with_usage
from ...graphs.rules.position import Phase
from ...graphs.rules.transitions import after_pause
from ...graphs.rules.turns import is_first_message_due
from ...graphs.speakers.replies import ModelReply, TextReply
from .log_writer import make_pending
from .node_context import NodeContext
from .reply import ask_for_reply
from .running_sessions import record_as_task

_record: Final = record_as_task("speaker_answer")


async def ask_all(context: NodeContext) -> dict[str, Any] | None:
    """Call the models of the current speaker and of the next ones in its round at the same time.

    Returns:
        The update with the answers, or None if no call can be made together with the current
        speaker's.
    """
    names = _speakers_to_ask(context)
    if len(names) == 1 or context.turn.speaker not in names:
        return None
    progress = context.resources.progress
    if progress is not None:
        progress.note_asking()
    begun = [_record(partial(_ask, context.begin_at_once(name), name)) for name in names]
    # All calls end before an error is raised, so that their answers are recorded.
    found: list[dict[str, Any]] = []
    for one in await asyncio.gather(*begun, return_exceptions=True):
        if isinstance(one, BaseException):
            raise one
        found.append(one)
    if progress is not None:
        progress.note_answer()
    usage, facts = context.usage, context.position.facts
    for name, answered in zip(names, found, strict=True):
        usage = add_models(usage, read_usage(answered))
        facts = with_usage(facts, usage.values(), facts, name)
    # The newest messages are the answers, which the next node reads.
    lines = [
        *(line for answered in found for line in answered["lines"][:-1]),
        *(answered["lines"][-1] for answered in found),
    ]
    position = context.position.model_copy(update={"facts": facts})
    after = after_pause(position, context.turn, Phase.REQUESTED)
    known = len(context.log)
    placed = [_at_place(line, known + place) for place, line in enumerate(lines)]
    return await replace(context, position=position).step(after, placed, usage)


def _speakers_to_ask(context: NodeContext) -> list[str]:
    """Return the speakers of the rest of the round whose turns begin with a call of a model.

    Other speakers, such as those with hooks, answer in their turns.
    """
    if context.turn.stage is not Stage.ROUNDS:
        return []
    order = context.conversation.order
    rest = order[order.index(context.turn.speaker) :]
    return [name for name in rest if _begins_with_call(context, name)]


def _begins_with_call(context: NodeContext, name: str) -> bool:
    conversation = context.conversation
    speaker = conversation.speaker(name)
    if speaker.human is not None or conversation.sums_up(speaker):
        return False
    if context.resources.registry.hooks_of(speaker):
        return False
    has_said = not is_first_message_due(conversation, context.position, name)
    replies = (
        reply
        for reply in speaker.replies
        if not (isinstance(reply, TextReply) and reply.once and has_said)
    )
    begins = isinstance(next(replies, None), ModelReply)
    return begins and pending_answer(conversation, context.log, name) is None


async def _ask(context: NodeContext, name: str) -> dict[str, Any]:
    """Ask a speaker's model. The result is recorded, so it contains only values of the log."""
    given = await ask_for_reply(context, context.conversation.speaker(name), [])
    answer = make_pending(len(context.log), name, given.message)
    return {"lines": [*given.new, answer], "usage": dump_usage(given.usage)}


def _at_place(line: AnyMessage, number: int) -> AnyMessage:
    extra = line.additional_kwargs | {PLACE: number}
    return line.model_copy(update={"additional_kwargs": extra})
