"""A speaker of a conversation, as data, and the types that callers may pass for its fields."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Required, Unpack

from langchain_core.messages import MessageLikeRepresentation
from pydantic import BaseModel, Field, ValidationInfo, field_validator
from typing_extensions import TypedDict

from ..common.data import AtLeast, DistinctNames, Fields, ModelName, Name, Named, Spec, Text, Thing
from ..common.errors import did_you_mean, hide_frames
from .call_settings import (
    Context,
    InterruptOn,
    KeepAll,
    ModelSettings,
    PrivateOpening,
    Rule,
    SmallModelPrompt,
)
from .formats import Format, LabelledFormat, SchemaFormat
from .replies import AnyReply, CodeReply, HumanInputMode, HumanReply, ModelReply, TextReply
from .reply_parts import Examples, PrivateMessage


class SpeakerOptions(TypedDict, total=False):
    """The fields of a `Speaker` that are accepted by keyword only."""

    task: str | None
    private_opening: PrivateOpening | Fields | None
    memory: Sequence[MessageLikeRepresentation]
    replies: Sequence[AnyReply | Spec | Thing | Fields]
    examples: Sequence[MessageLikeRepresentation]
    prefixes: Mapping[str, str]
    speaks_to: Sequence[str] | None
    labels: bool | None
    hooks: Sequence[Thing]
    small_model_prompt: SmallModelPrompt | Fields | None
    checks_completion: bool
    keep_self_reflection: bool
    writes_output: bool
    format: Format | Fields | None
    tools: Sequence[Thing]
    tool_choice: str
    tool_calling: Literal["native", "schema"] | None
    interrupt_on: Mapping[Any, bool | InterruptOn | Fields]
    speaks_with_tool_calls: bool
    return_direct: bool
    model: str | None
    model_settings: ModelSettings | Fields
    on_length: Literal["accept", "continue", "retry"]
    context: Context | Fields | Literal["all"]


class SpeakerFields(SpeakerOptions, total=False):
    """The fields of a `Speaker` as a dict."""

    name: Required[str]
    system_prompt: str | None


class SpeakerChanges(SpeakerOptions, total=False):
    """The fields that `Speaker.replace` accepts."""

    name: str
    system_prompt: str | None


TO_USER = "to_user"
"""The argument of a tool call that the others hear as text (Agere). The tool does not receive
it."""

SPEAKER_TEMPERATURE = 0.2
"""The default temperature of a speaker (CAMEL's and LazyLLM's low temperature)."""


class Speaker(Spec):
    """One participant of a conversation.

    Raises:
        SpecError: A field is missing, unknown or wrong; the examples do not begin with a user
            message and end with an assistant message; a reply is never reached; or the speaker has
            tools that its replies or its format can't call.
    """

    name: Name = Field(kw_only=False)
    """The name that the others see. It must be unique."""
    system_prompt: Text | None = Field(default=None, kw_only=False)
    """The system prompt. ``{task}`` in it is replaced by the conversation's task; if there is no
    ``{task}``, the task follows the prompt. If None, a neutral prompt that names the
    participants."""
    task: Text | None = None
    """The speaker's own task, which the others do not see. No own task if None."""
    private_opening: PrivateOpening | None = None
    """Instructions that only this speaker reads before the conversation, or a prompt that it
    answers alone. Neither if None."""
    memory: tuple[PrivateMessage, ...] = ()
    """The speaker's memory of earlier conversations, which no other speaker sees: LangChain
    messages, or any messages that `add_messages` accepts. Messages of the assistant are the
    speaker's own. The name in a message of the user is the speaker who said it. `remember` and
    `Result.memory` return such messages."""
    replies: Annotated[tuple[AnyReply, ...], AtLeast(1)] = (ModelReply(),)
    """The sources of the speaker's replies, tried in order until one returns a reply. If none does,
    the reply is blank."""
    examples: Examples = ()
    """Examples of the speaker's answers, which follow its system prompt (few-shot): messages as in
    ``memory``, the first from the user and the last from the assistant."""
    prefixes: dict[Name, Text] = Field(default_factory=dict)
    """Text prepended to each message that this speaker hears from another speaker, by the name of
    the other speaker."""
    labels: bool | None = None
    """Whether each message that this speaker hears begins with the sender's name. If None, it does
    only if there are more than two speakers or opening answers are reconciled."""
    speaks_to: tuple[Name, ...] | None = None
    """The names of the only speakers that hear this speaker's messages in the rounds. All hear them
    if None."""
    hooks: DistinctNames = ()
    """The hooks that process the messages that the speaker hears, its replies and its tool calls,
    in order: registered names, or in Python the hooks themselves."""
    small_model_prompt: SmallModelPrompt | None = None
    """A short prompt that replaces the system prompt if the embedded model speaks for this speaker.
    None if there is none."""
    checks_completion: bool = False
    """Whether the speaker's model is asked, after each turn of the speaker in the rounds, if the
    speaker's task is complete. With a separate judge, the judge is asked instead."""
    keep_self_reflection: bool = False
    """Whether the question about completion, and its answer, stay in the speaker's own prompts.
    With a separate judge, the findings of the judge stay."""
    writes_output: bool = False
    """Whether the conversation's output is the last message of this speaker. If no speaker has
    this set, the output is the last message of any speaker for whom no person writes."""
    format: Format | None = None
    """The format of the speaker's replies. A reply that does not fit is requested once more. No
    format if None."""
    tools: DistinctNames = ()
    """The tools that the speaker may call: registered names, or in Python the tools or functions
    themselves."""
    tool_choice: Name = "auto"
    """The rule for tool calls: ``auto`` (the model chooses), ``none``, ``required`` (at least one
    call), or the name of one tool. ``required`` and a name apply at the start of each turn, until
    one call has succeeded."""
    tool_calling: Literal["native", "schema"] | None = None
    """The form of the model's tool calls. ``native`` uses the endpoint's tool calls. ``schema``
    uses an answer that must fit a JSON schema, for endpoints without tool calls. If None, the form
    that duologue knows the model to support."""
    interrupt_on: dict[Named, Rule] = Field(default_factory=dict)
    """The tools that need a person's approval before they run, by their registered names, or in
    Python the functions themselves; a LangChain tool can't be a dict's key. True allows all
    decisions; a table lists the allowed decisions (LangChain's human in the loop); False asks no
    person."""
    speaks_with_tool_calls: bool = False
    """Whether the speaker may send text to the others with a tool call, in an optional argument
    ``to_user`` of every tool (Agere)."""
    return_direct: bool = False
    """Whether the tool results are the speaker's message to the others as soon as all calls of a
    round have succeeded (Yacana's tools in a chat). If False, the speaker answers after it has seen
    the results."""
    model: ModelName | None = None
    """The model that speaks for this speaker: a registered name, a model's name, ``embedded`` or
    the path of a ``.gguf`` file. The conversation's default model if None."""
    model_settings: ModelSettings = ModelSettings()
    """Settings of the calls of the speaker's model."""
    on_length: Literal["accept", "continue", "retry"] = "accept"
    """The handling of a reply that was cut off at the token limit. ``accept`` keeps it.
    ``continue`` asks once for the rest and joins both parts. ``retry`` asks once for a shorter
    reply."""
    context: Context = KeepAll()
    """The policy that shortens a long history in the speaker's prompts."""

    if TYPE_CHECKING:

        def __init__(
            self, name: str, system_prompt: str | None = None, **fields: Unpack[SpeakerOptions]
        ) -> None: ...

    @hide_frames
    def replace(self, **changes: Unpack[SpeakerChanges]) -> "Speaker":
        """Return a copy of the speaker with other values of some fields.

        Args:
            **changes: The new values, which replace the old values completely.

        Raises:
            SpecError: A change is not valid; the message names the field.
        """
        given: dict[str, Any] = {name: getattr(self, name) for name in Speaker.model_fields}
        found = Speaker(**{**given, **changes})
        # Unset fields, such as a short form's own prompts, still count as not set.
        found.model_fields_set.intersection_update(self.model_fields_set | changes.keys())
        return found

    @field_validator("replies", mode="before")
    @classmethod
    def _check_replies_are_listed(cls, replies: object) -> object:
        # A model is iterable, so pydantic would read its fields as a list.
        if isinstance(replies, BaseModel):
            raise ValueError("must be a list; put it into a list, as in replies=[conversation]")
        return replies

    @field_validator("replies")
    @classmethod
    def _check_replies_are_reached(cls, replies: tuple[AnyReply, ...]) -> tuple[AnyReply, ...]:
        for before in replies[:-1]:
            if not (before.may_give_none or _is_once(before)):
                raise ValueError(f"the reply after {before.kind!r} is never reached; remove it")
        return replies

    @field_validator("replies")
    @classmethod
    def _check_person_is_first(cls, replies: tuple[AnyReply, ...]) -> tuple[AnyReply, ...]:
        rest = replies[1:] if _is_once(replies[0]) else replies
        if not rest:
            raise ValueError('a first message is not enough; add a reply after it, such as "model"')
        if any(_is_once(reply) for reply in rest):
            raise ValueError('the first message ("once") must come first; move it to the beginning')
        if any(isinstance(reply, HumanReply) for reply in rest[1:]):
            raise ValueError(
                'a person is asked before other replies; put "human" first, or right after the '
                "first message"
            )
        human = rest[0]
        mode = human.human_input_mode if isinstance(human, HumanReply) else None
        if len(rest) == 1 and mode not in (None, HumanInputMode.ALWAYS):
            raise ValueError(
                f"a person is not asked each time ({mode}); add another kind of "
                'reply after "human", such as "model"'
            )
        return replies

    @property
    def human(self) -> HumanReply | None:
        """Return the reply by a person, or None if no person writes for this speaker."""
        for reply in self.replies:
            if isinstance(reply, HumanReply):
                return reply
        return None

    @property
    def first_message(self) -> str | None:
        """Return the speaker's fixed first message, or None if there is none."""
        first = self.replies[0]
        return first.text if isinstance(first, TextReply) and first.once else None

    @property
    def runs_code(self) -> bool:
        """Return whether the speaker's reply may be the output of code that it has heard."""
        return self.code is not None

    @property
    def code(self) -> CodeReply | None:
        """Return the reply by code, or None if the speaker runs no code."""
        for reply in self.replies:
            if isinstance(reply, CodeReply):
                return reply
        return None

    @property
    def has_model(self) -> bool:
        """Return whether a model may write the speaker's replies."""
        return _has_model(self.replies)

    @field_validator("tools")
    @classmethod
    def _check_tools(cls, tools: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        replies, held = info.data.get("replies"), info.data.get("format")
        if tools and replies is not None and not _has_model(replies):
            raise ValueError('only a model calls tools; add "model" to the replies')
        if tools and isinstance(held, SchemaFormat) and held.form == "structured":
            raise ValueError(
                "a speaker whose replies must fit a schema can't call tools; set "
                'format.form = "text"'
            )
        return tools

    @field_validator("tool_choice")
    @classmethod
    def _check_tool_choice(cls, choice: str, info: ValidationInfo) -> str:
        tools = info.data.get("tools")
        if tools is None or choice in ("auto", "none"):
            return choice
        if choice == "required":
            if not tools:
                raise ValueError("there are no tools to call; add some to tools")
        elif choice not in tools:
            raise ValueError(
                f"must be auto, none, required or one of the speaker's tools, not {choice!r}"
            )
        return choice

    @field_validator("interrupt_on")
    @classmethod
    def _check_interrupt_on(cls, rules: dict[str, Rule], info: ValidationInfo) -> dict[str, Rule]:
        tools = info.data.get("tools")
        unknown = next((name for name in rules if tools is not None and name not in tools), None)
        if unknown is not None:
            hint = did_you_mean(unknown, tools or ()) or "; add it to its tools, or remove it here"
            raise ValueError(f"{unknown!r} is not one of the speaker's tools{hint}")
        return rules

    @field_validator("speaks_with_tool_calls")
    @classmethod
    def _check_speaks_with_tool_calls(
        cls, speaks_with_tool_calls: bool, info: ValidationInfo
    ) -> bool:
        if speaks_with_tool_calls and info.data.get("tools") == ():
            raise ValueError("must be false if the speaker has no tools")
        return speaks_with_tool_calls

    @field_validator("on_length")
    @classmethod
    def _check_on_length(cls, on_length: str, info: ValidationInfo) -> str:
        held = info.data.get("format")
        if on_length == "continue" and isinstance(held, SchemaFormat) and held.form == "structured":
            raise ValueError('a reply that must fit a schema cannot be continued; set "retry"')
        return on_length

    @property
    def marks(self) -> LabelledFormat | None:
        """Return the format's marks, or None if the format has no marks."""
        return self.format if isinstance(self.format, LabelledFormat) else None


def _is_once(reply: AnyReply) -> bool:
    return isinstance(reply, TextReply) and reply.once


def _has_model(replies: tuple[AnyReply, ...]) -> bool:
    return any(isinstance(reply, ModelReply) for reply in replies)
