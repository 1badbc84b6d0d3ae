"""Chat and user proxy: a person, or a proxy for a person, talks with an agent.

After Agere's chat with tools, in which the person is asked in each round, and AutoGen's assistant
and user proxy, whose replies come from a person, code, tools or a default.
"""

from typing import Annotated, Unpack

from pydantic import BeforeValidator, Field

from ..common.data import MOST, Cap, Mark, Named, Temperature, Text, Thing
from ..common.errors import SpecError
from ..conversation.conversation_options import (
    NO_APPROVALS,
    Approvals,
    ReadAs,
    SpeakerName,
    TaskOptions,
    Things,
    mark_default,
    mark_shared_default,
)
from ..prompts.prompts import fill_template, read_kind_prompt
from ..speakers.replies import TERMINATE, HumanInputMode
from .load import Parts, form_of, mark_options, read_small_model_prompt, short_form

ASSISTANT = read_kind_prompt("user_proxy_assistant")

MEANS_CODE = read_kind_prompt("user_proxy_use_code")

MEANS_TOOLS = read_kind_prompt("user_proxy_use_tools")

MEANS_WORDS = read_kind_prompt("user_proxy_ask")

AUTO_REPLY = read_kind_prompt("user_proxy_auto_reply")
"""The reply if no other source replies for the person."""


