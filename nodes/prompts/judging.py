"""The prompts for judging and for choosing who speaks next."""

from collections.abc import Sequence

from ...graphs.speakers.speaker import Speaker
from .template import RenderPrompt
from .texts import PROMPTS

LIST_OBJECTIVES_LEFT = PROMPTS["list_objectives_left"]
IS_TASK_COMPLETE = PROMPTS["is_task_complete"]
JUDGE_OWN_TASK = PROMPTS["judge_own_task"]
RETRY_FORMAT = PROMPTS["retry_format"]

UNREADABLE = "This is not a readable verdict."

NO_OBJECTIVES_LEFT = PROMPTS["no_objectives_left"]
TASK_NOT_COMPLETE = PROMPTS["task_not_complete"]
OBJECTIVES_LEFT = PROMPTS["objectives_left"]
SEPARATE_JUDGE = PROMPTS["separate_judge"]
CRITERIA = PROMPTS["criteria"]
CONVERSATION_SO_FAR = PROMPTS["conversation_so_far"]
EMPTY_CONVERSATION = PROMPTS["empty_conversation"]
JUDGE_CRITERIA = PROMPTS["judge_criteria"]
JUDGE_IN_LINES = PROMPTS["judge_in_lines"]
JUDGE_VERDICT = PROMPTS["judge_verdict"]
MODERATOR = PROMPTS["moderator"]
SPEAKER_NAMES = PROMPTS["speaker_names"]
CHOOSE_NEXT_SPEAKER = PROMPTS["choose_next_speaker"]
NEXT_SPEAKER_NAME_ONLY = PROMPTS["next_speaker_name_only"]
CONVERSATION_TASK = PROMPTS["conversation_task"]
TASK_OF_SPEAKER = PROMPTS["task_of_speaker"]
PRIVATE_INFORMATION = PROMPTS["private_information"]

OBSERVER = "the judge or moderator"


def describe_tasks(
    speakers: Sequence[Speaker], task: str | None, render_prompt: RenderPrompt
) -> list[str]:
    """Return all tasks and all private information, for a judge who sees everything."""
    parts = [] if task is None else [render_prompt(CONVERSATION_TASK, task=task)]
    for speaker in speakers:
        if speaker.task is not None:
            parts.append(render_prompt(TASK_OF_SPEAKER, name=speaker.name, task=speaker.task))
        opening = speaker.private_opening
        if opening is not None:
            information = " ".join(opening.lines) or opening.prompt
            parts.append(
                render_prompt(PRIVATE_INFORMATION, name=speaker.name, information=information)
            )
    return parts
