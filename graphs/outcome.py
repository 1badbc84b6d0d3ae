"""What a conversation leaves behind besides its messages: verdicts, usage and the outcome."""

from collections.abc import Sequence

from langchain_core.messages import AIMessage
from pydantic import Field, NonNegativeInt

from duologue.graphs.end_chat import Position, Reason
from duologue.graphs.spec import Conversation, Data


class Verdict(Data):
    """A judge's answer."""

    speaker: str
    """Whose task was judged."""
    complete: bool
    """Whether it is complete. False when the answer could not be read."""
    objectives_left: tuple[str, ...] = ()
    """What is left to do, in the judge's words."""
    readable: bool = True
    """Whether the answer could be read."""


class Usage(Data):
    """What model calls used."""

    calls: NonNegativeInt = 0
    """Answered model calls."""
    input_tokens: NonNegativeInt = 0
    """Tokens of the prompts, as far as the models tell."""
    output_tokens: NonNegativeInt = 0
    """Tokens of the answers, as far as the models tell."""
    cached_tokens: NonNegativeInt = 0
    """Those of the prompts' tokens that came from a provider's cache."""

    def plus(self, answer: AIMessage) -> "Usage":
        """Add one answered call.

        Args:
            answer: What the model answered, with its ``usage_metadata`` where it has one.

        Returns:
            The sum.
        """
        used = answer.usage_metadata
        if used is None:
            return self.model_copy(update={"calls": self.calls + 1})
        return Usage(
            calls=self.calls + 1,
            input_tokens=self.input_tokens + used["input_tokens"],
            output_tokens=self.output_tokens + used["output_tokens"],
            cached_tokens=self.cached_tokens
            + (used.get("input_token_details", {}).get("cache_read") or 0),
        )


class Outcome(Data):
    """Why, when and by whom a conversation ended, and what it used."""

    reasons: tuple[Reason, ...]
    """Every reason that held at that moment; the first is *the* reason."""
    by: str | None = None
    """The speaker whose words or completed task ended it. None: the round cap did."""
    message: str | None = None
    """The id of the last message that was said."""
    rounds: NonNegativeInt
    """Complete rounds."""
    messages: NonNegativeInt
    """Messages said by the speakers, opening answers and last words included."""
    completed: tuple[str, ...] = ()
    """Who completed its task, in the order it happened."""
    usage: dict[str, Usage] = Field(default_factory=dict)
    """What was used, by model."""

    @property
    def reason(self) -> Reason:
        """The reason: the first of those that held."""
        return self.reasons[0]

    @property
    def total(self) -> Usage:
        """What all models used together."""
        parts = self.usage.values()
        return Usage(
            calls=sum(part.calls for part in parts),
            input_tokens=sum(part.input_tokens for part in parts),
            output_tokens=sum(part.output_tokens for part in parts),
            cached_tokens=sum(part.cached_tokens for part in parts),
        )

    def sentence(self) -> str:
        """Say in one line why it ended."""
        by = self.by or "nobody"
        match self.reason:
            case Reason.DONE_TOKEN:
                why = f"{by} said the done token"
            case Reason.COMPLETED:
                who = " and ".join(self.completed)
                why = f"{who} completed {'their tasks' if len(self.completed) > 1 else 'its task'}"
            case Reason.ROLE_FLIPS:
                why = f"{by} kept speaking another's part"
            case Reason.MAX_ITERATIONS:
                why = "the round cap was reached"
        rounds = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        messages = "1 message" if self.messages == 1 else f"{self.messages} messages"
        return f"Ended after {rounds} and {messages}: {why}."


def outcome(
    conversation: Conversation,
    position: Position,
    reasons: tuple[Reason, ...],
    spoken: Sequence[str],
    usage: dict[str, Usage],
) -> Outcome:
    """Make the outcome of a conversation that has just ended.

    Args:
        conversation: The spec.
        position: Where it ended.
        reasons: Every reason that holds there, the strongest first.
        spoken: The ids of all messages said, oldest first.
        usage: What was used, by model.

    Returns:
        The outcome.
    """
    match reasons[0]:
        case Reason.DONE_TOKEN:
            by = position.speaker
        case Reason.COMPLETED:
            by = position.completed[-1]
        case Reason.ROLE_FLIPS:
            by = max(position.role_flips, key=position.role_flips.__getitem__)
        case Reason.MAX_ITERATIONS:
            by = None
    return Outcome(
        reasons=reasons,
        by=by,
        message=spoken[-1] if spoken else None,
        rounds=position.rounds(conversation),
        messages=len(spoken),
        completed=position.completed,
        usage=usage,
    )
