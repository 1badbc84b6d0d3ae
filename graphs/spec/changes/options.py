"""What may be given where a conversation's fields stand, by type."""

from collections.abc import Mapping, Sequence
from typing import Literal, Required, TypeAlias

from typing_extensions import TypedDict

from ...common.data import Fields
from ...speakers.given import SpeakerFields
from ...speakers.speaker import Speaker
from ..end_chat import AnyEndChat
from ..fields import Opening, TaskSpecification, Wording
from ..judges import AnyJudge, TurnOrder
from ..sandbox import Sandbox
from ..usage import Price

AnySpeaker: TypeAlias = Speaker | SpeakerFields | Fields
"""A speaker or its fields."""

Role: TypeAlias = str | AnySpeaker
"""What a short form takes for one of its speakers: the name, or fields."""


class CommonOptions(TypedDict, total=False):
    """The fields of a conversation that every short form takes by name."""

    title: str | None
    turn_order: TurnOrder | str | Fields
    task_specification: TaskSpecification | Fields | None
    opening: Opening | Fields
    end_chat: AnyEndChat
    judge: AnyJudge | str | Fields
    model: str | None
    prices: Mapping[str, Price | Fields]
    max_tool_rounds: int
    max_call_errors: int
    max_tool_errors: int
    tool_timeout: float
    sandbox: Sandbox | str | Fields
    seed: int | None
    prompts: Mapping[str, str | Wording | Fields]


class TaskOptions(CommonOptions, total=False):
    """The same, where the task is no argument of its own."""

    task: str | None


class ConversationFields(TaskOptions, total=False):
    """The fields of a `Conversation`, as they may be given."""

    version: Literal[10]
    speakers: Required[Sequence[AnySpeaker]]


class Changes(TaskOptions, total=False):
    """What `Conversation.replace` takes."""

    speakers: Mapping[str, Fields] | Sequence[AnySpeaker]
