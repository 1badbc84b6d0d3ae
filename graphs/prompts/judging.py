"""The prompts for judging and for choosing who speaks next."""

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
JUDGE_WITH_REASONS = PROMPTS["judge_with_reasons"]
JUDGE_IN_LINES = PROMPTS["judge_in_lines"]
JUDGE_VERDICT = PROMPTS["judge_verdict"]
MODERATOR = PROMPTS["moderator"]
SPEAKER_NAMES = PROMPTS["speaker_names"]
CHOOSE_NEXT_SPEAKER = PROMPTS["choose_next_speaker"]
RETRY_CHOICE = PROMPTS["retry_choice"]
NEXT_SPEAKER_NAME_ONLY = PROMPTS["next_speaker_name_only"]
CONVERSATION_TASK = PROMPTS["conversation_task"]
TASK_OF_SPEAKER = PROMPTS["task_of_speaker"]
PRIVATE_INFORMATION = PROMPTS["private_information"]

OBSERVER = "the judge or moderator"
