"""The metadata of a log message: a class for each kind of message, with the fields of its kind.

A message of the log is one of LangChain's. Its metadata says what kind of message it is, who said
it, who hears it, and what else is known about it. A new kind is a new class here and a member of
`AnyMetadata`.
"""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Literal, TypeGuard, TypeVar

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from ..common.data import Data
from ..conversation.judges import Verdict
from ..speakers.interrupt_on import DecisionType
from ..speakers.replies import Failure as Failure, Flaw as Flaw, Source as Source


class Stage(StrEnum):
    """The part of the conversation that a turn belongs to."""

    PRIVATE = "private"
    """A speaker makes up something that it alone knows."""
    OPENING = "opening"
    """Everyone answers its own task alone."""
    ROUNDS = "rounds"
    """Everyone speaks in turn."""
    LAST_WORDS = "last_words"
    """What is still said after a completed task."""


ALOUD: Final = (Stage.ROUNDS, Stage.LAST_WORDS)
"""The parts in which all hear what is said."""


class Reasoning(Data):
    """A thought in the form that its model gave it in."""

    text: str | None = None
    """The whole text of the answer, where the thought was part of it."""
    blocks: tuple[dict[str, JsonValue], ...] = ()
    """The parts of the answer's content that hold it."""
    fields: dict[str, JsonValue] = Field(default_factory=dict)
    """What stood beside the content, by the fields' names."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """What tells LangChain's client how to read the parts."""


class Thought(Data):
    """What a model thought. It is read by people only: nothing is parsed, counted or judged."""

    text: str
    """What it thought."""
    is_unopened: bool = False
    """Whether a tag closed it in the answer's text that none had opened."""
    given: Reasoning | None = None
    """What goes back to the model while the calls of the message are at work."""


NOBODY: Final[tuple[str, ...]] = ()
"""The audience of a message that is kept for the record only."""


class MessageMetadata(Data):
    """The metadata of a message of the log.

    The class attributes say how the rules treat all messages of a kind.
    """

    kind: str
    """The name of the kind."""
    speaker: str | None = None
    """The name of the speaker who said it. None: the conversation itself."""
    audience: tuple[str, ...] | None = None
    """The names of those who may hear it beside the speaker. None: everyone."""

    is_spoken: ClassVar[bool] = False
    """Whether it is part of the transcript: a message, a tool call or its result."""
    seen_by_speaker: ClassVar[Literal["always", "heard", "never"]] = "heard"
    """Whether its own speaker sees it: always, only if it is in the audience, or never. Other
    speakers see a message if they are in its audience."""
    is_talk: ClassVar[bool] = False
    """Whether context policies count it as a message of the history."""
    is_cue: ClassVar[bool] = False
    """Whether it makes a speaker speak."""
    can_end_turn: ClassVar[bool] = False
    """Whether a turn may end with it, as its speaker sees it."""
    has_calls: ClassVar[bool] = False
    """Whether it calls tools or runs code."""
    is_consequence: ClassVar[bool] = False
    """Whether it follows from the reply, the calls or the question before it."""
    is_memory: ClassVar[bool] = False
    """Whether it is part of a speaker's memory, so that a reset of the memory removes it."""
    on_page: ClassVar[bool] = False
    """Whether a Markdown page of a whole session shows it."""
    run_name: ClassVar[str] = "{speaker} speaks"
    """The name, in traces, of the model call that returns it."""

    @model_serializer(mode="wrap")
    def _with_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Always: readers choose the class by it.
        written: dict[str, Any] = handler(self)
        return {"kind": self.kind} | written

    def is_heard_by(self, name: str) -> bool:
        """Return whether this speaker is in the audience."""
        return self.audience is None or name in self.audience

    @property
    def confidants(self) -> tuple[str, ...]:
        """The only ones who hear it beside its speaker. Empty if everyone hears it, or nobody."""
        return tuple(name for name in self.audience or () if name != self.speaker)

    @property
    def is_aloud(self) -> bool:
        """Whether others hear it, in the rounds or as last words."""
        return self.audience is None or bool(self.confidants)

    @property
    def ends_turn(self) -> bool:
        """Whether a turn is over after it."""
        return False


def kind_name(kind: type[MessageMetadata]) -> str:
    """Return the name of a kind, as it is stored."""
    return str(kind.model_fields["kind"].default)


class ModelOutput(MessageMetadata):
    """A message that a model may have written."""

    thought: Thought | None = None
    """The thoughts of the model before it."""
    problem: str | None = None
    """Why it was not as requested, as the model was told. None if it was."""


class SpecifiedTask(ModelOutput):
    """The task as rewritten by the task specification."""

    kind: Literal["specified_task"] = "specified_task"

    run_name = "Task specification"


class Instruction(MessageMetadata):
    """An instruction of the conversation itself: a speaker's own task, or to begin."""

    kind: Literal["instruction"] = "instruction"
    to: str | None = None
    """The name of the speaker it is meant for, if others hear it too."""

    is_cue = True


