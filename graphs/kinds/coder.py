"""Coder: an agent writes code, the code is run, and the agent continues with the output.

After Lagent's coder. Only fences marked with a language that the sandbox runs count as code. The
conversation ends with the first message without code, or after the maximum number of runs. In both
cases the agent has the last word.
"""

from typing import Annotated, Unpack

from pydantic import Field

from ..common.data import MOST, Temperature, Text
from ..conversation.conversation_options import CommonOptions, SpeakerName, mark_default
from ..ends.events import NoCodeBlock
from ..ends.limits import MaxMessages
from ..prompts.prompts import fill_template, read_kind_prompt
from .short_form import Parts, form_of, short_form

CODER = read_kind_prompt("coder")

CODER_SMALL_MODEL = read_kind_prompt("coder_small_model")
CODER_REMINDER = read_kind_prompt("coder_small_model_reminder")

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
        "small_model_prompt": mark_default(
            {"system_prompt": CODER_SMALL_MODEL, "reminder": CODER_REMINDER}
        ),
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
