"""How a model is asked to make a task more specific."""

from collections.abc import Sequence

from .template import filled as filled

SPECIFY_TASK = """Task: {task}

{who}Make this task more specific, with imagination: say in one or two sentences what exactly is \
to be made, for whom and with what. Use at most {limit} words. Reply with the rewritten task and \
nothing else."""

HELPER = "{helper} will help {asker} with it. "

TASK_TOO_LONG = "That has {count} words. Say it in at most {limit} words, and nothing else."

_A_PAIR = 2


def task_request(task: str, names: Sequence[str], limit: int) -> str:
    """Ask for a more specific task."""
    who = filled(HELPER, asker=names[0], helper=names[1]) if len(names) == _A_PAIR else ""
    return filled(SPECIFY_TASK, task=task, limit=limit, who=who)
