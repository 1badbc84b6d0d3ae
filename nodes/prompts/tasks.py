"""How a model is asked to make a task more specific."""

from collections.abc import Sequence

from .template import Worded, filled as filled
from .texts import PROMPTS

SPECIFY_TASK = PROMPTS["specify_task"]

SPECIFY_TASK_SMALL = PROMPTS["specify_task_small"]
"""The same in the few words that a very small model can follow."""

HELPER = PROMPTS["helper"]

TASK_TOO_LONG = PROMPTS["task_too_long"]

TASK_NOT_REWRITTEN = PROMPTS["task_not_rewritten"]

_A_PAIR = 2


def task_request(
    task: str, names: Sequence[str], limit: int, worded: Worded, *, small: bool
) -> str:
    """Ask for a more specific task."""
    if small:
        return worded(SPECIFY_TASK_SMALL, task=task, limit=limit)
    who = f"{worded(HELPER, asker=names[0], helper=names[1])} " if len(names) == _A_PAIR else ""
    return worded(SPECIFY_TASK, task=task, limit=limit, who=who)


def task_requests(limit: int, worded: Worded) -> str:
    """Return all that a request for a more specific task says, without the task and the names."""
    asked = (
        worded(one, task="", who="", limit=limit) for one in (SPECIFY_TASK, SPECIFY_TASK_SMALL)
    )
    return "\n".join((*asked, worded(TASK_NOT_REWRITTEN, limit=limit)))
