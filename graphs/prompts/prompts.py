"""The texts that duologue sends to models: prompts with placeholders, one file each in ``texts``.

The names below are grouped by use: a speaker's turn, a handoff, results of calls, summaries, judges
and moderators, and the task specification.
"""

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Final, Protocol, Self

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")

_NEEDED: Final = {"before", "criteria", "information", "objectives"} | {
    *("problem", "question", "summary", "task", "text", "transcript", "verdict")
}
"""The placeholders that a replacement must contain; without them, the prompt is incomplete."""


class Prompt(str):
    """A text for a model, with the file's name."""

    name: str

    def __new__(cls, name: str, text: str) -> Self:
        """Create a prompt from a file's name and its text."""
        prompt = super().__new__(cls, text)
        prompt.name = name
        return prompt

    def find_placeholder_error(self, text: str) -> str | None:
        """Return the reason why another text cannot replace this one, or None if it can."""
        known = dict.fromkeys(_PLACEHOLDER.findall(self))
        given = dict.fromkeys(_PLACEHOLDER.findall(text))
        unknown = next((name for name in given if name not in known), None)
        if unknown is not None:
            usable = ", ".join(f"{{{name}}}" for name in known)
            remedy = f"use only {usable}" if known else "this prompt has no placeholders"
            return f"unknown placeholder {{{unknown}}}; {remedy}"
        missing = next((name for name in known if name in _NEEDED and name not in given), None)
        return None if missing is None else f"the placeholder {{{missing}}} is missing; add it"


class RenderPrompt(Protocol):
    """A function that renders a prompt, or the conversation's replacement for it."""

    def __call__(self, prompt: Prompt, **values: object) -> str:
        """Return the prompt with these values in its placeholders."""
        ...


def fill_template(template: str, **values: object) -> str:
    """Return a template with these values in its placeholders.

    Only these names are replaced. Other braces in a user's prompt are not changed, and neither is
    a placeholder inside a value.
    """
    return _PLACEHOLDER.sub(lambda found: str(values.get(found[1], found[0])), template)


_FOLDER: Final = files(__package__) / "texts"

PROMPTS: Final = {
    file.name.removesuffix(".txt"): Prompt(
        file.name.removesuffix(".txt"), file.read_text(encoding="utf-8").rstrip("\n")
    )
    for file in sorted(_FOLDER.iterdir(), key=lambda file: file.name)
    if file.name.endswith(".txt")
}
"""The prompts of every kind of conversation, by file name."""


