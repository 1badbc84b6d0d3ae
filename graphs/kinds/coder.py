"""Coder and blogger, after Lagent's examples: an agent improves its work with each message.

Coder: an agent writes code, the code is run, and the agent continues with the output. Only fences
marked with a language that the sandbox runs count as code. The conversation ends with the first
message without code, or after the maximum number of runs. In both cases the agent has the last
word.

Blogger: the writer writes, the critic names the weaknesses, and the writer revises the text. The
last message is the writer's final version, unless the critic is satisfied earlier.
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
from ..ends.events import DoneToken, NoCodeBlock
from ..ends.limits import MaxMessages
from ..prompts.prompts import fill_template, read_kind_prompt
from ..rules.turns import with_people
from .load import Parts, form_of, read_small_model_prompt, short_form

SATISFIED = "SATISFIED"
"""A critic's word for a text that needs no change."""

WRITER = read_kind_prompt("blogger_writer")

CRITIC = read_kind_prompt("blogger_critic")

CRITIC_PREFIX = read_kind_prompt("blogger_critic_prefix") + "\n\n"

WRITER_SMALL_MODEL = read_small_model_prompt("blogger_writer")

CRITIC_SMALL_MODEL = read_small_model_prompt("blogger_critic")

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
        "small_model_prompt": mark_default(WRITER_SMALL_MODEL),
        "writes_output": mark_default(True),
        "model_settings": model_settings,
    }
    reading = {
        "name": critic,
        "system_prompt": mark_default(fill_template(critic_prompt, **names), "critic_prompt"),
        "small_model_prompt": mark_default(CRITIC_SMALL_MODEL),
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


CODER = read_kind_prompt("coder")

CODER_SMALL_MODEL = read_small_model_prompt("coder")

BEGIN_CODING = read_kind_prompt("coder_begin")


@short_form(
    roles={"executor": "executor", "coder": "coder"},
    message="task",
    shown=["sandbox"],
)
def coder(
    task: Text,
    *,
    coder: SpeakerName = "Coder",
    executor: SpeakerName = "Executor",
    coder_prompt: Text = CODER,
    executions: Annotated[int, Field(strict=True, gt=0, le=MOST // 2 - 1)] = 3,
    temperature: Temperature = None,
    **options: Unpack[CommonOptions],
) -> Parts:
    r"""Build a conversation between an agent that writes code and a speaker that runs it.

    After Lagent's coder: the sandbox runs the code in each message of the agent, and the agent
    receives the output, up to ``executions`` times. Only fences marked with a language that the
    sandbox runs count as code. Variables are kept between runs. After the last run, Lagent returns
    the output; here the agent is asked once more. This answer is the last message, and code in it
    is not run.

    Args:
        task: The problem to solve.
        coder: The agent's name. Python and files also accept a speaker's fields.
        executor: The name of the speaker that runs the code. Python and files also accept a
            speaker's fields.
        coder_prompt: The agent's system prompt. ``{task}`` in it is replaced by the task.
        executions: Maximum number of times that code is run; then the agent has the last word.
        temperature: The agent's temperature. 0.2 if None.
        **options: Other fields of a `Conversation`, such as ``sandbox``, ``end_chat`` or ``model``.

    Returns:
        The conversation, ready for `converse`.

    Raises:
        SpecError: A field is empty, unknown or wrong; the message names it.

    Example:
        >>> from duologue import coder, converse
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> code = "```python\nprint(sum(range(5)))\n```"
        >>> model = ScriptedChatModel(script=[code, "The sum is 10."])
        >>> result = converse(coder("Sum 0 to 4"), model=model, store="memory:docs")
        >>> result.transcript[1]
        ('Executor', 'Exit code: 0 (it succeeded)\nOutput:\n10')
        >>> result.outcome.reason.value
        'no_code_block'
    """
    names = {"coder": coder, "executor": executor, "executions": executions}
    agent = {
        "name": coder,
        "system_prompt": mark_default(fill_template(coder_prompt, **names), "coder_prompt"),
        "small_model_prompt": mark_default(CODER_SMALL_MODEL),
        "writes_output": mark_default(True),
        "model_settings": mark_default({"temperature": temperature}, "temperature"),
    }
    # Unmarked fences in the agent's answer may contain text or JSON.
    code = {"kind": "code", "fences": mark_default("marked")}
    return {
        "speakers": ({"name": executor, "replies": (code,)}, agent),
        "opening": {"first_speaker": coder, "first_line": mark_default(BEGIN_CODING)},
        "end_chat": {
            # Only the agent speaks in the last round.
            "max_iterations": mark_default(executions + 1, "executions"),
            "when": mark_default(
                NoCodeBlock(by=str(coder)) | MaxMessages(limit=2 * executions + 1),
                "executions",
            ),
        },
    }


CoderForm = form_of(coder)
