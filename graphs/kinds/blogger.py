"""Blogger: a writer and a critic make a text better in rounds, after Lagent's example.

The writer writes, the critic says what to mend, and the writer revises it; the writer has the last
word, or the critic is satisfied before.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Unpack

from pydantic import Field

from ...nodes.prompts.template import filled
from ...nodes.prompts.texts import of_kind
from ..build import build_graph
from ..common.data import MOST, Mark, Name, Temperature, Text
from ..rules.people import with_people
from ..spec.changes.options import CommonOptions, Role
from ..spec.conversation import Conversation, Form
from ..spec.ends import DoneToken, MaxMessages
from ..spec.fields import Opening

SATISFIED = "SATISFIED"
"""A critic's word for a text that needs nothing more."""

WRITER = of_kind("blogger_writer")

CRITIC = of_kind("blogger_critic")

CRITIC_PREFIX = of_kind("blogger_critic_prefix") + "\n\n"

WRITER_BRIEF = of_kind("blogger_writer_brief")

WRITER_REMINDER = of_kind("blogger_writer_reminder")

CRITIC_BRIEF = of_kind("blogger_critic_brief")

CRITIC_REMINDER = of_kind("blogger_critic_reminder")

BEGIN_WRITING = of_kind("blogger_begin")


class BloggerForm(Form):
    """The short form of a writer and a critic; only the task is needed."""

    roles: ClassVar = {"writer": "writer", "critic": "critic"}
    message_field: ClassVar = "task"

    task: Text
    """What is to be written."""
    writer: Name = "Writer"
    """What the writer is called."""
    critic: Name = "Critic"
    """What the critic is called."""
    writer_prompt: Text = WRITER
    """The writer's system prompt; ``{task}`` in it stands for the task."""
    critic_prompt: Text = CRITIC
    """The critic's system prompt; ``{task}`` in it stands for the task."""
    critic_prefix: Text | None = CRITIC_PREFIX
    """What stands in front of each text that the critic reads. None: nothing."""
    rounds: Annotated[int, Field(strict=True, gt=0, le=MOST // 2 - 1)] = 3
    """How often the critic is heard, at most; then the writer writes the final version."""
    satisfied: Mark = SATISFIED
    """The word with which the critic ends it: the text is good as it is."""
    temperature: Temperature = None
    """The temperature of both. None: 0.2."""
    people: tuple[Name, ...] = ()
    """Those of the two whom people speak for, by their names."""
    seed: int | None = None
    """Asks a model that can for the same conversation again."""
    model: Text | None = None
    """The model of both: a name, ``embedded`` or the path of a ``.gguf`` file."""

    def _others(self) -> dict[str, Any]:
        names = {"writer": self.writer, "critic": self.critic, "satisfied": self.satisfied}
        model_settings = self.shared({"temperature": self.temperature}, "temperature")
        prefixes = {} if self.critic_prefix is None else {self.writer: self.critic_prefix}
        writer = {
            "name": self.writer,
            "system_prompt": self.own(filled(self.writer_prompt, **names), "writer_prompt"),
            "small_model_prompt": self.own(
                {"system_prompt": WRITER_BRIEF, "reminder": WRITER_REMINDER}
            ),
            "model_settings": model_settings,
        }
        critic = {
            "name": self.critic,
            "system_prompt": self.own(filled(self.critic_prompt, **names), "critic_prompt"),
            "small_model_prompt": self.own(
                {"system_prompt": CRITIC_BRIEF, "reminder": CRITIC_REMINDER}
            ),
            "prefixes": self.own(prefixes, "critic_prefix"),
            "model_settings": model_settings,
        }
        final = MaxMessages(limit=2 * self.rounds + 1)
        return {
            "speakers": with_people([writer, critic], self.people),
            "opening": self.own(Opening(first_line=BEGIN_WRITING)),
            "end_chat": {
                # The last round is the writer's alone.
                "max_iterations": self.own(self.rounds + 1, "rounds"),
                "when": self.own(
                    DoneToken(token=self.satisfied, by=self.critic) | final, "rounds", "satisfied"
                ),
            },
        }


class BloggerOptions(CommonOptions, total=False):
    """What `blogger` takes by name."""

    writer: Role
    critic: Role
    writer_prompt: str
    critic_prompt: str
    critic_prefix: str | None
    rounds: int
    satisfied: str
    temperature: Temperature
    people: Sequence[str]


def blogger(task: str, **options: Unpack[BloggerOptions]) -> Conversation:
    """Make a conversation of a writer and a critic.

    After Lagent's blogging agents: writer and critic speak in turn for ``rounds`` rounds, and the
    writer writes a final version, which makes ``2 * rounds + 1`` model calls. Here the critic may
    also be satisfied before; then what it has read is the final version.

    Args:
        task: What is to be written.
        **options: Other fields of `BloggerForm`, such as ``rounds`` or ``critic_prefix``, those of
            a `Conversation`, such as ``end_chat``, and those of a `Speaker` in ``writer`` and
            ``critic``, each of which may also be the name alone.

    Returns:
        The conversation, ready for `converse`.

    Raises:
        SpecError: A field is empty, unknown or wrong; names it.

    Example:
        >>> from duologue.graphs import blogger, converse
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> model = ScriptedChatModel(script=["Bees dance.", "Say why.", "They map.", "SATISFIED"])
        >>> result = converse(blogger("A post on bees"), model=model, store="memory:docs")
        >>> result.last_message("Writer")
        'They map.'
    """
    return BloggerForm.of({"task": task, **options})


graph = build_graph(form=BloggerForm)
"""The blogger for LangGraph's servers and Studio, which bring their own checkpointer."""
