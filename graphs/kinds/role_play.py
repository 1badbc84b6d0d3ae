"""Role-play and group solve: speakers with roles or tasks of their own talk in turn.

Role-play follows CAMEL and LazyLLM: a user sends one instruction at a time, and an assistant
answers each with a solution, until the user's done token or the round cap. Group solve follows
Yacana: each speaker answers its own task first, which the others do not hear unless the answers are
reconciled. Then one speaker receives an instruction to begin, and all speak in turn until the
end-chat mode or the round cap ends the conversation.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Unpack, cast

from pydantic import PositiveInt

from ..common.data import AtLeast, Mark, Name, Temperature, Text
from ..common.errors import SpecError, suggest_near_or_all
from ..conversation.conversation_options import (
    AnySpeaker,
    CommonOptions,
    Names,
    OptionsBesideEndChat,
    ReadAs,
    Role,
    mark_default,
    mark_shared_default,
)
from ..conversation.fields import Opening
from ..ends.end_chat import AnyEndChat, EndChat, EndChatMode
from ..ends.events import DoneToken
from ..prompts.prompts import fill_template, read_kind_prompt
from ..rules.turns import with_people
from ..speakers.formats import LabelledFormat
from ..speakers.speaker import Speaker
from .load import Parts, form_of, mark_options, read_small_model_prompt, short_form

INSTRUCTION = LabelledFormat(lines=("Instruction:", "Input:"), optional=("Input:",))
"""The format of the user's messages."""

SOLUTION = LabelledFormat(lines=("Solution:",), end="Next request.")
"""The format of the assistant's messages."""

DONE_TOKEN = "<CAMEL_TASK_DONE>"  # noqa: S105
"""CAMEL's word for a completed task."""

INSTRUCTOR = read_kind_prompt("role_play_user")

SOLVER = read_kind_prompt("role_play_assistant")

INSTRUCTOR_SMALL_MODEL = read_small_model_prompt("role_play_user")

SOLVER_SMALL_MODEL = read_small_model_prompt("role_play_assistant")

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

    def speaker(me: str, other: str, prompt: str, small: Mapping[str, str]) -> Parts:
        names = {"me": me, "other": other, "done": done_token}
        whole = {"user_prompt": user_prompt, "assistant_prompt": assistant_prompt}[prompt]
        return {
            "name": me,
            "system_prompt": mark_default(fill_template(whole, **names), prompt),
            "small_model_prompt": mark_default(
                {part: fill_template(text, **names) for part, text in small.items()}
            ),
            "model_settings": mark_shared_default({"temperature": temperature}, "temperature"),
        }

    instructor = {
        **speaker(user_role, assistant_role, "user_prompt", INSTRUCTOR_SMALL_MODEL),
        "format": mark_default(INSTRUCTION),
        # Not used in the mode max_iterations_only, but a fork may have another mode.
        "checks_completion": mark_default(True),
    }
    solver = {
        **speaker(assistant_role, user_role, "assistant_prompt", SOLVER_SMALL_MODEL),
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
            **mark_options(mode=mode, max_iterations=max_iterations),
            "when": mark_default(DoneToken(token=done_token, by=user_role), "done_token"),
        },
    }


RolePlayForm = form_of(role_play)


_AS_ALWAYS: Final = EndChat()


@short_form(
    message="task",
    shown=["title", "turn_order", "judge", "prices", "max_tool_rounds"],
)
def group_solve(
    speakers: Annotated[Sequence[AnySpeaker], ReadAs(Annotated[tuple[Speaker, ...], AtLeast(2)])],
    *,
    shift_owner: Name | None = None,
    shift_content: Text | None = None,
    reconcile_first_message: bool = False,
    task: Text | None = None,
    end_chat: Annotated[AnyEndChat, ReadAs(EndChat)] = _AS_ALWAYS,
    **options: Unpack[OptionsBesideEndChat],
) -> Parts:
    """Build a conversation of speakers that each have their own task.

    After Yacana's group solve: each speaker answers its own task alone, then the first speaker of
    the rounds (the shift owner) receives an instruction to begin, and all speak in turn.

    Args:
        speakers: The speakers or their fields, in the order of a round: at least two, each with its
            own ``task``.
        shift_owner: The name of the first speaker in the rounds. If None, the second of the
            speakers.
        shift_content: The instruction to the first speaker in the rounds. If None, the answer of
            the speaker before it, or a neutral line with ``reconcile_first_message``.
        reconcile_first_message: Whether all speakers hear the tasks and opening answers of all
            speakers.
        task: A task of all speakers, in addition to their own tasks.
        end_chat: The end conditions and guards.
        **options: Other fields of a `Conversation`, such as ``judge``, ``model`` or ``sandbox``.

    Returns:
        The conversation, ready for `converse`.

    Raises:
        SpecError: A field is empty, unknown or wrong; the message names it.

    Example:
        >>> from duologue import Speaker, group_solve
        >>> game = group_solve(
        ...     [
        ...         Speaker(name="Ann", task="Keep a secret number.", checks_completion=True),
        ...         Speaker(name="Bob", task="Guess the secret number."),
        ...     ],
        ...     end_chat={"mode": "end_chat_after_first_completion"},
        ... )
        >>> game.order
        ('Bob', 'Ann')
    """
    found = cast("Sequence[Speaker]", speakers)
    for number, speaker in enumerate(found):
        if speaker.task is None:
            raise SpecError(f"speakers.{number}.task: is missing; set a task for {speaker.name!r}")
    names = [speaker.name for speaker in found]
    if shift_owner is not None and shift_owner not in names:
        raise SpecError(
            f"shift_owner: no speaker is called {shift_owner!r}"
            f"{suggest_near_or_all(shift_owner, names)}"
        )
    ending = cast("EndChat", end_chat)
    if "announce_last_words" not in ending.model_fields_set:
        # Yacana does not announce last words to its speakers.
        ending = ending.model_copy(update={"announce_last_words": False})
    return {
        "end_chat": ending,
        "opening": {
            "answers": mark_default(True),
            "reconcile": mark_default(reconcile_first_message, "reconcile_first_message"),
            "first_speaker": mark_default(shift_owner, "shift_owner"),
            "first_line": mark_default(shift_content, "shift_content"),
        },
    }


GroupSolveForm = form_of(group_solve)
