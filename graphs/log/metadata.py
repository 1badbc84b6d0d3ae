"""The metadata of a log message: a class for each kind of message.

A message of the log is a LangChain message. Its metadata contains its kind, its speaker, its
audience and other facts. To add a kind, add a class here and make it a member of `AnyMetadata`.
"""

from typing import Annotated, Any, ClassVar, Final, Literal, TypeGuard, TypeVar

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from ..common.data import Data
from ..conversation.judges import Verdict
from ..speakers.call_settings import DecisionType
from ..speakers.replies import Failure as Failure, Flaw as Flaw, Source as Source
from ..speakers.reply_parts import ALOUD, Stage as Stage, Stop, Thought

NOBODY: Final[tuple[str, ...]] = ()
"""The audience of a message that no speaker hears. The log keeps it for the record."""


class MessageMetadata(Data):
    """The metadata of a message of the log.

    The class attributes define how the rules treat all messages of a kind.
    """

    kind: str
    """The name of the message's kind."""
    speaker: str | None = None
    """The name of the message's speaker. None if the message comes from the conversation itself."""
    audience: tuple[str, ...] | None = None
    """The names of the speakers who may hear the message, in addition to its own speaker. None if
    everyone may hear it."""

    is_spoken: ClassVar[bool] = False
    """Whether the message is part of the transcript: a speech, a tool call or a tool result."""
    seen_by_speaker: ClassVar[Literal["always", "heard", "never"]] = "heard"
    """Whether the message's own speaker sees it: always, only if this speaker is in the audience,
    or never. Other speakers see a message if they are in its audience."""
    is_talk: ClassVar[bool] = False
    """Whether context policies count the message as a part of the history."""
    is_cue: ClassVar[bool] = False
    """Whether the message asks a speaker to speak."""
    can_end_turn: ClassVar[bool] = False
    """Whether a turn of the message's speaker may end with this message."""
    has_calls: ClassVar[bool] = False
    """Whether the message calls tools or runs code."""
    is_consequence: ClassVar[bool] = False
    """Whether the message depends on an earlier message: a reply, calls or a judge's question."""
    is_memory: ClassVar[bool] = False
    """Whether the message is part of a speaker's memory, so that a memory reset removes it."""
    on_page: ClassVar[bool] = False
    """Whether the Markdown page of a whole session shows the message."""
    run_name: ClassVar[str] = "{speaker} speaks"
    """The name, in traces, of the model call that returned the message."""

    @model_serializer(mode="wrap")
    def _with_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The kind is always stored, even if it is the default: readers choose the class by it.
        written: dict[str, Any] = handler(self)
        return {"kind": self.kind} | written

    def is_heard_by(self, name: str) -> bool:
        """Return whether this speaker is in the audience."""
        return self.audience is None or name in self.audience

    @property
    def confidants(self) -> tuple[str, ...]:
        """Return the other speakers that the audience names. Empty if the audience is everyone."""
        return tuple(name for name in self.audience or () if name != self.speaker)

    @property
    def is_aloud(self) -> bool:
        """Return whether other speakers hear the message, in the rounds or as last words."""
        return self.audience is None or bool(self.confidants)

    @property
    def ends_turn(self) -> bool:
        """Return whether the message ends a turn."""
        return False


def kind_name(kind: type[MessageMetadata]) -> str:
    """Return the stored name of a kind."""
    return str(kind.model_fields["kind"].default)


class ModelOutput(MessageMetadata):
    """A message that a model may have written."""

    thought: Thought | None = None
    """The model's thought before the message. None if there is none."""
    stop: Stop | None = None
    """Why the model stopped before the message was complete. None if it is complete."""
    problem: str | None = None
    """The problem of the message, in the words that the model read. None if there is no problem."""

    @property
    def cut_off(self) -> bool:
        """Return whether the rest of the message is missing, or may be missing."""
        return self.stop is not None and self.stop.is_cut_off


class SpecifiedTask(ModelOutput):
    """The task as rewritten by the task specification."""

    kind: Literal["specified_task"] = "specified_task"

    run_name = "Task specification"


class Instruction(MessageMetadata):
    """An instruction from the conversation itself: a speaker's task, or the request to begin."""

    kind: Literal["instruction"] = "instruction"
    to: str | None = None
    """The name of the speaker that the instruction is for. None if it is for its whole audience."""

    is_cue = True


