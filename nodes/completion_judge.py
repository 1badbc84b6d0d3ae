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
    moment = await NodeContext.of(state, resources)
    if (anew := await moment.anew()) is not None:
        return anew
    due, judge = moment.turn.due, moment.conversation.judge
    if due is Phase.CHECKED:
        # A step of its own: a predicate that fails must not cost what was said.
        return await moment.step(after_check(moment.position), [])
    if due is Phase.CHOSEN:
        return await choose(moment)
    if isinstance(judge, SeparateJudge):
        return await judge_criteria(moment, judge)
    return await judge_yourself(moment)
