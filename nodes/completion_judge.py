"""The node for decisions after a turn: predicates, task completion and the next speaker."""

from typing import Any

from ..graphs.conversation.judges import SeparateJudge
from ..graphs.log.state import State
from ..graphs.rules.position import Phase
from ..graphs.rules.transitions import after_check
from .judge.moderator import choose
from .judge.self_judge import judge_yourself
from .judge.separate_judge import judge_criteria
from .turn.node_context import NodeContext, Resources


async def completion_judge(state: State, resources: Resources) -> dict[str, Any]:
    """Evaluate predicates, judge whether a task is complete, or choose the next speaker."""
    context = await NodeContext.of(state, resources)
    if (anew := await context.anew()) is not None:
        return anew
    due, judge = context.turn.due, context.conversation.judge
    if due is Phase.CHECKED:
        # In a separate step, so that the speaker's message is stored even if a predicate raises an
        # error.
        return await context.step(after_check(context.position), [])
    if due is Phase.CHOSEN:
        return await choose(context)
    if isinstance(judge, SeparateJudge):
        return await judge_criteria(context, judge)
    return await judge_yourself(context)
