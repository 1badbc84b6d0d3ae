"""Role-play: a user who instructs and an assistant who solves, after CAMEL and LazyLLM.

The user gives one instruction at a time, the assistant answers each with a solution, and the user
ends the conversation by the done token, or the round cap does.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

from pydantic import PositiveInt

from ...nodes.prompts.template import filled
from ...nodes.prompts.texts import of_kind
from ..build import build_graph
from ..common.data import Mark, Name, Temperature, Text
from ..rules.people import with_people
from ..speakers.formats import LabelledFormat
from ..spec.changes.options import CommonOptions, Role
from ..spec.conversation import Conversation, Form
from ..spec.end_chat import EndChatMode
from ..spec.ends import DoneToken
from ..spec.fields import Opening

INSTRUCTION = LabelledFormat(lines=("Instruction:", "Input:"), optional=("Input:",))
"""How the user's messages look."""

SOLUTION = LabelledFormat(lines=("Solution:",), end="Next request.")
"""How the assistant's messages look."""

DONE_TOKEN = "<CAMEL_TASK_DONE>"  # noqa: S105
"""CAMEL's word for a task that is done."""

INSTRUCTOR = of_kind("role_play_user")

SOLVER = of_kind("role_play_assistant")

INSTRUCTOR_BRIEF = of_kind("role_play_user_brief")

INSTRUCTOR_REMINDER = of_kind("role_play_user_reminder")

SOLVER_BRIEF = of_kind("role_play_assistant_brief")

SOLVER_REMINDER = of_kind("role_play_assistant_reminder")

BEGIN_INSTRUCTING = of_kind("role_play_begin")


class RolePlayForm(Form):
    """The short form of a role-play; only the task and the two roles are needed."""

    roles: ClassVar = {"user": "user_role", "assistant": "assistant_role"}
    message_field: ClassVar = "task"
    beside_message: ClassVar = {"user_role": "User", "assistant_role": "Assistant"}

    task: Text
    """What the two work on."""
    user_role: Name
    """Who instructs, such as ``Stock Trader``."""
    assistant_role: Name
    """Who solves, such as ``Python Programmer``."""
    specify_task: bool | None = None
    """Whether a model first makes the task more specific. None: unless it is the embedded model,
    which makes most tasks worse."""
    word_limit: PositiveInt = 50
    """The longest specified task, in words."""
    mode: EndChatMode = EndChatMode.MAX_ITERATIONS_ONLY
    """How completed tasks end it. In the other modes the user is asked, after each of its turns,
    whether the task is complete."""
    max_iterations: PositiveInt = 5
    """The cap, in rounds."""
    done_token: Mark = DONE_TOKEN
    """The word with which the user ends it."""
    user_prompt: Text = INSTRUCTOR
    """The system prompt of who instructs; in it ``{me}`` and ``{other}`` stand for the two roles,
    ``{task}`` for the task and ``{done}`` for the done token."""
    assistant_prompt: Text = SOLVER
    """The system prompt of who solves; ``{me}``, ``{other}`` and ``{task}`` stand for the same."""
    task_temperature: Temperature = None
    """The temperature of the task's rewriting. None: 1.0."""
    temperature: Temperature = None
    """The temperature of both speakers. None: 0.2."""
    people: tuple[Name, ...] = ()
    """Those of the two whom people speak for, by their names."""
    seed: int | None = None
    """Asks a model that can for the same conversation again."""
    model: Text | None = None
    """The model of all: a name, ``embedded`` or the path of a ``.gguf`` file."""

    def _others(self) -> dict[str, Any]:
        user, assistant = self.user_role, self.assistant_role
        instructor = {
            **self._speaker(user, assistant, "user_prompt", INSTRUCTOR_BRIEF, INSTRUCTOR_REMINDER),
            "format": self.own(INSTRUCTION),
            # In max_iterations_only nobody is asked; a fork may have another mode.
            "checks_completion": self.own(True),
        }
        solver = {
            **self._speaker(assistant, user, "assistant_prompt", SOLVER_BRIEF, SOLVER_REMINDER),
            "format": self.own(SOLUTION),
        }
        specification = {
            "word_limit": self.own(self.word_limit, "word_limit"),
            "model_settings": self.own({"temperature": self.task_temperature}, "task_temperature"),
            "small_models": self.own(bool(self.specify_task), "specify_task"),
        }
        return {
            "speakers": with_people([instructor, solver], self.people),
            "task_specification": self.own(
                None if self.specify_task is False else specification,
                *("specify_task", "word_limit", "task_temperature"),
            ),
            "opening": self.own(Opening(first_line=BEGIN_INSTRUCTING)),
            "end_chat": {
                "mode": self.own(self.mode, "mode"),
                "max_iterations": self.own(self.max_iterations, "max_iterations"),
                "when": self.own(DoneToken(token=self.done_token, by=self.user_role), "done_token"),
            },
        }

    def _speaker(
        self, me: str, other: str, prompt: str, brief: str, reminder: str
    ) -> dict[str, Any]:
        names = {"me": me, "other": other}
        told = filled(getattr(self, prompt), done=self.done_token, **names)
        return {
            "name": me,
            "system_prompt": self.own(told, prompt),
            "small_model_prompt": self.own(
                {"system_prompt": filled(brief, **names), "reminder": reminder}
            ),
            "model_settings": self.shared({"temperature": self.temperature}, "temperature"),
        }


class RolePlayOptions(CommonOptions, total=False):
    """What `role_play` takes by name."""

    user: Role
    assistant: Role
    specify_task: bool | None
    word_limit: int
    mode: EndChatMode | str
    max_iterations: int
    done_token: str
    user_prompt: str
    assistant_prompt: str
    task_temperature: Temperature
    temperature: Temperature
    people: Sequence[str]


def role_play(
    task: str, user_role: str, assistant_role: str, **options: Unpack[RolePlayOptions]
) -> Conversation:
    """Make a role-play of two experts.

    After CAMEL's role-playing and LazyLLM's multi-turn dialogue: the task is made more specific,
    then ``user_role`` gives one ``Instruction:`` with its ``Input:`` at a time and
    ``assistant_role`` answers with a ``Solution:``, until the user says the done token.

    Args:
        task: What the two work on.
        user_role: Who instructs.
        assistant_role: Who solves.
        **options: Other fields of `RolePlayForm`, such as ``max_iterations`` or ``mode``, those of
            a `Conversation`, such as ``judge``, and those of a `Speaker` in ``user`` and
            ``assistant``.

    Returns:
        The conversation, ready for `converse`.

    Raises:
        SpecError: A field is empty, unknown or wrong; names it.

    Example:
        >>> conversation = role_play("Plan a garden", "Owner", "Gardener", max_iterations=2)
        >>> conversation.names
        ('Owner', 'Gardener')
    """
    return RolePlayForm.of(
        {"task": task, "user_role": user_role, "assistant_role": assistant_role, **options}
    )


graph = build_graph(form=RolePlayForm)
"""The role-play for LangGraph's servers and Studio, which bring their own checkpointer."""
