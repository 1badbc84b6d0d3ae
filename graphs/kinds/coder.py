"""Coder: an agent writes code, the code is run, and the agent goes on from what came of it.

After Lagent's coder. Code is what stands in a fence that is marked with a language which the
sandbox runs. The conversation ends with the first message that holds none, or when the runs are
used up; either way the agent has the last word.
"""

from typing import Annotated, Any, ClassVar, Unpack

from pydantic import Field

from ...nodes.prompts.template import filled
from ...nodes.prompts.texts import of_kind
from ..build import build_graph
from ..common.data import MOST, Name, Temperature, Text
from ..spec.changes.options import CommonOptions, Role
from ..spec.conversation import Conversation, Form
from ..spec.ends import MaxMessages, NoCodeBlock
from ..spec.sandbox import Sandbox

CODER = of_kind("coder")

CODER_BRIEF = of_kind("coder_brief")
CODER_REMINDER = of_kind("coder_reminder")

BEGIN_CODING = of_kind("coder_begin")


class CoderForm(Form):
    """The short form of an agent whose code is run; only the task is needed."""

    roles: ClassVar = {"executor": "executor", "coder": "coder"}
    message_field: ClassVar = "task"

    task: Text
    """What is to be solved."""
    coder: Name = "Coder"
    """What the agent is called."""
    executor: Name = "Executor"
    """What runs the code is called."""
    coder_prompt: Text = CODER
    """The agent's system prompt; ``{task}`` in it stands for the task."""
    executions: Annotated[int, Field(strict=True, gt=0, le=MOST // 2 - 1)] = 3
    """How often code is run, at most; then the agent has the last word."""
    sandbox: Sandbox = Sandbox()
    """Where the code runs, and within which limits."""
    temperature: Temperature = None
    """The agent's temperature. None: 0.2."""
    seed: int | None = None
    """Asks a model that can for the same conversation again."""
    model: Text | None = None
    """The agent's model: a name, ``embedded`` or the path of a ``.gguf`` file."""

    def _others(self) -> dict[str, Any]:
        names = {"coder": self.coder, "executor": self.executor, "executions": self.executions}
        agent = {
            "name": self.coder,
            "system_prompt": self.own(filled(self.coder_prompt, **names), "coder_prompt"),
            "small_model_prompt": self.own(
                {"system_prompt": CODER_BRIEF, "reminder": CODER_REMINDER}
            ),
            "model_settings": self.own({"temperature": self.temperature}, "temperature"),
        }
        # A text or some JSON in the agent's answer is no code.
        code = {"kind": "code", "fences": self.own("marked")}
        return {
            "speakers": ({"name": self.executor, "replies": (code,)}, agent),
            "opening": {"first_speaker": self.coder, "first_line": self.own(BEGIN_CODING)},
            "end_chat": {
                # The last round is the agent's alone.
                "max_iterations": self.own(self.executions + 1, "executions"),
                "when": self.own(
                    NoCodeBlock(by=self.coder) | MaxMessages(limit=2 * self.executions + 1),
                    "executions",
                ),
            },
        }


class CoderOptions(CommonOptions, total=False):
    """What `coder` takes by name."""

    coder: Role
    executor: Role
    coder_prompt: str
    executions: int
    temperature: Temperature


def coder(task: str, **options: Unpack[CoderOptions]) -> Conversation:
    r"""Make a conversation of an agent that writes code and of what runs it.

    After Lagent's coder: the code of each message, in fences marked with a language that the
    sandbox runs, is run there, its variables are kept, and what came of it goes back to the agent,
    up to ``executions`` times. Lagent's gives the last output where these are used up; here the
    agent is asked once more, and what it says then is the last word, whose code is not run.

    Args:
        task: What is to be solved.
        **options: Other fields of `CoderForm`, such as ``executions`` or ``sandbox``, those of a
            `Conversation`, such as ``end_chat``, and those of a `Speaker` in ``coder`` and
            ``executor``, each of which may also be the name alone.

    Returns:
        The conversation, ready for `converse`.

    Raises:
        SpecError: A field is empty, unknown or wrong; names it.

    Example:
        >>> from duologue.graphs import coder, converse
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> code = "```python\nprint(sum(range(5)))\n```"
        >>> model = ScriptedChatModel(script=[code, "The sum is 10."])
        >>> result = converse(coder("Sum 0 to 4"), model=model, store="memory:docs")
        >>> result.transcript[1]
        ('Executor', 'Exit code: 0 (it succeeded)\nOutput:\n10')
        >>> result.outcome.reason.value
        'no_code_block'
    """
    return CoderForm.of({"task": task, **options})


graph = build_graph(form=CoderForm)
"""The coder for LangGraph's servers and Studio, which bring their own checkpointer."""
