"""The node that decides what no speaker does: whether a task is complete, and who speaks next."""

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
    """Ask predicates, or whether a task is complete, or who is next."""
    context = await NodeContext.of(state, resources)
    if (anew := await context.anew()) is not None:
        return anew
    due, judge = context.turn.due, context.conversation.judge
    if due is Phase.CHECKED:
        # A step of its own: a predicate that fails must not cost what was said.
        return await context.step(after_check(context.position), [])
    if due is Phase.CHOSEN:
        return await choose(context)
    if isinstance(judge, SeparateJudge):
        return await judge_criteria(context, judge)
    return await judge_yourself(context)
