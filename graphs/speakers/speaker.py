"""Who takes part in a conversation, as data."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from pydantic import Field, ValidationInfo, field_validator

from ..common.data import (
    AtLeast,
    DistinctNames,
    Name,
    Named,
    Spec,
    Text,
)
from ..common.validation import did_you_mean
from .context import Context, KeepAll
from .formats import Format, LabelledFormat, SchemaFormat
from .interrupt_on import Rule
from .model_settings import ModelSettings, PrivateOpening, SmallModelPrompt
from .private_messages import Examples, PrivateMessage
from .replies import AnyReply, CodeReply, HumanInputMode, HumanReply, ModelReply, TextReply
from .speaker_options import SpeakerChanges, SpeakerOptions

TO_USER = "to_user"
"""The argument of a tool call that the speaker says aloud (Agere); the tool does not receive it."""

SPEAKER_TEMPERATURE = 0.2
"""What speakers use unless told otherwise (CAMEL's and LazyLLM's low temperature)."""


class Speaker(Spec):
    """One participant of a conversation.

    Raises:
        SpecError: A field is missing, unknown or wrong; the examples do not begin with the user's
            message and end with the assistant's; a reply is never reached; nothing calls the tools,
            or no reply of the speaker's format could.
    """

    name: Name = Field(kw_only=False)
    """How the speaker is called by the others; no two may share a name."""
    system_prompt: Text | None = Field(default=None, kw_only=False)
    """The system prompt. ``{task}`` in it stands for the conversation's task; where it does not
    appear, the task follows the prompt. None: a neutral prompt that names the participants."""
    task: Text | None = None
    """The speaker's own task, which the others do not see."""
    private_opening: PrivateOpening | None = None
    """What it alone knows before the conversation."""
    memory: tuple[PrivateMessage, ...] = ()
    """Its memory of earlier conversations, which only it sees: LangChain messages, or what
    `add_messages` accepts. The assistant's messages are its own; a name says whom it heard the
    user's from. `remember` and `Result.memory` return them."""
    replies: Annotated[tuple[AnyReply, ...], AtLeast(1)] = (ModelReply(),)
    """What gives its replies, tried in order until one does; the reply is blank where none does."""
    examples: Examples = ()
    """Examples of its answers, shown after its system prompt (few-shot): messages as in ``memory``,
    the first one the user's and the last one the assistant's."""
    prefixes: dict[Name, Text] = Field(default_factory=dict)
    """For other speakers, by name, what stands in front of each line that it hears from them."""
    labels: bool | None = None
    """Whether what it hears is labelled with who said it. None: where more than two take part, or
    opening answers are reconciled."""
    speaks_to: tuple[Name, ...] | None = None
    """Who alone hears what it says in the rounds, by name. None: all."""
    hooks: DistinctNames = ()
    """The hooks that see what it hears, says and calls, in order: registered names, or in Python
    the hooks themselves."""
    small_model_prompt: SmallModelPrompt | None = None
    """What it is told instead where the embedded model speaks for it."""
    checks_completion: bool = False
    """Whether it is asked, after each of its turns in the rounds, if its task is complete. Where a
    separate judge decides, that one is asked then."""
    keep_self_reflection: bool = False
    """Whether that question and its answer stay in the speaker's own view; of a separate judge,
    what it found."""
    format: Format | None = None
    """What its replies look like. One that does not fit is asked for once more."""
    tools: DistinctNames = ()
    """The tools it may call: registered names, or in Python the tools or functions themselves."""
    tool_choice: Name = "auto"
    """Whether it calls them: ``auto`` (the model chooses), ``none``, ``required`` (at least one),
    or the name of one of them. A turn has to begin with it, until one call has succeeded."""
    tool_calling: Literal["native", "schema"] | None = None
    """How its model calls them: ``native`` as the endpoint has it, ``schema`` by an answer that is
    held to a JSON schema, for endpoints without tool calls. None: as is known of the model."""
    interrupt_on: dict[Named, Rule] = Field(default_factory=dict)
    """The tools that a person is asked about before they run, by their registered names, or in
    Python functions themselves: true, or which decisions there are (LangChain's human in the loop).
    False: nobody is asked."""
    speaks_with_tool_calls: bool = False
    """Whether it may say something beside a call of a tool, by an optional argument ``to_user`` of
    every tool (Agere)."""
    return_direct: bool = False
    """Whether what its tools give is its message, which the others hear, as soon as all calls of a
    round have succeeded (Yacana's tools in a chat). Else it answers after seeing what they gave."""
    model: Text | None = None
    """The model that speaks for it: a registered name, a model's name, ``embedded`` or the path
    of a ``.gguf`` file. None: the conversation's default."""
    model_settings: ModelSettings = ModelSettings()
    """Settings of the calls of its model."""
    on_length: Literal["accept", "continue", "retry"] = "accept"
    """What is done where its model's reply ends at its longest length. ``accept``: it is said as it
    is. ``continue``: the rest is asked for, once, and both are said as one message. ``retry``: a
    shorter one is asked for, once."""
    context: Context = KeepAll()
    """How much of a long history it is shown."""

    if TYPE_CHECKING:

        def __init__(
            self, name: str, system_prompt: str | None = None, **fields: Unpack[SpeakerOptions]
        ) -> None: ...

    def replace(self, **changes: Unpack[SpeakerChanges]) -> "Speaker":
        """Return the same with other fields, which take the place of what was there.

        Raises:
            SpecError: A change is not valid; names the field.
        """
        given: dict[str, Any] = {name: getattr(self, name) for name in Speaker.model_fields}
        found = Speaker(**{**given, **changes})
        # What nobody set, as a short form's own prompts, still counts as not set.
        found.model_fields_set.intersection_update(self.model_fields_set | changes.keys())
        return found

    @field_validator("replies")
    @classmethod
    def _are_reached(cls, replies: tuple[AnyReply, ...]) -> tuple[AnyReply, ...]:
        for before in replies[:-1]:
            if not (before.may_give_none or _is_once(before)):
                raise ValueError(f"what follows {before.kind!r} is never reached: leave it out")
        return replies

    @field_validator("replies")
    @classmethod
    def _begin_with_the_person(cls, replies: tuple[AnyReply, ...]) -> tuple[AnyReply, ...]:
        rest = replies[1:] if _is_once(replies[0]) else replies
        if not rest:
            raise ValueError("a first message is not enough: name what replies after it")
        if any(_is_once(reply) for reply in rest):
            raise ValueError('the first message ("once") must come first')
        if any(isinstance(reply, HumanReply) for reply in rest[1:]):
            raise ValueError(
                'a person is asked first: put "human" in front of all but the first message'
            )
        human = rest[0]
        mode = human.human_input_mode if isinstance(human, HumanReply) else None
        if len(rest) == 1 and mode not in (None, HumanInputMode.ALWAYS):
            raise ValueError(
                f"a person is not asked each time ({mode}): name after it what "
                'else replies, such as "model"'
            )
        return replies

    @property
    def human(self) -> HumanReply | None:
        """How a person speaks for it; None where nobody does."""
        for reply in self.replies:
            if isinstance(reply, HumanReply):
                return reply
        return None

    @property
    def first_message(self) -> str | None:
        """What it says first; None where that is not given."""
        first = self.replies[0]
        return first.text if isinstance(first, TextReply) and first.once else None

    @property
    def runs_code(self) -> bool:
        """Whether its reply may be what came of running the code it has heard."""
        return self.code is not None

    @property
    def code(self) -> CodeReply | None:
        """Which code it runs; None where it runs none."""
        for reply in self.replies:
            if isinstance(reply, CodeReply):
                return reply
        return None

    @property
    def has_model(self) -> bool:
        """Whether a model may give its replies."""
        return _has_model(self.replies)

    @field_validator("tools")
    @classmethod
    def _tools_can_be_called(cls, tools: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        replies, held = info.data.get("replies"), info.data.get("format")
        if tools and replies is not None and not _has_model(replies):
            raise ValueError('only a model calls tools: put "model" among the replies')
        if tools and isinstance(held, SchemaFormat) and held.form == "structured":
            raise ValueError(
                "none can be called by a speaker whose replies are held to a schema: set "
                'format.form = "text"'
            )
        return tools

    @field_validator("tool_choice")
    @classmethod
    def _can_choose(cls, choice: str, info: ValidationInfo) -> str:
        tools = info.data.get("tools")
        if tools is None or choice in ("auto", "none"):
            return choice
        if choice == "required":
            if not tools:
                raise ValueError("there are no tools to call: name some in tools")
        elif choice not in tools:
            raise ValueError(
                f"must be auto, none, required or one of the speaker's tools, not {choice!r}"
            )
        return choice

    @field_validator("interrupt_on")
    @classmethod
    def _are_called(cls, rules: dict[str, Rule], info: ValidationInfo) -> dict[str, Rule]:
        tools = info.data.get("tools")
        unknown = next((name for name in rules if tools is not None and name not in tools), None)
        if unknown is not None:
            hint = did_you_mean(unknown, tools or ()) or ": put it among them, or leave it out"
            raise ValueError(f"{unknown!r} is not one of the speaker's tools{hint}")
        return rules

    @field_validator("speaks_with_tool_calls")
    @classmethod
    def _has_tools_to_call(cls, speaks_with_tool_calls: bool, info: ValidationInfo) -> bool:
        if speaks_with_tool_calls and info.data.get("tools") == ():
            raise ValueError("must be false where there are no tools")
        return speaks_with_tool_calls

    @field_validator("on_length")
    @classmethod
    def _can_go_on(cls, on_length: str, info: ValidationInfo) -> str:
        held = info.data.get("format")
        if on_length == "continue" and isinstance(held, SchemaFormat) and held.form == "structured":
            raise ValueError('a reply that must fit a schema cannot be continued: set "retry"')
        return on_length

    @property
    def marks(self) -> LabelledFormat | None:
        """The marks its replies must carry, where its format is one of marks."""
        return self.format if isinstance(self.format, LabelledFormat) else None


def _is_once(reply: AnyReply) -> bool:
    return isinstance(reply, TextReply) and reply.once


def _has_model(replies: tuple[AnyReply, ...]) -> bool:
    return any(isinstance(reply, ModelReply) for reply in replies)
