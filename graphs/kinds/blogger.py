"""Blogger: a writer and a critic improve a text in rounds, after Lagent's example.

The writer writes, the critic names the weaknesses, and the writer revises the text. The last
message is the writer's final version, unless the critic is satisfied earlier.
"""

from typing import Annotated, Unpack

from pydantic import Field

from ..common.data import MOST, Mark, Temperature, Text
from ..conversation.conversation_options import (
    CommonOptions,
    Names,
    SpeakerName,
    mark_default,
    mark_shared_default,
)
from ..conversation.fields import Opening
from ..ends.done_token import DoneToken
from ..ends.limits import MaxMessages
from ..prompts.prompts import fill_template, read_kind_prompt
from ..rules.turns import with_people
from .short_form import Parts, form_of, short_form

SATISFIED = "SATISFIED"
"""A critic's word for a text that needs no change."""

WRITER = read_kind_prompt("blogger_writer")

CRITIC = read_kind_prompt("blogger_critic")

CRITIC_PREFIX = read_kind_prompt("blogger_critic_prefix") + "\n\n"

WRITER_SMALL_MODEL = read_kind_prompt("blogger_writer_small_model")

WRITER_REMINDER = read_kind_prompt("blogger_writer_small_model_reminder")

CRITIC_SMALL_MODEL = read_kind_prompt("blogger_critic_small_model")

CRITIC_REMINDER = read_kind_prompt("blogger_critic_small_model_reminder")

BEGIN_WRITING = read_kind_prompt("blogger_begin")


@short_form(
    roles={"writer": "writer", "critic": "critic"},
    message="task",
)
def blogger(
    task: Text,
    *,
    writer: SpeakerName = "Writer",
    critic: SpeakerName = "Critic",
    writer_prompt: Text = WRITER,
    critic_prompt: Text = CRITIC,
    critic_prefix: Text | None = CRITIC_PREFIX,
    rounds: Annotated[int, Field(strict=True, gt=0, le=MOST // 2 - 1)] = 3,
    satisfied: Mark = SATISFIED,
    temperature: Temperature = None,
    people: Names = (),
    **options: Unpack[CommonOptions],
) -> Parts:
    """Build a conversation between a writer and a critic.

    After Lagent's blogging agents: writer and critic speak in turn for ``rounds`` rounds, and the
    writer writes a final version, which makes ``2 * rounds + 1`` model calls. Here the critic may
    also be satisfied earlier; then the version that it has just read is final.

    Args:
        task: The subject of the text.
        writer: The writer's name. Python and files also accept a speaker's fields.
        critic: The critic's name. Python and files also accept a speaker's fields.
        writer_prompt: The writer's system prompt. ``{task}`` in it is replaced by the task.
        critic_prompt: The critic's system prompt. ``{task}`` in it is replaced by the task.
        critic_prefix: Text prepended to each text that the critic reads. No text if None.
        rounds: Maximum number of the critic's messages; then the writer writes the final version.
        satisfied: The word with which the critic accepts the text and ends the conversation.
        temperature: The temperature of both speakers. 0.2 if None.
        people: The names of the speakers for whom people write.
        **options: Other fields of a `Conversation`, such as ``end_chat``, ``model`` or ``seed``.

    Returns:
        The conversation, ready for `converse`.

    Raises:
        SpecError: A field is empty, unknown or wrong; the message names it.

    Example:
        >>> from duologue import blogger, converse
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> model = ScriptedChatModel(script=["Bees dance.", "Say why.", "They map.", "SATISFIED"])
        >>> result = converse(blogger("A post on bees"), model=model, store="memory:docs")
        >>> result.output
        'They map.'
    """
    names = {"writer": str(writer), "critic": str(critic), "satisfied": satisfied}
    model_settings = mark_shared_default({"temperature": temperature}, "temperature")
    prefixes = {} if critic_prefix is None else {names["writer"]: critic_prefix}
    writing = {
        "name": writer,
        "system_prompt": mark_default(fill_template(writer_prompt, **names), "writer_prompt"),
        "small_model_prompt": mark_default(
            {"system_prompt": WRITER_SMALL_MODEL, "reminder": WRITER_REMINDER}
        ),
        "writes_output": mark_default(True),
        "model_settings": model_settings,
    }
    reading = {
        "name": critic,
        "system_prompt": mark_default(fill_template(critic_prompt, **names), "critic_prompt"),
        "small_model_prompt": mark_default(
            {"system_prompt": CRITIC_SMALL_MODEL, "reminder": CRITIC_REMINDER}
        ),
        "prefixes": mark_default(prefixes, "critic_prefix"),
        "model_settings": model_settings,
    }
    final = MaxMessages(limit=2 * rounds + 1)
    return {
        "speakers": with_people([writing, reading], people),
        "opening": mark_default(Opening(first_line=BEGIN_WRITING)),
        "end_chat": {
            # Only the writer speaks in the last round.
            "max_iterations": mark_default(rounds + 1, "rounds"),
            "when": mark_default(
                DoneToken(token=satisfied, by=names["critic"]) | final, "rounds", "satisfied"
            ),
        },
    }


BloggerForm = form_of(blogger)
