"""The facts and the message metadata that end conditions read."""

from typing import Protocol, TypeGuard

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from ..common.data import Data
from ..speakers.replies import Failure, Flaw, Source


class Facts(Data):
    """The facts of a log so far, computed by `graphs.rules.log_counter`."""

    messages: NonNegativeInt = 0
    """Number of messages of the speakers."""
    calls: NonNegativeInt = 0
    """Number of answered model calls."""
    tokens: NonNegativeInt = 0
    """Number of tokens of prompts and answers."""
    cost: NonNegativeFloat = 0
    """Cost of the model calls whose prices are known. 0 if no price is known."""
    seconds: NonNegativeFloat = 0
    """Seconds of running time."""
    calls_by: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """Number of answered model calls, by the speaker in whose turns they were made. Calls of a
    judge, and the call that rewrites the task, belong to no speaker."""
    tokens_by: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """Number of tokens of these calls, by speaker."""
    cost_by: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    """Cost of these calls, by speaker. 0 if no price is known."""
    stop_requested: bool = False
    """Whether a stop was requested from outside."""
    tokens_said: tuple[tuple[str, str], ...] = ()
    """The done tokens that were said, each with its speaker."""
    tokens_unanswered: tuple[tuple[str, str], ...] = ()
    """The done tokens of the newest speaker that count only once another speaker answers, and have
    no answer yet."""
    alone: bool = False
    """Whether at most one speaker has spoken so far. Computed only for a separate judge."""
    predicates: tuple[str, ...] = ()
    """The predicates that returned true after the latest turn."""
    tools_called: tuple[tuple[str, str], ...] = ()
    """The ending tools that answered without an error, each with its caller."""
    code_by: str | None = None
    """The speaker of the newest message if this message contains code that can be run, otherwise
    None."""
    no_code_by: str | None = None
    """The speaker of the newest message if this message contains no such code, otherwise None."""
    said_by: str | None = None
    """The speaker of the newest message that all speakers hear. This field and the next three are
    computed only if people take part."""
    heard_from: tuple[str, ...] = ()
    """The speakers of messages that all speakers hear."""
    terminated: tuple[str, ...] = ()
    """The speakers for whom the newest message ends with their termination word."""
    auto_replies: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """Number of consecutive automatic replies, by the speaker for whom a person writes."""
    counts: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """The counts of end conditions and guards, such as consecutive blank replies, by their reasons.
    Zeros are left out."""

    def count(self, reason: str) -> int:
        """Return the count of the end with this reason."""
        return self.counts.get(reason, 0)


class Metadata(Protocol):
    """The part of a `graphs.log.metadata.MessageMetadata` that end conditions read."""

    @property
    def kind(self) -> str:
        """Return the kind of message."""

    @property
    def speaker(self) -> str | None:
        """Return the speaker, or None for a message of the conversation itself."""

    @property
    def is_aloud(self) -> bool:
        """Return whether the other speakers hear the message, in a round or as last words."""

    @property
    def ends_turn(self) -> bool:
        """Return whether the message is the last one of a speaker's turn."""


class SpeechMetadata(Metadata, Protocol):
    """The part of a speech's metadata that end conditions read."""

    @property
    def source(self) -> Source:
        """Return the speech's origin."""

    @property
    def flaw(self) -> Flaw | None:
        """Return the fault of the message, or None if it has none."""


class ResultMetadata(Metadata, Protocol):
    """The part of a tool result's metadata that end conditions read."""

    @property
    def failure(self) -> Failure | None:
        """Return the cause of a failed call, or None if the call did not fail."""

    @property
    def tool(self) -> str | None:
        """Return the tool that ran if a person chose another tool, otherwise None."""


class JudgeVerdict(Protocol):
    """The part of a `Verdict` that end conditions read."""

    @property
    def speaker(self) -> str:
        """Return the speaker after whose turn the judge was asked."""

    @property
    def readable(self) -> bool:
        """Return whether the judge's answer could be read."""

    @property
    def final(self) -> bool:
        """Return whether the judge was asked only because a cap was reached."""


def is_speech(about: Metadata) -> TypeGuard[SpeechMetadata]:
    """Return whether a speaker says the message in its own turn."""
    return about.kind == "speech"


def is_public_speech(about: Metadata) -> TypeGuard[SpeechMetadata]:
    """Return whether a speaker says the message in its own turn, and the others hear it."""
    return about.kind == "speech" and about.is_aloud


def is_tool_calls(about: Metadata) -> bool:
    """Return whether the message is a speaker's call of tools."""
    return about.kind == "tool_calls"


def is_tool_result(about: Metadata) -> TypeGuard[ResultMetadata]:
    """Return whether the message is the result of a tool."""
    return about.kind == "tool_result"


def verdict_of(about: Metadata) -> JudgeVerdict | None:
    """Return the judge's verdict in a message, or None."""
    verdict: JudgeVerdict | None = getattr(about, "verdict", None)
    return verdict