class SpeakerReply(ModelOutput):
    """A reply of a speaker whose turn it is."""

    stage: Stage = Stage.ROUNDS
    """The part of the conversation that it belongs to."""
    parsed: JsonValue = None
    """Its content by the speaker's output format, as plain values."""
    to_user: dict[str, str] = Field(default_factory=dict)
    """The parts that the speaker said by an argument of its calls, by the calls' ids. The calls
    are stored without it."""
    source: Source = Source.MODEL
    """Its origin."""
    flaw: Flaw | None = None
    """Its fault, if it was not as requested."""
    cut_off: bool = False
    """Whether the model's answer ended because it reached its longest length."""
    handed_to: tuple[str, ...] = ()
    """The names that it calls as the next speaker by calls of ``hand_off``, as the model wrote
    them. The calls are stored nowhere else."""
    private: bool = False
    """Whether these calls say that only the named speaker hears it."""
    edited: bool = False
    """Whether a person changed its text, and duologue has not read the new text yet."""

    @property
    def is_aloud(self) -> bool:
        """Whether others hear it, in the rounds or as last words."""
        return self.stage in ALOUD and (self.audience is None or bool(self.confidants))


class Speech(SpeakerReply):
    """A message that a speaker said in its turn."""

    kind: Literal["speech"] = "speech"
    interrupts: bool = False
    """Whether a person said it instead of an answer to waiting calls: the caller's turn goes on."""

    is_spoken = True
    seen_by_speaker = "always"
    is_talk = True
    can_end_turn = True
    on_page = True

    @property
    def ends_turn(self) -> bool:
        """Whether a turn is over after it."""
        return not self.interrupts


class OpeningAnswer(MessageMetadata):
    """An opening answer that is handed to the first speaker of the rounds."""

    kind: Literal["opening_answer"] = "opening_answer"

    seen_by_speaker = "never"
    is_talk = True
    is_cue = True


class Draft(SpeakerReply):
    """A reply that broke a rule, so that another one was requested."""

    kind: Literal["draft"] = "draft"

    on_page = True


class ToolCalls(SpeakerReply):
    """A speaker's tool calls, with the text beside them."""

    kind: Literal["tool_calls"] = "tool_calls"

    is_spoken = True
    seen_by_speaker = "always"
    is_talk = True
    has_calls = True
    on_page = True


class CodeCalls(SpeakerReply):
    """The fenced code that a speaker runs, a call for each block. A message reports the results."""

    kind: Literal["code"] = "code"

    has_calls = True


class UnheardReply(SpeakerReply):
    """A reply before hooks have seen it, or a second try if the first one is said instead."""

    kind: Literal["unheard_reply"] = "unheard_reply"

    is_consequence = True


class CallOutcome(MessageMetadata):
    """The outcome of a tool call."""

    failure: Failure | None = None
    """The cause, if the call failed."""
    arguments: dict[str, JsonValue] | None = None
    """The arguments that the tool was called with, if a hook or a person changed them."""
    tool: str | None = None
    """The tool that ran, if a person chose another one."""
    decision: DecisionType | None = None
    """The decision of a person about the call. None if nobody was asked."""
    refusal: str | None = None
    """Why a person refused the call, in the person's words."""
    parsed: JsonValue = None
    """The result as plain values, if there is more than text."""
    tool_round: int | None = None
    """The number of the tool round that it completes in its turn, of the rounds in which a call
    succeeded. Only the last result of a round has it."""

    is_consequence = True


class ToolResult(CallOutcome):
    """The result of a tool call."""

    kind: Literal["tool_result"] = "tool_result"

    is_spoken = True
    seen_by_speaker = "always"
    on_page = True


class UnheardResult(CallOutcome):
    """The result of a tool call before hooks have seen it, or of a block of code."""

    kind: Literal["unheard_result"] = "unheard_result"


class JudgeQuestion(MessageMetadata):
    """A judge's question."""

    kind: Literal["judge_question"] = "judge_question"


class Reflection(ModelOutput):
    """A speaker's answer to the judge's question, or a separate judge's answer."""

    kind: Literal["reflection"] = "reflection"
    verdict: Verdict | None = None
    """The verdict in it. None in the first of two answers, and if it could not be read."""

    is_consequence = True
    can_end_turn = True
    on_page = True
    run_name = "{speaker} judges"


class SpeakerChoice(ModelOutput):
    """The choice of the next speaker."""

    kind: Literal["speaker_choice"] = "speaker_choice"
    to: str | None = None
    """The name of the next speaker."""

    on_page = True
    run_name = "Moderator chooses"


class HookVersion(MessageMetadata):
    """A hook's version of messages that a speaker has just heard. The speaker hears it instead."""

    kind: Literal["hook_version"] = "hook_version"
    instead_of: tuple[str, ...] = ()
    """The places of the messages that it replaces for this speaker."""

    is_talk = True


