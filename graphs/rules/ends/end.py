"""The base of every end: when it holds, how strong it is, and its words."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Generic, NamedTuple, TypeVar

from langchain_core.messages import BaseMessage

from ...log.messages import place_of
from ...log.metadata import MessageMetadata, is_public_speech, verdict_of
from ...spec.conversation import Conversation
from ...spec.ends import Leaf, Reason
from ..moves import Strength
from ..position import Facts, Position
from .outcome_step import OutcomeStep, OutcomeStepKind
from .tally import Tally

L = TypeVar("L", bound=Leaf)

Tallies = Mapping[Reason, Tally]
"""What is counted, by the ends that count it."""


class AtEnd(NamedTuple):
    """A conversation that has just ended."""

    conversation: Conversation  # the spec
    position: Position  # where it ended
    held: Sequence[Leaf]  # the ends of the spec that held
    tallies: Tallies  # what each end counts

    @property
    def facts(self) -> Facts:
        """What was counted."""
        return self.position.facts

    def those(self, kind: type[L]) -> list[L]:
        """Give the ends of one kind that held."""
        return [end for end in self.held if isinstance(end, kind)]


class CountedMessage(NamedTuple):
    """A message on the way to the end."""

    message: BaseMessage  # the message
    about: MessageMetadata  # what is known of it
    conversation: Conversation  # the spec
    before: Facts  # what was counted before it
    facts: Facts  # what is counted with it
    tallies: Tallies  # what each end counts, with it


class EndRule(ABC):
    """One way to end a conversation."""

    reason: ClassVar[Reason]
    """The reason that it gives."""
    strength: ClassVar[Strength]
    """What it overrules."""
    stops_calls: ClassVar[bool] = False
    """Whether it ends the conversation before calls of tools that wait are run."""
    because: ClassVar[str]
    """What held, in a few words, where ``{by}``, ``{count}`` and ``{facts}`` are filled in."""

    def waits(self, position: Position) -> bool:
        """Whether it waits until the least number of rounds is complete."""
        return self.strength in (Strength.SAID, Strength.VERDICT, Strength.GUARD)

    @abstractmethod
    def holds(self, conversation: Conversation, position: Position) -> bool:
        """Whether it holds by itself, without being named in ``end_chat.when``."""

    def tally(self, conversation: Conversation) -> Tally | None:
        """Begin to count in a log what it looks at; `Facts.counts` keeps the number."""
        return None

    def words(self, at: AtEnd) -> str:
        """Say in a few words what held."""
        count = at.facts.count(self.reason)
        return self.because.format(by=self.by(at), count=count, facts=at.facts)

    def by(self, at: AtEnd) -> str | None:
        """Give the speaker whose words, calls or completed task ended it."""
        return None

    def causes(self, step: CountedMessage) -> Iterator[OutcomeStep]:
        """Tell what a message contributed to it."""
        yield from ()

    def _cause(
        self, step: CountedMessage, kind: OutcomeStepKind, speaker: str | None, text: str
    ) -> OutcomeStep:
        return OutcomeStep(
            kind=kind,
            message=place_of(step.message),
            speaker=speaker,
            text=f"{speaker}: {text}",
            reason=self.reason,
        )


class Named(EndRule, Generic[L]):
    """An end that ``end_chat.when`` names by its reason."""

    def holds(self, conversation: Conversation, position: Position) -> bool:
        return False

    @abstractmethod
    def is_met(self, end: L, facts: Facts) -> bool:
        """Whether it holds as the spec has it."""


class Guard(EndRule):
    """Counts what goes wrong and ends the conversation at a limit; a limit of 0 switches it off."""

    strength = Strength.GUARD
    counted: ClassVar[str]
    """What it counts, in a few words."""
    least: ClassVar[int] = 1
    """From which count on `causes` tells of it."""

    def limit(self, conversation: Conversation) -> int:
        """Give the count at which it ends the conversation."""
        limit: int = getattr(conversation.end_chat.guards, self.reason)
        return limit

    def counts(self, about: MessageMetadata) -> bool:
        """Whether it may count a message."""
        return is_public_speech(about)

    def counted_at(self, step: CountedMessage) -> int:
        """Give the count at a message."""
        return step.facts.count(self.reason)

    def holds(self, conversation: Conversation, position: Position) -> bool:
        count = position.facts.counts.get(self.reason, 0)
        return count > 0 and 0 < self.limit(conversation) <= count

    def by(self, at: AtEnd) -> str | None:
        return at.position.speaker

    def causes(self, step: CountedMessage) -> Iterator[OutcomeStep]:
        limit = self.limit(step.conversation)
        count = self.counted_at(step) if limit and self.counts(step.about) else 0
        if count >= self.least:
            verdict = verdict_of(step.about)
            who = step.about.speaker if verdict is None else verdict.speaker
            text = f"{self.counted} ({count} of {limit})"
            cause = self._cause(step, OutcomeStepKind.COUNTED, who, text)
            yield cause.model_copy(update={"count": count, "limit": limit})
