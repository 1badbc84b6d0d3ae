"""The prompts of the task specification, in which a model makes a task more specific."""

from collections.abc import Sequence

from .texts import PROMPTS, RenderPrompt, fill_template as fill_template

SPECIFY_TASK = PROMPTS["specify_task"]

SPECIFY_TASK_SMALL_MODEL = PROMPTS["specify_task_small_model"]
"""A shorter version of the request, for a very small model."""

TASK_HELPER = PROMPTS["task_helper"]

SHORTEN_TASK = PROMPTS["shorten_task"]

REWRITE_TASK = PROMPTS["rewrite_task"]

_A_PAIR = 2


def build_task_request(
    task: str, names: Sequence[str], limit: int, render_prompt: RenderPrompt
) -> str:
    """Return the request for a more specific task."""
    roles = (
        f"{render_prompt(TASK_HELPER, asker=names[0], helper=names[1])} "
        if len(names) == _A_PAIR
        else ""
    )
    return render_prompt(SPECIFY_TASK, task=task, limit=limit, roles=roles)


def build_small_model_task_request(task: str, limit: int, render_prompt: RenderPrompt) -> str:
    """Return the shorter version of the request, for a very small model."""
    return render_prompt(SPECIFY_TASK_SMALL_MODEL, task=task, limit=limit)


def join_task_requests(limit: int, render_prompt: RenderPrompt) -> str:
    """Return all requests for a more specific task as one text, without the task and names."""
    asked = (
        render_prompt(prompt, task="", roles="", limit=limit)
        for prompt in (SPECIFY_TASK, SPECIFY_TASK_SMALL_MODEL)
    )
    return "\n".join((*asked, render_prompt(REWRITE_TASK, limit=limit)))