class Summary(ModelOutput):
    """A summary that replaces the older part of a speaker's history. Its text may be empty."""

    kind: Literal["summary"] = "summary"
    since: str | None = None
    """The place of the first message that it does not replace. None: it replaces all before it."""

    is_memory = True
    run_name = "{speaker} sums up"


class MemoryReset(MessageMetadata):
    """A reset of a speaker's memory: its view no longer contains the messages before."""

    kind: Literal["memory_reset"] = "memory_reset"
    since: str | None = None
    """The place of the first message that the speaker still knows. None: it forgets all."""

    is_memory = True
    on_page = True


class RememberedMessage(MessageMetadata):
    """A message from before the conversation: its audience alone hears it, and no rule counts it.

    It is of a memory, or of a private opening.
    """

    kind: Literal["remembered"] = "remembered"
    stays: bool = False
    """Whether it stays in all prompts of its audience. Otherwise a context policy may leave it out,
    as a part of the history."""

    is_talk = True
    can_end_turn = True
    is_memory = True


class InputMessage(MessageMetadata):
    """A message that a run was started with, which is not part of the log.

    It stays in `messages` for clients. The speech that says it replaces it.
    """

    kind: Literal["input"] = "input"


class EarlierEnd(MessageMetadata):
    """An end of the conversation before it continued. Ends count anew after it."""

    kind: Literal["earlier_end"] = "earlier_end"
    outcome: dict[str, JsonValue]
    """The outcome that the conversation had."""

    seen_by_speaker = "never"
    on_page = True


LineMetadata = (
    SpecifiedTask
    | Instruction
    | Speech
    | OpeningAnswer
    | Draft
    | ToolCalls
    | CodeCalls
    | UnheardReply
    | ToolResult
    | UnheardResult
    | JudgeQuestion
    | Reflection
    | SpeakerChoice
    | HookVersion
    | Summary
    | MemoryReset
    | RememberedMessage
    | InputMessage
    | EarlierEnd
)
"""The metadata of a message that was not removed."""


class RemovedMessage(MessageMetadata):
    """A message that was removed. It stays for the record; nobody hears it, no rule counts it."""

    kind: Literal["removed"] = "removed"
    was: Annotated[LineMetadata, Field(discriminator="kind")] | None = None
    """The metadata that it had. None if it had none."""

    on_page = True


AnyMetadata = LineMetadata | RemovedMessage
"""The metadata of a message of any kind."""


def is_open_speech(about: MessageMetadata) -> TypeGuard[Speech]:
    """Return whether a speaker said it in its turn, and not in private."""
    return isinstance(about, Speech) and about.stage is not Stage.PRIVATE


def is_public_speech(about: MessageMetadata) -> TypeGuard[Speech]:
    """Return whether it is a speech that others hear, in the rounds or as last words."""
    return isinstance(about, Speech) and about.is_aloud


def is_by_person(about: MessageMetadata) -> TypeGuard[SpeakerReply]:
    """Return whether a person said it."""
    return isinstance(about, SpeakerReply) and about.source is Source.HUMAN


def verdict_of(about: MessageMetadata) -> Verdict | None:
    """Return the verdict in it, or None."""
    return about.verdict if isinstance(about, Reflection) else None


def outcome_of(about: MessageMetadata) -> dict[str, JsonValue] | None:
    """Return the outcome of the earlier end that it records, or None."""
    return about.outcome if isinstance(about, EarlierEnd) else None


R = TypeVar("R", bound=SpeakerReply)


def as_reply(kind: type[R], reply: SpeakerReply, **changes: Any) -> R:
    """Return the metadata of a reply as that of another kind of reply, with these changes."""
    kept = {name: getattr(reply, name) for name in SpeakerReply.model_fields if name != "kind"}
    return kind.model_validate(kept | changes)


def replaced_places(about: MessageMetadata) -> tuple[str, ...]:
    """Return the places of the messages that its audience hears in a hook's version."""
    return about.instead_of if isinstance(about, HookVersion) else ()


def thought_text(about: MessageMetadata) -> str:
    """Return the thoughts before it, for people; empty in a version that nobody hears."""
    if not isinstance(about, ModelOutput) or isinstance(about, UnheardReply):
        return ""
    return "" if about.thought is None else about.thought.text


def parsed_of(about: MessageMetadata) -> JsonValue:
    """Return its content as plain values, or None."""
    return about.parsed if isinstance(about, SpeakerReply | CallOutcome) else None


def original_metadata(about: MessageMetadata) -> MessageMetadata:
    """Return the metadata that a message had before it was removed, if it was."""
    return about.was or about if isinstance(about, RemovedMessage) else about


REMOVED: Final = kind_name(RemovedMessage)
"""The stored name of the kind of removed messages."""

INPUT: Final = kind_name(InputMessage)
"""The stored name of the kind of messages that a run was started with."""