@short_form(
    roles={"user": "user", "assistant": "assistant"},
    message="message",
    shown=["sandbox"],
)
def user_proxy(
    message: Text,
    *,
    human_input_mode: Annotated[
        HumanInputMode | str, ReadAs(HumanInputMode)
    ] = HumanInputMode.ALWAYS,
    max_consecutive_auto_reply: Annotated[int, Field(strict=True, ge=0, le=MOST)] = 100,
    # The empty text is AutoGen's own default.
    default_auto_reply: Annotated[
        Text | None, BeforeValidator(lambda text: None if text == "" else text)
    ] = AUTO_REPLY,
    is_termination: Annotated[Thing | None, ReadAs(Named | None)] = None,
    termination: Mark = TERMINATE,
    user: SpeakerName = "User",
    assistant: SpeakerName = "Assistant",
    assistant_prompt: Text | None = None,
    user_prompt: Text | None = None,
    code: bool = True,
    functions: Things = (),
    tools: Things = (),
    interrupt_on: Approvals = NO_APPROVALS,
    max_iterations: Cap | None = None,
    temperature: Temperature = None,
    **options: Unpack[TaskOptions],
) -> Parts:
    r"""Build a conversation between an assistant and the user's proxy.

    After AutoGen's assistant and user proxy. The user's first message is ``message``. The reply to
    each answer of the assistant comes from the first of these sources that has one: a person, a
    registered function, the output of the answer's code in the sandbox, a model if it has a prompt,
    or a default text. ``human_input_mode`` determines when the person is asked:

    - ``NEVER``: never. A termination message or the cap on automatic replies ends the conversation.
    - ``ALWAYS``: at every message. A text is sent and resets the count of automatic replies. An
      empty answer leaves the reply to the next source, or ends the conversation after a termination
      message. ``exit`` leaves. The cap does not apply.
    - ``TERMINATE``: at a termination message; an empty answer then ends the conversation. Also when
      the cap is reached, and after that at each message until a text resets the count.

    There are three differences from AutoGen: a termination message is a message that ends with the
    word, code in such a message runs first, and no blank message is sent if the cap is 0.

    Args:
        message: The user's first message, which states the problem.
        human_input_mode: The rule for when a person is asked: ``ALWAYS``, ``TERMINATE`` or
            ``NEVER``.
        max_consecutive_auto_reply: Maximum number of consecutive automatic replies. A person's text
            resets the count.
        default_auto_reply: The reply if no other source replies. ``{termination}`` in it is
            replaced by that word. If None or empty, the reply is blank if there is code or a
            function; otherwise the person must reply.
        is_termination: A registered predicate, or in Python the function, that detects termination
            messages. If None, the word ``termination`` is used.
        termination: The word that ends a termination message.
        user: The user's name. Python and files also accept a speaker's fields.
        assistant: The assistant's name. Python and files also accept a speaker's fields.
        assistant_prompt: The assistant's system prompt. ``{me}``, ``{user}`` and ``{termination}``
            in it are replaced by the names and the word. If None, a prompt that explains how to get
            code run or tools called.
        user_prompt: The system prompt of a model that replies for the user instead of the default
            text. No model replies if None.
        code: Whether code in the assistant's messages is run if the person writes no text.
        functions: Registered functions, or in Python the functions, that may reply for the user;
            they are tried before code.
        tools: The tools that the assistant may call. Their calls pass through the user.
        interrupt_on: The tools that need a person's approval before they run, as for a `Speaker`.
        max_iterations: Maximum number of rounds. If None, only the automatic replies have a cap.
        temperature: The temperature of both speakers. 0.2 if None.
        **options: Other fields of a `Conversation`, such as ``sandbox``, ``end_chat`` or ``model``.

    Returns:
        The conversation, ready for `converse`, whose argument ``answer`` may answer for the person.

    Raises:
        SpecError: A field is empty, unknown or wrong; the message names it.

    Example:
        >>> from duologue import converse, user_proxy
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> model = ScriptedChatModel(script=["It is 4. TERMINATE"])
        >>> sums = user_proxy("What is 2 + 2?", human_input_mode="NEVER")
        >>> result = converse(sums, model=model, store="memory:docs")
        >>> result.outcome.reason.value, result.outcome.by
        ('termination', 'Assistant')
    """
    may_reply = functions or code or user_prompt or default_auto_reply
    if not may_reply and human_input_mode is not HumanInputMode.ALWAYS:
        raise SpecError(
            "default_auto_reply: the user proxy has no reply if no person is asked; set a "
            "text, code, functions or user_prompt"
        )
    names = {"user": user, "termination": termination}
    human = {
        "kind": "human",
        **mark_options(
            human_input_mode=human_input_mode,
            max_consecutive_auto_reply=max_consecutive_auto_reply,
            termination=termination,
            is_termination=is_termination,
        ),
        "sees_calls": mark_default(bool(tools), "tools"),
    }
    last: list[object] = []
    if user_prompt is not None:
        last = ["model"]
    elif default_auto_reply is not None:
        text = fill_template(default_auto_reply, termination=termination)
        last = [{"kind": "text", "text": mark_default(text, "default_auto_reply")}]
    if assistant_prompt is None:
        means = [*([MEANS_TOOLS] if tools else []), *([MEANS_CODE] if code else [])]
        assistant_prompt = ASSISTANT.replace("{means}", " Or ".join(means) or MEANS_WORDS)
    model_settings = mark_shared_default({"temperature": temperature}, "temperature")
    user_speaker = {
        "name": user,
        "replies": mark_default(
            (
                {"kind": "text", "text": message, "once": True},
                human,
                *({"kind": "function", "name": name} for name in functions),
                *(["code"] if code else []),
                *last,
            ),
            "message",
        ),
        "system_prompt": mark_default(
            user_prompt and fill_template(user_prompt, me=user, **names), "user_prompt"
        ),
        "model_settings": model_settings,
    }
    assistant_speaker = {
        "name": assistant,
        "system_prompt": mark_default(
            fill_template(assistant_prompt, me=assistant, **names), "assistant_prompt"
        ),
        **mark_options(tools=tools, interrupt_on=interrupt_on),
        "model_settings": model_settings,
    }
    return {
        "speakers": (user_speaker, assistant_speaker),
        "end_chat": {
            "max_iterations": mark_default(max_iterations, "max_iterations"),
            # As in AutoGen, the assistant's first answer may end the conversation.
            "allow_unanswered_end": mark_default(True),
        },
    }


UserProxyForm = form_of(user_proxy)


CHAT = read_kind_prompt("chat_assistant")

CHAT_TOOLS = read_kind_prompt("chat_tools")

CHAT_SMALL_MODEL = read_small_model_prompt("chat_assistant")


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
        "small_model_prompt": mark_default(CHAT_SMALL_MODEL),
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
