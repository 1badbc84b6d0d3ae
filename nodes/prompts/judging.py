"""How a model is asked to judge: itself, as a separate judge, or who speaks next."""

from collections.abc import Sequence

from ...graphs.speakers.speaker import Speaker
from .template import Worded
from .texts import PROMPTS

WHAT_IS_LEFT = PROMPTS["what_is_left"]
IS_COMPLETE = PROMPTS["is_complete"]
JUDGE_YOURSELF = PROMPTS["judge_yourself"]
AGAIN = PROMPTS["again"]

UNREADABLE = "It can't be read as a verdict."

NOTHING_LEFT = PROMPTS["nothing_left"]
NOT_COMPLETE = PROMPTS["not_complete"]
STILL_LEFT = PROMPTS["still_left"]
SEPARATE_JUDGE = PROMPTS["separate_judge"]
CRITERIA = PROMPTS["criteria"]
HEARD = PROMPTS["heard"]
NOTHING_SAID = PROMPTS["nothing_said"]
JUDGE_CRITERIA = PROMPTS["judge_criteria"]
JUDGE_IN_LINES = PROMPTS["judge_in_lines"]
FOUND = PROMPTS["found"]
MODERATOR = PROMPTS["moderator"]
MEMBERS = PROMPTS["members"]
WHO_IS_NEXT = PROMPTS["who_is_next"]
NAME_ALONE = PROMPTS["name_alone"]
THE_TASK = PROMPTS["the_task"]
TASK_OF = PROMPTS["task_of"]
TOLD_ALONE = PROMPTS["told_alone"]

OBSERVER = "the one who takes no part"


def tasks_of_all(speakers: Sequence[Speaker], task: str | None, worded: Worded) -> list[str]:
    """Give all tasks, and what speakers were told privately, for a judge who sees everything."""
    parts = [] if task is None else [worded(THE_TASK, task=task)]
    for speaker in speakers:
        if speaker.task is not None:
            parts.append(worded(TASK_OF, name=speaker.name, task=speaker.task))
        opening = speaker.private_opening
        if opening is not None:
            known = " ".join(opening.lines) or opening.prompt
            parts.append(worded(TOLD_ALONE, name=speaker.name, known=known))
    return parts