class SpeakerReply(ModelOutput):
    """A reply of the speaker whose turn it is."""

    stage: Stage = Stage.ROUNDS
    """The part of the conversation that the reply belongs to."""
    parsed: JsonValue = None
    """The content, parsed by the speaker's output format, as plain values. None if there is no
    parsed content."""
    to_user: dict[str, str] = Field(default_factory=dict)
    """The texts that the speaker said in the calls' argument ``to_user``, by call id. The
    stored calls do not contain this argument."""
    source: Source = Source.MODEL
    """The origin of the reply, such as a model or a person."""
    flaw: Flaw | None = None
    """The flaw of the reply. None if the reply has no flaw."""
    handed_to: tuple[str, ...] = ()
    """The next speakers that the reply asks for by calls of ``hand_off``: their names, as the model
    wrote them. These calls are stored only here."""
    private: bool = False
    """Whether the calls of ``hand_off`` make the message private to the named speaker."""
    edited: bool = False
    """Whether a person changed the reply's text and duologue has not parsed the new text yet."""

    @property
    def is_aloud(self) -> bool:
        """Return whether other speakers hear the reply, in the rounds or as last words."""
        return self.stage in ALOUD and (self.audience is None or bool(self.confidants))


class Speech(SpeakerReply):
    """A message that a speaker said in its turn."""

    kind: Literal["speech"] = "speech"
    interrupts: bool = False
    """Whether a person sent the message instead of a decision about waiting calls. The turn of the
    speaker that made the calls then continues."""
    from_client: bool = False
    """Whether a client sent the message as the input of a run."""

    is_spoken = True
    seen_by_speaker = "always"
    is_talk = True
    can_end_turn = True
    on_page = True

    @property
    def ends_turn(self) -> bool:
        """Return whether the message ends a turn."""
        return not self.interrupts

    @property
    def is_delivered(self) -> bool:
        """Return whether calls of the turn have sent the text already, so that others know it."""
        return bool(self.to_user)


class OpeningAnswer(MessageMetadata):
    """An opening answer that the first speaker of the rounds hears."""

    kind: Literal["opening_answer"] = "opening_answer"

    seen_by_speaker = "never"
    is_talk = True
    is_cue = True


class Draft(SpeakerReply):
    """A rejected or cut-off reply, after which another one was requested."""

    kind: Literal["draft"] = "draft"

    on_page = True


class ToolCalls(SpeakerReply):
    """A speaker's tool calls, with the text that accompanies them."""

    kind: Literal["tool_calls"] = "tool_calls"

    is_spoken = True
    seen_by_speaker = "always"
    is_talk = True
    has_calls = True
    on_page = True


class CodeCalls(SpeakerReply):
    """The fenced code that a speaker runs, as one call for each block.

    The speaker's message reports the results.
    """

    kind: Literal["code"] = "code"

    has_calls = True


class UnheardReply(SpeakerReply):
    """A reply as it was before hooks changed it, or a retry that was worse than the first reply."""

    kind: Literal["unheard_reply"] = "unheard_reply"

    is_consequence = True


class PendingAnswer(SpeakerReply):
    """A model's answer in a round in which all speak at once, until its speaker's turn comes."""

    kind: Literal["pending_answer"] = "pending_answer"

    is_consequence = True


class CallOutcome(MessageMetadata):
    """The outcome of a tool call."""

    failure: Failure | None = None
    """The cause of the failure. None if the call succeeded."""
    arguments: dict[str, JsonValue] | None = None
    """The arguments that the tool received. None if no hook or person changed them."""
    tool: str | None = None
    """The name of the tool that a person chose instead of the called one. None if no person chose
    another tool."""
    decision: DecisionType | None = None
    """The decision of a person about the call. None if no person was asked."""
    refusal: str | None = None
    """The person's reason for rejecting the call. None if it was not rejected."""
    parsed: JsonValue = None
    """The result as plain values. None if it is only text."""
    artifact_problem: str | None = None
    """Why the tool's artifact was not stored. None if it was stored, or if there is none."""
    tool_round: int | None = None
    """The number of the tool round that this result completes, counted within the turn. Only rounds
    in which a call succeeded count. None for all results but the last of such a round."""

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
    """The verdict in the answer. None for the first of two answers, and for an unreadable answer.
    """

    is_consequence = True
    can_end_turn = True
    on_page = True
    run_name = "{speaker} judges"


class SpeakerChoice(ModelOutput):
    """The choice of the next speaker."""

    kind: Literal["speaker_choice"] = "speaker_choice"
    to: str | None = None
    """The name of the next speaker. None if the choice could not be read, so that the moderator was
    asked again."""

    on_page = True
    run_name = "Moderator chooses"


class HookVersion(MessageMetadata):
    """A hook's version of some messages, which one speaker hears instead of them."""

    kind: Literal["hook_version"] = "hook_version"
    instead_of: tuple[str, ...] = ()
    """The places of the messages that it replaces for this speaker."""

    is_talk = True


class Summary(ModelOutput):
    """A summary that replaces the older part of a speaker's history. Its text may be empty."""

    kind: Literal["summary"] = "summary"
    since: str | None = None
    """The place of the first message that the summary does not replace. None if it replaces all
    messages before it."""
    limit: int | None = None
    """The maximum number of tokens of the speaker's prompts until its turn ends, after its model
    refused a prompt as too long. No limit if None."""

    is_memory = True
    run_name = "{speaker} sums up"


