"""What the nodes share that is not data: models and tools, and the one way to finish a step."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langgraph.config import get_stream_writer

from duologue.graphs.end_chat import Decision, Node, Position, decide
from duologue.graphs.log import speeches
from duologue.graphs.migrations import restored
from duologue.graphs.outcome import Usage, outcome
from duologue.graphs.spec import Conversation
from duologue.graphs.state import State
from duologue.nodes.models import Models
from duologue.tools.registry import Tools


@dataclass(frozen=True)
class Resources:
    """What is given to `build_graph`, since it is not data."""

    models: Models
    """Where models are found."""
    tools: Tools
    """Where tools are found."""
    stop_requested: Callable[[str], Awaitable[bool]] | None = None
    """Whether the session of this id was asked to stop. None: nobody can ask."""


@dataclass(frozen=True)
class Moment:
    """A session's state, read once at the start of a node."""

    conversation: Conversation
    """The spec."""
    position: Position
    """Where it is."""
    turn: Decision
    """Whose turn it is now, by the rules."""
    log: list[AnyMessage]
    """Everything ever said."""
    usage: dict[str, Usage]
    """What was used, by model."""
    task: str | None
    """The task of all."""

    @classmethod
    def of(cls, state: State) -> "Moment":
        """Read a state in which the task stands."""
        conversation = restored(state["spec"])
        position = Position.model_validate(state["position"])
        return cls(
            conversation,
            position,
            decide(conversation, position),
            state.get("messages", []),
            used_so_far(state),
            state.get("specified_task") or None,
        )

    def step(
        self,
        position: Position,
        messages: Sequence[BaseMessage],
        usage: dict[str, Usage] | None = None,
    ) -> dict[str, Any]:
        """Give what a node writes: the new position and messages, and the outcome at the end.

        Args:
            position: The new position.
            messages: New messages of the log, oldest first.
            usage: The new usage, where a model was called.

        Returns:
            The update of the state.
        """
        usage = self.usage if usage is None else usage
        update: dict[str, Any] = {
            "messages": list(messages),
            "position": position.model_dump(mode="json"),
            "usage": dumped(usage),
        }
        decision = decide(self.conversation, position)
        if decision.node is Node.END:
            spoken = [str(message.id) for message in speeches([*self.log, *messages])]
            ended = outcome(self.conversation, position, decision.reasons, spoken, usage)
            update["outcome"] = ended.model_dump(mode="json")
        return update

    def used(self, label: str, answer: AIMessage) -> dict[str, Usage]:
        """Give the usage after one more answered call of this model."""
        return with_call(self.usage, label, answer)


def used_so_far(state: State) -> dict[str, Usage]:
    """Read what a session has used."""
    return {label: Usage.model_validate(part) for label, part in state.get("usage", {}).items()}


def with_call(usage: dict[str, Usage], label: str, answer: AIMessage) -> dict[str, Usage]:
    """Give the usage after one more answered call of this model."""
    return usage | {label: usage.get(label, Usage()).plus(answer)}


def dumped(usage: dict[str, Usage]) -> dict[str, Any]:
    """Write usage as plain values."""
    return {label: part.model_dump(mode="json") for label, part in usage.items()}


def notify(text: str) -> None:
    """Tell whoever follows the stream what is going on."""
    get_stream_writer()({"notice": text})
