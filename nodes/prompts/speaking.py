"""What a speaker is told: its system prompt, its cue, and that a reply must be mended."""

from collections.abc import Sequence

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from pydantic import BaseModel

from ...graphs.speakers.parts import SmallModelPrompt
from ...graphs.speakers.speaker import Speaker
from .formats import form_of, is_told
from .template import Worded, filled as filled
from .texts import PROMPTS

THE_TASK = PROMPTS["the_task"]
OWN_TASK = PROMPTS["own_task"]
PARTICIPANT = PROMPTS["participant"]

LABELLED = PROMPTS["labelled"]

FROM_MODERATOR = PROMPTS["from_moderator"]
"""How what the conversation itself says is told from what the other says without a name."""

BEGIN = PROMPTS["begin"]
GO_ON = PROMPTS["go_on"]
YOUR_TURN = PROMPTS["your_turn"]

NEW_TASK = PROMPTS["new_task"]
TASK_AGAIN = PROMPTS["task_again"]
"""How a speaker whose memory was reset is told its own task again."""

MEND = PROMPTS["mend"]
"""How a speaker is asked for a reply once more; the problems follow."""

NOT_AGAIN = PROMPTS["not_again"]
"""How a speaker that repeats a call is asked to do something else; the problem follows."""

EMPTY = PROMPTS["empty"]
ANOTHERS_PART = PROMPTS["anothers_part"]
NO_WORDS_YET = PROMPTS["no_words_yet"]
SAME_AGAIN = PROMPTS["same_again"]
ANOTHERS_WORDS = PROMPTS["anothers_words"]
UNANSWERED = PROMPTS["unanswered"]
SAME_CALLS = PROMPTS["same_calls"]

WRITE_THE_REST = PROMPTS["write_the_rest"]
SAY_IT_SHORTER = PROMPTS["say_it_shorter"]

LAST_WORDS = PROMPTS["last_words"]
ROUNDS_LEFT = PROMPTS["rounds_left"]


def system_prompt(
    speaker: Speaker,
    others: Sequence[str],
    task: str | None,
    schema: type[BaseModel] | None = None,
    *,
    worded: Worded,
    is_labelled: bool,
    tells_own_task: bool,
) -> str:
    """Give the system prompt of one speaker."""
    if speaker.system_prompt is None:
        together = " and ".join(part for part in (", ".join(others[:-1]), others[-1]) if part)
        prompt = worded(PARTICIPANT, me=speaker.name, others=together)
        if is_labelled:
            prompt = f"{prompt} {worded(LABELLED)}"
    else:
        prompt = speaker.system_prompt
    parts = [prompt]
    if task is not None:
        if "{task}" in prompt:
            parts = [filled(prompt, task=task)]
        else:
            parts.append(worded(THE_TASK, task=task))
    if speaker.task is not None and tells_own_task:
        parts.append(worded(OWN_TASK, task=speaker.task))
    if speaker.format is not None and not is_told(speaker.format, prompt):
        parts.append(form_of(speaker.format, schema))
    return "\n\n".join(parts)


def briefly(
    view: Sequence[BaseMessage], prompt: SmallModelPrompt, task: str, given: str
) -> list[BaseMessage]:
    """Say what a speaker is told in the few words that a very small model can take."""
    reminder = filled(prompt.reminder, task=given.rstrip(" .?!"))
    return [
        SystemMessage(filled(prompt.system_prompt, task=task)),
        *(
            HumanMessage(f"{message.text}\n\n{reminder}", name=message.name)
            if isinstance(message, HumanMessage)
            else message
            for message in view[1:]
        ),
    ]
