"""Chat: a person and an agent with tools, for as many rounds as the person likes.

After Agere's chat with tools.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

from pydantic import Field

from ...nodes.prompts.template import filled
from ...nodes.prompts.texts import of_kind
from ..build import build_graph
from ..common.data import Cap, Fields, Name, Named, Temperature, Text, Thing
from ..speakers.approval import InterruptOn, Rule
from ..spec.changes.options import Role, TaskOptions
from ..spec.changes.own import Own
from ..spec.conversation import Conversation, Form

CHAT = of_kind("chat")

CHAT_TOOLS = of_kind("chat_tools")

CHAT_BRIEF = of_kind("chat_brief")
CHAT_REMINDER = of_kind("chat_reminder")


class ChatForm(Form):
    """The short form of a chat between a person and an agent; no field is needed."""

    roles: ClassVar = {"user": "user", "assistant": "assistant"}

    message: Text | None = None
    """What the person says first. None: the person is asked."""
    user: Name = "User"
    """What the person is called."""
    assistant: Name = "Assistant"
    """What the agent is called."""
    assistant_prompt: Text = CHAT
    """The agent's system prompt; ``{me}`` and ``{user}`` in it stand for the two names."""
    tools: tuple[Named, ...] = ()
    """The tools that the agent may call: registered names, or in Python the tools."""
    speaks_with_tool_calls: bool = True
    """Whether the agent may say something while it calls tools, as for a `Speaker`."""
    interrupt_on: dict[Named, Rule] = Field(default_factory=dict)
    """The tools that the person must approve of before they run, as for a `Speaker`."""
    max_iterations: Cap | None = None
    """The cap, in rounds. None: it goes on until the person leaves."""
    temperature: Temperature = None
    """The agent's temperature. None: 0.2."""
    seed: int | None = None
    """Asks a model that can for the same conversation again."""
    model: Text | None = None
    """The agent's model: a name, ``embedded`` or the path of a ``.gguf`` file."""

    def _others(self) -> dict[str, Any]:
        speaks = self.speaks_with_tool_calls and bool(self.tools)
        prompts = [self.assistant_prompt, *([CHAT_TOOLS] if speaks else [])]
        replies: object = ("human",)
        if self.message:
            first = {"kind": "text", "text": self.message, "once": True}
            replies = Own((first, "human"), "message")
        agent = {
            "name": self.assistant,
            "system_prompt": self.own(
                filled("\n".join(prompts), me=self.assistant, user=self.user), "assistant_prompt"
            ),
            "small_model_prompt": self.own(
                {"system_prompt": CHAT_BRIEF, "reminder": CHAT_REMINDER}
            ),
            "tools": self.own(self.tools, "tools"),
            "speaks_with_tool_calls": self.own(speaks, "speaks_with_tool_calls", "tools"),
            "interrupt_on": self.own(self.interrupt_on, "interrupt_on"),
            "model_settings": self.own({"temperature": self.temperature}, "temperature"),
        }
        return {
            "title": self.own(None if self.message else f"Chat with {self.assistant}"),
            "speakers": ({"name": self.user, "replies": replies}, agent),
            "end_chat": {
                "max_iterations": self.own(self.max_iterations, "max_iterations"),
                "on_guard": self.own("ask"),
                # Nothing but the person ends it, whenever the person likes.
                "allow_unanswered_end": self.own(True),
            },
        }


class ChatOptions(TaskOptions, total=False):
    """What `chat` takes by name."""

    user: Role
    assistant: Role
    assistant_prompt: str
    tools: Sequence[Thing]
    speaks_with_tool_calls: bool
    interrupt_on: Mapping[Any, bool | InterruptOn | Fields]
    max_iterations: int | None
    temperature: Temperature


def chat(message: str | None = None, **options: Unpack[ChatOptions]) -> Conversation:
    """Make a conversation of a person and an agent with tools, for many rounds.

    After Agere's chat: the person is asked in each round, once everything of the round before has
    ended; the agent may speak to the person while it calls tools; ``exit`` leaves. Nothing but the
    person ends it: where a guard finds that the agent goes wrong, the person is told so.

    Args:
        message: What the person says first. None: the person is asked.
        **options: Other fields of `ChatForm`, such as ``tools`` or ``assistant_prompt``, those of a
            `Conversation`, such as ``end_chat``, and those of a `Speaker` in ``user`` and
            ``assistant``, each of which may also be the name alone.

    Returns:
        The conversation, ready for `converse`.

    Raises:
        SpecError: A field is empty, unknown or wrong; names it.

    Example:
        >>> from duologue.graphs import chat, converse
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> answers = iter(["What is 6 times 7?", "exit"])
        >>> model = ScriptedChatModel(script=["42."])
        >>> result = converse(
        ...     chat(), model=model, store="memory:docs", answer=lambda question: next(answers)
        ... )
        >>> result.transcript
        [('User', 'What is 6 times 7?'), ('Assistant', '42.')]
        >>> result.outcome.reason.value
        'quit'
    """
    return ChatForm.of({"message": message, **options})


graph = build_graph(form=ChatForm)
"""The chat for LangGraph's servers and Studio, which bring their own checkpointer."""
