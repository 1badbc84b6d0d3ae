"""How a model is asked to judge: itself, as a separate judge, or who speaks next."""

from collections.abc import Sequence

from ...graphs.speakers.speaker import Speaker
from .template import filled as filled

WHAT_IS_LEFT = """Step back from the conversation for a moment. Which objectives of your task are \
not met yet? Name each one that is left, or say that none is."""

IS_COMPLETE = "Then is your task complete? Reply with one word: yes or no."

JUDGE_YOURSELF = """Step back from the conversation for a moment. Which objectives of your task \
are not met yet, and is the task complete?"""

AGAIN = """{question}

Your last answer to this could not be read. Give nothing but the answer, in just this form."""

UNREADABLE = "It can't be read as a verdict."

NOTHING_LEFT = "Nothing is left to do."
NOT_COMPLETE = "The task is not complete yet."
STILL_LEFT = "Still to do: {objectives}."

SEPARATE_JUDGE = """You watch a conversation and take no part in it. You say how it stands with \
each of a list of criteria, by nothing but what was said."""

CRITERIA = """The criteria:
{criteria}"""

HEARD = """What was said so far:

{transcript}

{question}"""

NOTHING_SAID = "(nothing yet)"

JUDGE_CRITERIA = """How does it stand with each criterion now: is it met, not met, or does what \
was said not tell (inconclusive)?"""

JUDGE_IN_LINES = """{question} Reply with one line for each criterion and nothing else: its \
number, a colon, and one of: met, not met, inconclusive."""

FOUND = "The judge of this conversation finds: {found}"

MODERATOR = """You moderate a conversation and take no part in it. You say who speaks next, so \
that the right one does at the right time."""

MEMBERS = "Who takes part: {names}."

WHO_IS_NEXT = "Who speaks next: {names}?"

NAME_ALONE = "{question} Reply with the name and nothing else."

OBSERVER = "the one who takes no part"


def tasks_of_all(speakers: Sequence[Speaker], task: str | None) -> list[str]:
    """Give all tasks, and what speakers were told privately, for a judge who sees everything."""
    parts = [] if task is None else [f"The task: {task}"]
    for speaker in speakers:
        if speaker.task is not None:
            parts.append(f"The task of {speaker.name}: {speaker.task}")
        opening = speaker.private_opening
        if opening is not None:
            known = " ".join(opening.lines) or opening.prompt
            parts.append(f"What only {speaker.name} was told: {known}")
    return parts
