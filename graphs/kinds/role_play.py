"""Role-play: a user instructs and an assistant solves, after CAMEL and LazyLLM.

The user sends one instruction at a time, and the assistant answers each with a solution. The
conversation ends with the user's done token or at the round cap.
"""

from typing import Annotated, Unpack

from pydantic import PositiveInt

from ..common.data import Mark, Name, Temperature, Text
from ..conversation.conversation_options import (
    CommonOptions,
    Names,
    ReadAs,
    Role,
    mark_default,
    mark_shared_default,
)
from ..conversation.fields import Opening
from ..ends.done_token import DoneToken
from ..ends.end_chat import EndChatMode
from ..prompts.prompts import fill_template, read_kind_prompt
from ..rules.turns import with_people
from ..speakers.formats import LabelledFormat
from .short_form import Parts, form_of, short_form

INSTRUCTION = LabelledFormat(lines=("Instruction:", "Input:"), optional=("Input:",))
"""The format of the user's messages."""

SOLUTION = LabelledFormat(lines=("Solution:",), end="Next request.")
"""The format of the assistant's messages."""

DONE_TOKEN = "<CAMEL_TASK_DONE>"  # noqa: S105
"""CAMEL's word for a completed task."""

INSTRUCTOR = read_kind_prompt("role_play_user")

SOLVER = read_kind_prompt("role_play_assistant")

INSTRUCTOR_SMALL_MODEL = read_kind_prompt("role_play_user_small_model")

INSTRUCTOR_REMINDER = read_kind_prompt("role_play_user_small_model_reminder")

SOLVER_SMALL_MODEL = read_kind_prompt("role_play_assistant_small_model")

SOLVER_REMINDER = read_kind_prompt("role_play_assistant_small_model_reminder")

BEGIN_INSTRUCTING = read_kind_prompt("role_play_begin")


@short_form(
    roles={"user": "user_role", "assistant": "assistant_role"},
    message="task",
    beside_message={"user_role": "User", "assistant_role": "Assistant"},
)
def role_play(
    task: Text,
    user_role: Name,
    assistant_role: Name,
    *,
    user: Role | None = None,
    assistant: Role | None = None,
    specify_task: bool | None = None,
    word_limit: PositiveInt = 50,
    mode: Annotated[EndChatMode | str, ReadAs(EndChatMode)] = EndChatMode.MAX_ITERATIONS_ONLY,
    max_iterations: PositiveInt = 5,
    done_token: Mark = DONE_TOKEN,
    user_prompt: Text = INSTRUCTOR,
    assistant_prompt: Text = SOLVER,
    task_temperature: Temperature = None,
    temperature: Temperature = None,
    people: Names = (),
    **options: Unpack[CommonOptions],
) -> Parts:
    """Build a role-play of two experts.

    After CAMEL's role-playing and LazyLLM's multi-turn dialogue: the task is made more specific,
    then ``user_role`` sends one ``Instruction:`` with its ``Input:`` at a time and
    ``assistant_role`` answers with a ``Solution:``, until the user says the done token.

    Args:
        task: The task that the two work on.
        user_role: The role of the speaker who instructs, such as ``Stock Trader``.
        assistant_role: The role of the speaker who solves, such as ``Python Programmer``.
        user: Other fields of the speaker who instructs, as a `Speaker`. No other fields if None.
        assistant: Other fields of the speaker who solves, as a `Speaker`. No other fields if None.
        specify_task: Whether a model makes the task more specific first. If None, it does unless it
            is the embedded model, which makes most tasks worse.
        word_limit: Maximum length of the specified task, in words.
        mode: The effect of completed tasks. In all modes except ``max_iterations_only``, the user
            is asked after each turn whether the task is complete.
        max_iterations: Maximum number of rounds.
        done_token: The word with which the user ends the conversation.
        user_prompt: The system prompt of the speaker who instructs. ``{me}`` and ``{other}`` in it
            are replaced by the two roles, ``{task}`` by the task and ``{done}`` by the done token.
        assistant_prompt: The system prompt of the speaker who solves. ``{me}``, ``{other}`` and
            ``{task}`` in it are replaced in the same way.
        task_temperature: The temperature of the call that rewrites the task. 1.0 if None.
        temperature: The temperature of both speakers. 0.2 if None.
        people: The names of the speakers for whom people write.
        **options: Other fields of a `Conversation`, such as ``end_chat``, ``judge`` or ``model``.

    Returns:
        The conversation, ready for `converse`.

    Raises:
        SpecError: A field is empty, unknown or wrong; the message names it.

    Example:
        >>> conversation = role_play("Plan a garden", "Owner", "Gardener", max_iterations=2)
        >>> conversation.names
        ('Owner', 'Gardener')
    """

    def speaker(me: str, other: str, prompt: str, brief: str, reminder: str) -> Parts:
        names = {"me": me, "other": other}
        text = {"user_prompt": user_prompt, "assistant_prompt": assistant_prompt}[prompt]
        return {
            "name": me,
            "system_prompt": mark_default(fill_template(text, done=done_token, **names), prompt),
            "small_model_prompt": mark_default(
                {"system_prompt": fill_template(brief, **names), "reminder": reminder}
            ),
            "model_settings": mark_shared_default({"temperature": temperature}, "temperature"),
        }

    instructor = {
        **speaker(
            *(user_role, assistant_role, "user_prompt", INSTRUCTOR_SMALL_MODEL, INSTRUCTOR_REMINDER)
        ),
        "format": mark_default(INSTRUCTION),
        # Not used in the mode max_iterations_only, but a fork may have another mode.
        "checks_completion": mark_default(True),
    }
    solver = {
        **speaker(
            assistant_role, user_role, "assistant_prompt", SOLVER_SMALL_MODEL, SOLVER_REMINDER
        ),
        "format": mark_default(SOLUTION),
        "writes_output": mark_default(True),
    }
    specification = {
        "word_limit": mark_default(word_limit, "word_limit"),
        "model_settings": mark_default({"temperature": task_temperature}, "task_temperature"),
        "small_models": mark_default(bool(specify_task), "specify_task"),
    }
    return {
        "speakers": with_people([instructor, solver], people),
        "task_specification": mark_default(
            None if specify_task is False else specification,
            *("specify_task", "word_limit", "task_temperature"),
        ),
        "opening": mark_default(Opening(first_line=BEGIN_INSTRUCTING)),
        "end_chat": {
            "mode": mark_default(mode, "mode"),
            "max_iterations": mark_default(max_iterations, "max_iterations"),
            "when": mark_default(DoneToken(token=done_token, by=user_role), "done_token"),
        },
    }


RolePlayForm = form_of(role_play)
