"""What ends read: the facts, and the metadata of a message."""

from typing import Protocol, TypeGuard

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from ..common.data import Data
from ..speakers.replies import Failure, Flaw, Source


class Facts(Data):
    """The facts of a log so far: `graphs.rules.log_counter` computes them."""

    messages: NonNegativeInt = 0
    """Messages of the speakers."""
    calls: NonNegativeInt = 0
    """Answered model calls."""
    tokens: NonNegativeInt = 0
    """Tokens of prompts and answers."""
    cost: NonNegativeFloat = 0
    """Money spent, by the price table."""
    seconds: NonNegativeFloat = 0
    """Seconds spent running."""
    stop_requested: bool = False
    """Whether somebody outside asked it to stop."""
    tokens_said: tuple[tuple[str, str], ...] = ()
    """The done tokens that were said, each with its speaker."""
    tokens_unanswered: tuple[tuple[str, str], ...] = ()
    """Those of them that count only once they are answered, and are not answered yet. The newest
    speaker has said them."""
    alone: bool = False
    """Whether at most one speaker has spoken so far. Computed only for a separate judge."""
    predicates: tuple[str, ...] = ()
    """The predicates that held after the latest turn."""
    tools_called: tuple[tuple[str, str], ...] = ()
    """The ending tools that answered without an error, each with its caller."""
    code_by: str | None = None
    """The speaker of the newest message, if it contains code that can be run."""
    no_code_by: str | None = None
    """The speaker of the newest message, if it contains none."""
    said_by: str | None = None
    """The speaker of the newest message that all hear. This and the next three are computed only
    if people take part."""
    heard_from: tuple[str, ...] = ()
    """Those who have said something that all hear."""
    terminated: tuple[str, ...] = ()
    """Those for whom the newest message ends with their termination word."""
    auto_replies: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """Automatic replies in a row, by the speaker that a person speaks for."""
    counts: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """What ends and guards count in the log, such as blank replies in a row, by their reasons.
    Zeros are left out."""

    def count(self, reason: str) -> int:
        """Return what the end of this reason has counted."""
        return self.counts.get(reason, 0)


class Metadata(Protocol):
    """What ends read of the metadata of any message, `graphs.log.metadata.MessageMetadata`."""

    @property
    def kind(self) -> str:
        """The name of its kind."""

    @property
    def speaker(self) -> str | None:
        """Who said it. None: the conversation itself."""

    @property
    def is_aloud(self) -> bool:
        """Whether others hear it, in the rounds or as last words."""

    @property
    def ends_turn(self) -> bool:
        """Whether a turn is over with it."""


class SpeechMetadata(Metadata, Protocol):
    """What ends read of the metadata of a speech."""

    @property
    def source(self) -> Source:
        """Its origin."""

    @property
    def flaw(self) -> Flaw | None:
        """Its fault, if it was not as requested."""


class ResultMetadata(Metadata, Protocol):
    """What ends read of the metadata of a tool's result."""

    @property
    def failure(self) -> Failure | None:
        """The cause, if the call failed."""

    @property
    def tool(self) -> str | None:
        """The tool that ran, if a person chose another one."""


class JudgeVerdict(Protocol):
    """What ends read of a `Verdict`."""

    @property
    def speaker(self) -> str:
        """The speaker after whose turn the judge was asked."""

    @property
    def readable(self) -> bool:
        """Whether the judge's answer could be read."""

    @property
    def final(self) -> bool:
        """Whether the judge was asked only because a cap was reached."""


def is_speech(about: Metadata) -> TypeGuard[SpeechMetadata]:
    """Return whether a speaker said it in its turn."""
    return about.kind == "speech"


def is_public_speech(about: Metadata) -> TypeGuard[SpeechMetadata]:
    """Return whether a speaker said it in its turn, and others hear it."""
    return about.kind == "speech" and about.is_aloud


def is_tool_calls(about: Metadata) -> bool:
    """Return whether it is a speaker's call of tools."""
    return about.kind == "tool_calls"


def is_tool_result(about: Metadata) -> TypeGuard[ResultMetadata]:
    """Return whether it is the result of a tool."""
    return about.kind == "tool_result"


def verdict_of(about: Metadata) -> JudgeVerdict | None:
    """Return the judge's verdict in a message, or None."""
    verdict: JudgeVerdict | None = getattr(about, "verdict", None)
    return verdict
