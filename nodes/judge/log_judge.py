"""Asking a separate judge about a stored session, without running the session."""

from collections.abc import Sequence
from typing import NamedTuple

from langchain_core.messages import AnyMessage

from ...graphs.conversation.conversation import Conversation
from ...graphs.conversation.judges import SeparateJudge
from ...graphs.conversation.usage import Usage
from ...graphs.rules.position import Phase, Position
from ..models.gate import StepGate
from ..turn.node_context import NodeContext, Resources, notify
from ..turn.running_sessions import RunningSession
from .separate_judge import Decisions, ask_criteria


class LogDecisions(NamedTuple):
    """The answer of a judge who has read a log."""

    decisions: Decisions | None
    """The decision on each criterion. None if the answer can't be read."""
    text: str
    """The text of the answer."""
    usage: dict[str, Usage]
    """The usage of the call, by model."""


async def judge_log(
    resources: Resources,
    conversation: Conversation,
    log: Sequence[AnyMessage],
    task: str | None,
    judge: SeparateJudge,
    *,
    is_second: bool,
) -> LogDecisions:
    """Ask a judge once about a whole log.

    Args:
        resources: The models.
        conversation: The spec of the session.
        log: The log of the session.
        task: The task that the speakers received.
        judge: The judge.
        is_second: Whether an earlier answer could not be read.
    """
    whole, name = resources.models.gate, judge.model or conversation.model
    gate = None if whole is None else StepGate(whole)
    model = await resources.models.get(name, notify, gate)
    if gate is not None:
        model.check_price(conversation)
    position = Position(phase=Phase.UNREAD if is_second else Phase.SPOKEN)
    running = RunningSession(conversation)
    context = NodeContext(resources, running, position, [*log], {}, task)
    found = await ask_criteria(context, judge, model)
    return LogDecisions(found.found, str(found.answer.text), found.usage)
