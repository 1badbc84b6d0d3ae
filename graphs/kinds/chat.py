"""Chat: a person talks with an agent that has tools, for as many rounds as the person likes.

After Agere's chat with tools.
"""

from typing import Unpack

from ..common.data import Cap, Temperature, Text
from ..conversation.conversation_options import (
    NO_APPROVALS,
    Approvals,
    SpeakerName,
    TaskOptions,
    Things,
    mark_default,
)
from ..prompts.prompts import fill_template, read_kind_prompt
from .short_form import Parts, form_of, short_form

CHAT = read_kind_prompt("chat_assistant")

CHAT_TOOLS = read_kind_prompt("chat_tools")

CHAT_SMALL_MODEL = read_kind_prompt("chat_assistant_small_model")
CHAT_REMINDER = read_kind_prompt("chat_assistant_small_model_reminder")


@short_form(
    roles={"user": "user", "assistant": "assistant"},
)
def chat(
    message: Text | None = None,
    *,
    user: SpeakerName = "User",
    assistant: SpeakerName = "Assistant",
    assistant_prompt: Text = CHAT,
    tools: Things = (),
    speaks_with_tool_calls: bool = True,
    interrupt_on: Approvals = NO_APPROVALS,
    max_iterations: Cap | None = None,
    temperature: Temperature = None,
    **options: Unpack[TaskOptions],
) -> Parts:
    """Build a conversation between a person and an agent with tools, for many rounds.

    After Agere's chat: the person is asked in each round, when everything in the previous round has
    ended. The agent may send text to the person with its tool calls. The person leaves with
    ``exit``. Only the person ends the conversation: if a guard finds a problem with the agent's
    replies, the person's question names it.

    Args:
        message: The person's first message. The person is asked for it if None.
        user: The person's name. Python and files also accept a speaker's fields.
        assistant: The agent's name. Python and files also accept a speaker's fields.
        assistant_prompt: The agent's system prompt. ``{me}`` and ``{user}`` in it are replaced by
            the two names.
        tools: The tools that the agent may call: registered names, or in Python the tools.
        speaks_with_tool_calls: Whether the agent may send text with its tool calls, as for a
            `Speaker`.
        interrupt_on: The tools that need the person's approval before they run, as for a
            `Speaker`.
        max_iterations: Maximum number of rounds. If None, the conversation continues until the
            person leaves.
        temperature: The agent's temperature. 0.2 if None.
        **options: Other fields of a `Conversation`, such as ``end_chat``, ``model`` or ``seed``.

    Returns:
        The conversation, ready for `converse`.

    Raises:
        SpecError: A field is empty, unknown or wrong; the message names it.

    Example:
        >>> from duologue import chat, converse
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
    speaks = speaks_with_tool_calls and bool(tools)
    prompts = [assistant_prompt, *([CHAT_TOOLS] if speaks else [])]
    replies: object = ("human",)
    if message:
        first = {"kind": "text", "text": message, "once": True}
        replies = mark_default((first, "human"), "message")
    agent = {
        "name": assistant,
        "system_prompt": mark_default(
            fill_template("\n".join(prompts), me=assistant, user=user), "assistant_prompt"
        ),
        "small_model_prompt": mark_default(
            {"system_prompt": CHAT_SMALL_MODEL, "reminder": CHAT_REMINDER}
        ),
        "tools": mark_default(tools, "tools"),
        "speaks_with_tool_calls": mark_default(speaks, "speaks_with_tool_calls", "tools"),
        "interrupt_on": mark_default(interrupt_on, "interrupt_on"),
        "model_settings": mark_default({"temperature": temperature}, "temperature"),
    }
    return {
        "title": mark_default(None if message else f"Chat with {assistant}"),
        "speakers": ({"name": user, "replies": replies}, agent),
        "end_chat": {
            "max_iterations": mark_default(max_iterations, "max_iterations"),
            "on_guard": mark_default("ask"),
            # Only the person ends the conversation, at any time.
            "allow_unanswered_end": mark_default(True),
        },
    }


ChatForm = form_of(chat)
