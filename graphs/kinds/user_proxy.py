"""User proxy: an assistant, and what speaks for a person: the person, code, tools or a default.

After AutoGen's assistant and user proxy.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self, Unpack

from pydantic import Field, field_validator, model_validator

from ...nodes.prompts.template import filled
from ...nodes.prompts.texts import of_kind
from ..build import build_graph
from ..common.data import MOST, Cap, Fields, Mark, Name, Named, Temperature, Text, Thing
from ..speakers.approval import InterruptOn, Rule
from ..speakers.replies import TERMINATE, HumanInputMode
from ..spec.changes.options import Role, TaskOptions
from ..spec.changes.own import Own
from ..spec.conversation import Conversation, Form
from ..spec.sandbox import Sandbox

ASSISTANT = of_kind("user_proxy_assistant")

MEANS_CODE = of_kind("user_proxy_code")

MEANS_TOOLS = of_kind("user_proxy_tools")

MEANS_WORDS = of_kind("user_proxy_words")

AUTO_REPLY = of_kind("user_proxy_auto_reply")
"""What is said where nothing else replies in a person's place."""

_OF_THE_PERSON = (
    *("human_input_mode", "max_consecutive_auto_reply", "termination", "is_termination"),
)


class UserProxyForm(Form):
    """The short form of an assistant and a user proxy; only the first message is needed."""

    roles: ClassVar = {"user": "user", "assistant": "assistant"}
    message_field: ClassVar = "message"

    message: Text
    """What the user says first: what is to be solved."""
    human_input_mode: HumanInputMode = HumanInputMode.ALWAYS
    """When a person is asked: ``ALWAYS``, ``TERMINATE`` or ``NEVER``."""
    max_consecutive_auto_reply: Annotated[int, Field(strict=True, ge=0, le=MOST)] = 100
    """How many replies in a row may be automatic; a person's text begins the count anew."""
    default_auto_reply: Text | None = AUTO_REPLY
    """What is said where nothing else replies; ``{termination}`` in it stands for that word. None,
    or an empty text: a blank, where code or a function may reply; else the person must."""
    is_termination: Named | None = None
    """A registered predicate that finds termination messages. None: ``termination`` ends them."""
    termination: Mark = TERMINATE
    """The word that ends a termination message."""
    user: Name = "User"
    """What the user is called."""
    assistant: Name = "Assistant"
    """What the assistant is called."""
    assistant_prompt: Text | None = None
    """The assistant's system prompt; ``{me}``, ``{user}`` and ``{termination}`` in it stand for the
    names and the word. None: one that says how to get code run or tools called."""
    user_prompt: Text | None = None
    """The system prompt of a model that replies for the user in the place of the default; None: no
    model does."""
    code: bool = True
    """Whether code in the assistant's messages is run, where no person says something."""
    sandbox: Sandbox = Sandbox()
    """Where the code runs, and within which limits."""
    functions: tuple[Named, ...] = ()
    """Registered functions that may reply for the user, tried before code."""
    tools: tuple[Named, ...] = ()
    """The tools that the assistant may call. Their calls pass through the user."""
    interrupt_on: dict[Named, Rule] = Field(default_factory=dict)
    """The tools that a person must approve of before they run, as for a `Speaker`."""
    max_iterations: Cap | None = None
    """The cap, in rounds. None: there is none but that on automatic replies."""
    temperature: Temperature = None
    """The temperature of both. None: 0.2."""
    seed: int | None = None
    """Asks a model that can for the same conversation again."""
    model: Text | None = None
    """The model of both: a name, ``embedded`` or the path of a ``.gguf`` file."""

    @field_validator("default_auto_reply", mode="before")
    @classmethod
    def _may_be_empty(cls, given: object) -> object:
        """AutoGen's own default is the empty text."""
        return None if given == "" else given

    def _others(self) -> dict[str, Any]:
        names = {"user": self.user, "termination": self.termination}
        human = {
            "kind": "human",
            **{name: self.own(getattr(self, name), name) for name in _OF_THE_PERSON},
            "sees_calls": self.own(bool(self.tools), "tools"),
        }
        model_settings = self.shared({"temperature": self.temperature}, "temperature")
        user = {
            "name": self.user,
            "replies": Own(
                (
                    {"kind": "text", "text": self.message, "once": True},
                    human,
                    *({"kind": "function", "name": name} for name in self.functions),
                    *(["code"] if self.code else []),
                    *self._last_reply(),
                ),
                "message",
            ),
            "system_prompt": self.own(
                self.user_prompt and filled(self.user_prompt, me=self.user, **names), "user_prompt"
            ),
            "model_settings": model_settings,
        }
        told = filled(self._assistant_prompt(), me=self.assistant, **names)
        assistant = {
            "name": self.assistant,
            "system_prompt": self.own(told, "assistant_prompt"),
            "tools": self.own(self.tools, "tools"),
            "interrupt_on": self.own(self.interrupt_on, "interrupt_on"),
            "model_settings": model_settings,
        }
        return {
            "speakers": (user, assistant),
            "end_chat": {
                "max_iterations": self.own(self.max_iterations, "max_iterations"),
                # The message that is given to it is what an answer ends, as in AutoGen.
                "allow_unanswered_end": self.own(True),
            },
        }

    @model_validator(mode="after")
    def _something_replies(self) -> Self:
        behind = self.functions or self.code or self.user_prompt or self.default_auto_reply
        if not behind and self.human_input_mode is not HumanInputMode.ALWAYS:
            raise ValueError(
                "default_auto_reply: nothing replies where no person is asked: give a text, code, "
                "functions or user_prompt"
            )
        return self

    def _last_reply(self) -> list[object]:
        if self.user_prompt is not None:
            return ["model"]
        if self.default_auto_reply is None:
            return []
        said = filled(self.default_auto_reply, termination=self.termination)
        return [{"kind": "text", "text": self.own(said, "default_auto_reply")}]

    def _assistant_prompt(self) -> str:
        if self.assistant_prompt is not None:
            return self.assistant_prompt
        means = [*([MEANS_TOOLS] if self.tools else []), *([MEANS_CODE] if self.code else [])]
        said = " Or ".join(means) or MEANS_WORDS
        return ASSISTANT.replace("{means}", said)