class MemoryReset(MessageMetadata):
    """A reset of a speaker's memory: the speaker no longer sees the messages before it."""

    kind: Literal["memory_reset"] = "memory_reset"
    since: str | None = None
    """The place of the first message that the speaker still remembers. None if it forgets all."""

    is_memory = True
    on_page = True


class RememberedMessage(MessageMetadata):
    """A message from before the conversation. Only its audience hears it, and no rule counts it.

    It belongs to a speaker's memory or private opening.
    """

    kind: Literal["remembered"] = "remembered"
    stays: bool = False
    """Whether every prompt of its audience contains the message. If false, a context policy may
    leave the message out like the rest of the history."""
    thought: Thought | None = None
    """The thought before the message, if its model may need it again. None if there is none."""

    is_talk = True
    can_end_turn = True
    is_memory = True


class InputMessage(MessageMetadata):
    """A message that a run was started with. It is not part of the log.

    It stays in `messages` for clients, until the speaker's message with the same text replaces it.
    """

    kind: Literal["input"] = "input"


class InnerSession(MessageMetadata):
    """The session of an inner conversation, before the reply or the result that it led to.

    Its id is the session's id, a dot and the place of this message.
    """

    kind: Literal["inner_session"] = "inner_session"
    summary: str
    """The number of its messages, and how it ended, in one sentence."""
    conversation: dict[str, JsonValue]
    """The stored form of the inner conversation."""
    specified_task: str | None = None
    """The task that its speakers received. None if they received none."""
    log: tuple[dict[str, JsonValue], ...] = ()
    """Its whole log, each message in LangChain's form as a dict."""
    outcome: dict[str, JsonValue] | None = None
    """The outcome, as plain values. None if it has failed."""
    usage: dict[str, JsonValue] = Field(default_factory=dict)
    """The usage of each model, as plain values, by the model's name."""
    call_id: str | None = None
    """The id of the tool call that started it. None if it replies for its speaker."""

    seen_by_speaker = "never"
    is_consequence = True
    on_page = True


class EarlierEnd(MessageMetadata):
    """An earlier end of the conversation. After it, end conditions count from 0 again."""

    kind: Literal["earlier_end"] = "earlier_end"
    outcome: dict[str, JsonValue]
    """The outcome of the conversation at that end, as plain values."""

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
    | PendingAnswer
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
    | InnerSession
    | EarlierEnd
)
"""The metadata of a message that was not removed."""


class RemovedMessage(MessageMetadata):
    """A removed message. It stays for the record: no speaker hears it, and no rule counts it."""

    kind: Literal["removed"] = "removed"
    was: Annotated[LineMetadata, Field(discriminator="kind")] | None = None
    """The metadata before the removal. None if the message had no metadata."""

    on_page = True


AnyMetadata = LineMetadata | RemovedMessage
"""The metadata of any message."""


def is_open_speech(about: MessageMetadata) -> TypeGuard[Speech]:
    """Return whether a message is a speech outside of the private part."""
    return isinstance(about, Speech) and about.stage is not Stage.PRIVATE


def is_public_speech(about: MessageMetadata) -> TypeGuard[Speech]:
    """Return whether a message is a speech that others hear, in the rounds or as last words."""
    return isinstance(about, Speech) and about.is_aloud


def is_by_person(about: MessageMetadata) -> TypeGuard[SpeakerReply]:
    """Return whether a person said the message."""
    return isinstance(about, SpeakerReply) and about.source is Source.HUMAN


def verdict_of(about: MessageMetadata) -> Verdict | None:
    """Return the message's verdict, or None."""
    return about.verdict if isinstance(about, Reflection) else None


def outcome_of(about: MessageMetadata) -> dict[str, JsonValue] | None:
    """Return the outcome if the message records an earlier end, else None."""
    return about.outcome if isinstance(about, EarlierEnd) else None


R = TypeVar("R", bound=SpeakerReply)


def as_reply(kind: type[R], reply: SpeakerReply, **changes: Any) -> R:
    """Convert the metadata of a reply to another kind of reply, and apply changes."""
    kept = {name: getattr(reply, name) for name in SpeakerReply.model_fields if name != "kind"}
    return kind.model_validate(kept | changes)


def content_of(about: MessageMetadata) -> JsonValue:
    """Return the message's parsed content as plain values, or None."""
    return about.parsed if isinstance(about, SpeakerReply | CallOutcome) else None


def original_metadata(about: MessageMetadata) -> MessageMetadata:
    """Return metadata, or the metadata before the removal of a removed message."""
    return about.was or about if isinstance(about, RemovedMessage) else about


REMOVED: Final = kind_name(RemovedMessage)
"""The stored name of the kind of removed messages."""

INPUT: Final = kind_name(InputMessage)
"""The stored name of the kind of messages that a run was started with."""
