"""How a model is asked to make a task more specific."""

from collections.abc import Sequence

from .template import Worded, filled as filled
from .texts import PROMPTS

SPECIFY_TASK = PROMPTS["specify_task"]

HELPER = PROMPTS["helper"]

TASK_TOO_LONG = PROMPTS["task_too_long"]

_A_PAIR = 2


def task_request(task: str, names: Sequence[str], limit: int, worded: Worded) -> str:
    """Ask for a more specific task."""
    who = f"{worded(HELPER, asker=names[0], helper=names[1])} " if len(names) == _A_PAIR else ""
    return worded(SPECIFY_TASK, task=task, limit=limit, who=who)
