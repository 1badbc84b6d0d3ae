"""What a speaker is told: its system prompt, its cue, and that a reply must be mended."""

from collections.abc import Sequence

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from pydantic import BaseModel

from ...graphs.speakers.speaker import Brief, Speaker
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

EMPTY = "Your message was empty."
ANOTHERS_PART = "You are {me}, but you spoke {other}'s part."
NOTHING_SAID = "Your message says nothing yet: put your own words where they belong."
SAME_AGAIN = "You have just said the same."
ANOTHERS_WORDS = "That is what {other} has just said, word for word: say something of your own."

WRITE_THE_REST = """Your message was cut off, since it was too long. Write the rest of it and \
nothing else. Begin with the word at which it stopped."""

SAY_IT_SHORTER = """Your message was cut off, since it was too long. Say it again, shorter, so \
that it comes to its end."""

LAST_WORDS = "This is your last message: bring what you have to say to a close."


def rounds_left(count: int) -> str:
    """Tell a speaker how many rounds come after this one, at most."""
    match count:
        case 0:
            return "This is the last round."
        case 1:
            return "After this round there is at most one more."
        case _:
            return f"After this round there are at most {count} more."


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
    if speaker.role_prompt is None:
        together = " and ".join(part for part in (", ".join(others[:-1]), others[-1]) if part)
        prompt = worded(PARTICIPANT, me=speaker.name, others=together)
        if is_labelled:
            prompt = f"{prompt} {worded(LABELLED)}"
    else:
        prompt = speaker.role_prompt
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


def briefly(view: Sequence[BaseMessage], brief: Brief, task: str, given: str) -> list[BaseMessage]:
    """Say what a speaker is told in the few words that a very small model can take."""
    reminder = filled(brief.reminder, task=given.rstrip(" .?!"))
    return [
        SystemMessage(filled(brief.role_prompt, task=task)),
        *(
            HumanMessage(f"{message.text}\n\n{reminder}", name=message.name)
            if isinstance(message, HumanMessage)
            else message
            for message in view[1:]
        ),
    ]