def read_kind_prompt(name: str) -> str:
    """Return a prompt that belongs to one kind of conversation."""
    return (_FOLDER / "kinds" / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")


# A speaker's turn: its system prompt, its cues, and requests to rewrite a reply.

CONVERSATION_TASK = PROMPTS["conversation_task"]
SPEAKER_TASK = PROMPTS["speaker_task"]
PARTICIPANT = PROMPTS["participant"]

SPEAKER_LABELS = PROMPTS["speaker_labels"]

MODERATOR_LABEL = PROMPTS["moderator_label"]
"""The label of the conversation's own messages if the speakers' messages have no labels."""

BEGIN = PROMPTS["begin"]
CONTINUE_CONVERSATION = PROMPTS["continue_conversation"]
YOUR_TURN = PROMPTS["your_turn"]
ALL_SPEAK = PROMPTS["all_speak"]
"""The cue before a round in which all speakers speak at once."""

NEW_TASK = PROMPTS["new_task"]
RESTATE_TASK = PROMPTS["restate_task"]
"""The task of a speaker after its memory is reset."""

REWRITE_REPLY = PROMPTS["rewrite_reply"]
"""The request to rewrite a reply. It begins with the problem."""

STOP_REPEATED_CALLS = PROMPTS["stop_repeated_calls"]
"""The request to a speaker that repeats a call. Its problem is REPEATED_CALLS."""

FAILED_CALLS = PROMPTS["failed_calls"]
"""The request to a speaker before the last call whose failure is allowed."""

CALL_TOOL = PROMPTS["call_tool"]
"""The request to a speaker that writes a call as text. Its problem is WRITTEN_CALL."""

EMPTY_REPLY = PROMPTS["empty_reply"]
WITHHELD_REPLY = PROMPTS["withheld_reply"]
UNACCEPTED_CALL = PROMPTS["unaccepted_call"]
WRONG_SPEAKER = PROMPTS["wrong_speaker"]
NO_CONTENT = PROMPTS["no_content"]
REPEATED_REPLY = PROMPTS["repeated_reply"]
ECHOED_REPLY = PROMPTS["echoed_reply"]
PREMATURE_END = PROMPTS["premature_end"]
REPEATED_CALLS = PROMPTS["repeated_calls"]
WRITTEN_CALL = PROMPTS["written_call"]

CONTINUE_REPLY = PROMPTS["continue_reply"]
SHORTEN_REPLY = PROMPTS["shorten_reply"]

LAST_MESSAGE = PROMPTS["last_message"]
ROUNDS_LEFT = PROMPTS["rounds_left"]


# A handoff: the tool ``hand_off``, its arguments and its results.

HAND_OFF = PROMPTS["hand_off"]
"""The description of the tool. The next three prompts describe its arguments."""
HAND_OFF_TO = PROMPTS["hand_off_to"]
HAND_OFF_MESSAGE = PROMPTS["hand_off_message"]
HAND_OFF_PRIVATE = PROMPTS["hand_off_private"]

HAND_OFF_ACCEPTED = PROMPTS["hand_off_accepted"]
"""The result of a call that chose the next speaker."""
HAND_OFF_IGNORED = PROMPTS["hand_off_ignored"]
"""The result of a further call after the next speaker is chosen."""
HAND_OFF_REFUSED = PROMPTS["hand_off_refused"]
"""The result of a call with a name that cannot be chosen."""
HAND_OFF_UNDONE = PROMPTS["hand_off_undone"]
"""The result of a call beside other calls, one of which has failed."""

PRIVATE_MESSAGE = PROMPTS["private_message"]
"""The label of a private message, for the speakers who receive it."""


# Results of calls and code blocks that did not run or that have no output, and of files.

NOT_CLOSED = "The code was not run because its fence is not closed. It may be incomplete."
"""The result of incomplete code, for example because the reply was cut off."""

PRINTED_NOTHING = "The code ran and printed nothing."
NO_OUTPUT = "(nothing)"
"""The text for an empty output, whether the code succeeded or failed."""


RESULT_FILES = PROMPTS["result_files"]
"""The text before the images and other files of tool results, in a message of the user."""

LEFT_OUT = PROMPTS["left_out"]
"""The mark in a text that is shortened in a prompt."""

NOT_RUN = "Not run: the call was repeated too often."
"""The result of a call that a guard has blocked."""


# Summaries: the request for a summary, and its form in a speaker's prompt.

SUMMARY_HEADING = PROMPTS["summary_heading"]
"""The summary in a speaker's prompt. It replaces the messages that are left out."""

SUMMARY_ROLE = PROMPTS["summary_role"]

SUMMARY_REQUEST = PROMPTS["summary_request"]

NO_EARLIER_SUMMARY = PROMPTS["no_earlier_summary"]

SHORTENED = """The history of {name} is too long for the model. Its older half is left out from \
now on."""
"""The notice for the user if a history does not fit into the model's context."""

SHORTENED_MESSAGES = """The newest messages are too long for the model of {name}. They are \
shortened in its prompts until its turn ends."""
"""The notice for the user if a single turn does not fit into the model's context."""


# Judges, and the moderator that chooses who speaks next.

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
TASK_OF_SPEAKER = PROMPTS["task_of_speaker"]
PRIVATE_INFORMATION = PROMPTS["private_information"]

OBSERVER = "the judge or moderator"


# The task specification, in which a model makes a task more specific.

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


def join_task_requests(limit: int, render_prompt: RenderPrompt) -> str:
    """Return all requests for a more specific task as one text, without the task and names."""
    asked = (
        render_prompt(prompt, task="", roles="", limit=limit)
        for prompt in (SPECIFY_TASK, SPECIFY_TASK_SMALL_MODEL)
    )
    return "\n".join((*asked, render_prompt(REWRITE_TASK, limit=limit)))