class UserProxyOptions(TaskOptions, total=False):
    """What `user_proxy` takes by name."""

    human_input_mode: HumanInputMode | str
    max_consecutive_auto_reply: int
    default_auto_reply: str | None
    is_termination: Thing | None
    termination: str
    user: Role
    assistant: Role
    assistant_prompt: str | None
    user_prompt: str | None
    code: bool
    functions: Sequence[Thing]
    tools: Sequence[Thing]
    interrupt_on: Mapping[Any, bool | InterruptOn | Fields]
    max_iterations: int | None
    temperature: Temperature


def user_proxy(message: str, **options: Unpack[UserProxyOptions]) -> Conversation:
    r"""Make a conversation of an assistant and what speaks for its user.

    After AutoGen's assistant and user proxy. The user says ``message``; to each answer of the
    assistant a person replies, a registered function, the code of that answer as it ran in the
    sandbox, a model if it is given a prompt, or a default text, tried in this order.
    ``human_input_mode`` says when the person is asked:

    - ``NEVER``: never. A termination message ends it, and the cap on automatic replies.
    - ``ALWAYS``: at every message. Text is sent, and begins the count anew; nothing leaves it to
      what comes after, or ends it after a termination message; ``exit`` leaves. The cap does not
      count.
    - ``TERMINATE``: at a termination message, where nothing ends it, and once the cap is reached,
      then at each message until a text begins the count anew.

    Other than AutoGen's, a termination message is one that ends with the word, code beside it runs
    first, and nobody sends a blank where the cap is 0.

    Args:
        message: What the user says first.
        **options: Other fields of `UserProxyForm`: ``human_input_mode``,
            ``max_consecutive_auto_reply``, ``default_auto_reply``, ``is_termination`` and so on,
            those of a `Conversation`, such as ``end_chat``, and those of a `Speaker` in ``user``
            and ``assistant``, each of which may also be the name alone.

    Returns:
        The conversation, ready for `converse`, whose ``answer`` may answer for the person.

    Raises:
        SpecError: A field is empty, unknown or wrong; names it.

    Example:
        >>> from duologue.graphs import converse, user_proxy
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> model = ScriptedChatModel(script=["It is 4. TERMINATE"])
        >>> sums = user_proxy("What is 2 + 2?", human_input_mode="NEVER")
        >>> result = converse(sums, model=model, store="memory:docs")
        >>> result.outcome.reason.value, result.outcome.by
        ('termination', 'Assistant')
    """
    return UserProxyForm.of({"message": message, **options})


graph = build_graph(form=UserProxyForm)
"""The user proxy for LangGraph's servers and Studio, which bring their own checkpointer."""
