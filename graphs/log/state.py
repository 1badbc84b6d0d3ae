"""The state of the compiled graph: plain values that every checkpointer can store."""

from collections.abc import Sequence
from typing import Annotated, Any, Self

from langchain_core.messages import AnyMessage
from langgraph.channels import DeltaChannel

# ToolRuntime fails with typing.TypedDict on Python 3.11.
from typing_extensions import TypedDict

from .reducer import append


def newest(kept: Any, writes: Sequence[Any]) -> Any:  # noqa: ANN401
    """Reduce writes to the newest of them."""
    return writes[-1] if writes else kept


class _Messages(DeltaChannel[list[AnyMessage]]):
    """A channel of messages, which stay messages wherever they were stored."""

    def from_checkpoint(self, checkpoint: Any) -> Self:  # noqa: ANN401
        """Read a snapshot; LangGraph's servers give its messages as dicts."""
        channel = super().from_checkpoint(checkpoint)
        channel.value = append(channel.value, [])
        return channel


# DeltaChannel is in beta; the class above and these aliases are all that knows of it. With plain
# channels the SQLite saver writes the whole log and the whole spec again at every step, as each
# snapshot does. Seldom ones make reading no slower: it walks to the first step for the spec anyway,
# by a query with a variable for each channel and step without a snapshot. Some builds of SQLite
# take 32,766; LangGraph's own snapshot of every channel comes after 5,000 steps.
Messages = Annotated[list[AnyMessage], _Messages(append, snapshot_frequency=1000)]
Latest = Annotated[dict[str, Any], DeltaChannel(newest, dict)]
KeptText = Annotated[str, DeltaChannel(newest, str)]


class Input(TypedDict, total=False):
    """What a run is started with."""

    conversation: Latest
    """A `Conversation`, as a dict."""
    messages: Messages
    """What a person says, or the task of a conversation without a person."""


class Output(TypedDict, total=False):
    """What a run gives back."""

    specified_task: KeptText
    """The task that the speakers were given."""
    messages: Messages
    """What the speakers said to one another, with their calls of tools and the results."""
    outcome: dict[str, Any]
    """Why, when and by whom it ended: an `Outcome`, as a dict. Missing until then."""


class State(Input, Output, total=False):
    """Everything a session is resumed from."""

    spec: Latest
    """The conversation that this session runs, complete and checked."""
    unspoken: Messages
    """The rest of the log, such as drafts, verdicts, instructions and removed messages. Each
    message carries its place; `graphs.log.channels.log_of` puts both together."""
    position: dict[str, Any]
    """Where it is: a `Position`, as a dict. Missing until the task stands."""
    interpreter: Latest
    """What is kept of the interpreter that runs its code: a `graphs.spec.sandbox.Kept`, as a
    dict. Missing until code has run."""
    decisions: Latest
    """What a person has decided of the calls of a message that have not run yet, under ``message``
    (its id) and ``decisions``. Empty or missing at any other time."""
    usage: dict[str, Any]
    """What was used: for each model a `Usage`, as a dict."""
