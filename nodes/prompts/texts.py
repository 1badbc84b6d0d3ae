"""What duologue itself says to a model: to have it speak, judge, choose or rewrite.

Templates hold ``{task}`` and the like; `filled` puts the values in. What speakers say to each other
is not here.
"""

from collections.abc import Sequence

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from pydantic import BaseModel

from ...graphs.speakers.speaker import Brief, Speaker
from .formats import form_of as form_of, is_told

DONE_TOKEN = "<CAMEL_TASK_DONE>"  # noqa: S105
"""CAMEL's word for a task that is done."""

INSTRUCTOR = """You are {me}. You lead {other}, who has the expertise to do what you ask for.
Stay in your part: you give instructions and never carry one out.

The task you two work on: {task}

Every message of yours is one instruction, in exactly this form and with nothing around it:
Instruction: <what {other} does next>
Input: <what is needed for it, or None>

Give one step at a time, fitted to what {other} can do and what you need, and none that was \
done already. Instruct, do not ask questions. Go on until {other}'s answers have solved the \
task; then reply with nothing but this:
{done}
Never write it while anything is missing."""

SOLVER = """You are {me}. {other} leads and sends instructions, which you carry out one by one.
Stay in your part: you never give instructions and never ask questions.

The task you two work on: {task}

Every message of yours has this form, with nothing around it:
Solution: <your solution>
Next request.

The solution does what the last instruction asks for. It is specific and complete, explained in \
plain statements in the present tense, with an implementation or an example where that helps. If \
you cannot or should not do it, because it is impossible, wrong, against the law or beyond you, \
say so and why. Keep ending with "Next request." until {other} says that the task is done."""

INSTRUCTOR_BRIEF = """Task: {task}
You are a {me}. Tell the {other} what to do next for the task: one small, concrete step at a time, \
never the same twice. You only instruct, you never do it yourself."""

INSTRUCTOR_REMINDER = "What is the next step of the task: {task}?"

SOLVER_BRIEF = """Task: {task}
You are a {me}. Do each step that the {other} gives you, and say in two or three sentences what \
you did and how. You never ask and never instruct."""

SOLVER_REMINDER = "Do this for the task: {task}."

BEGIN_INSTRUCTING = "What is the first step?"

SATISFIED = "SATISFIED"
"""A critic's word for a text that needs nothing more."""

WRITER = """You write for readers, and you write to be read with pleasure.

What you write: {task}

Reply with the whole text and nothing else. When {critic} says what to mend, reply with the whole \
text again, better; keep what was good."""

CRITIC = """You read what {writer} writes and say how to make it better.

What {writer} was asked for: {task}

Say what works, what does not, and what to change, each as something that can be done: in length, \
depth, order, style. Do not rewrite the text yourself. When it needs nothing more, reply with \
nothing but this:
{satisfied}"""

CRITIC_PREFIX = """Read this as the readers it is meant for, and say what to mend in it.

"""

WRITER_BRIEF = """Write this: {task}"""
WRITER_REMINDER = "Write the whole text: {task}."
CRITIC_BRIEF = """You are a critic. Somebody was asked for this: {task}"""
CRITIC_REMINDER = "Say in two sentences what to mend in this text."

BEGIN_WRITING = "Write the first version."

PARTICIPANT = """You are {me}, in a conversation with {others}. Speak only for yourself."""

LABELLED = """What the others say stands behind their names; write your own lines without a name."""

BEGIN = "Please begin."
GO_ON = "Now go on together."
YOUR_TURN = "{name}, it is your turn."

NEW_TASK = "From now on your task is: {task}"
TASK_AGAIN = "Your task is: {task}"
"""How a speaker whose memory was reset is told its own task again."""

SPECIFY_TASK = """Task: {task}

{who}Make this task more specific, with imagination: say in one or two sentences what exactly is \
to be made, for whom and with what. Use at most {limit} words. Reply with the rewritten task and \
nothing else."""

_A_PAIR = 2

HELPER = "{helper} will help {asker} with it. "

TASK_TOO_LONG = "That has {count} words. Say it in at most {limit} words, and nothing else."

WHAT_IS_LEFT = """Step back from the conversation for a moment. Which objectives of your task are \
not met yet? Name each one that is left, or say that none is."""

IS_COMPLETE = "Then is your task complete? Reply with one word: yes or no."

JUDGE_YOURSELF = """Step back from the conversation for a moment. Which objectives of your task \
are not met yet, and is the task complete?"""

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

NOTHING_SAID = "(nothing yet)"

IN_SHORT = """What was said before this, in short:
{summary}"""
"""How a speaker is told the summary of what its prompt leaves out."""

SUMMARISER = """You keep the memory of {me}, who takes part in a long conversation. What you \
write is all that {me} will still know of the part you read."""

SUMMARISE = """What {me} knew of the time before:
{before}

What came then:
{transcript}

Sum up both in one, in at most {words} words, so that {me} can go on: what was agreed, found, done \
and asked, with names and numbers, and what is still open. Leave out what no longer matters. \
Write the summary and nothing else."""

NOTHING_BEFORE = "(nothing)"

MEND = "{problem} Please say it again as it should be, and nothing else."
"""How a speaker is asked for a reply once more."""


OBSERVER = "the one who takes no part"

SHORTENED = """What {name} has heard and said is too long for the model: the older half is left \
out from here on."""
"""What a user is told when a history does not fit."""


def filled(template: str, **values: object) -> str:
    """Put values into a template.

    Only the given names are replaced, so that braces in a user's own prompt stay as they are.
    """
    # One pass over the template: a value that itself holds "{task}" is left alone.
    parts = [template]
    for name, value in values.items():
        parts = [
            piece
            for index, part in enumerate(parts)
            for piece in (_split(part, name, str(value)) if index % 2 == 0 else [part])
        ]
    return "".join(parts)


def _split(part: str, name: str, value: str) -> list[str]:
    """Split text at a placeholder, with the value at the odd places."""
    pieces = part.split("{" + name + "}")
    return [text for piece in pieces for text in (piece, value)][:-1]


def system_prompt(
    speaker: Speaker,
    others: Sequence[str],
    task: str | None,
    schema: type[BaseModel] | None = None,
    *,
    is_labelled: bool,
    tells_own_task: bool,
) -> str:
    """Give the system prompt of one speaker."""
    if speaker.role_prompt is None:
        prompt = filled(PARTICIPANT, me=speaker.name, others=_together(others))
        if is_labelled:
            prompt = f"{prompt} {LABELLED}"
    else:
        prompt = speaker.role_prompt
    parts = [prompt]
    if task is not None:
        if "{task}" in prompt:
            parts = [filled(prompt, task=task)]
        else:
            parts.append(f"The task: {task}")
    if speaker.task is not None and tells_own_task:
        parts.append(f"Your own task: {speaker.task}")
    if speaker.format is not None and not is_told(speaker.format, prompt):
        parts.append(form_of(speaker.format, schema))
    return "\n\n".join(parts)


def _together(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


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


def task_request(task: str, names: Sequence[str], limit: int) -> str:
    """Ask for a more specific task."""
    who = filled(HELPER, asker=names[0], helper=names[1]) if len(names) == _A_PAIR else ""
    return filled(SPECIFY_TASK, task=task, limit=limit, who=who)
