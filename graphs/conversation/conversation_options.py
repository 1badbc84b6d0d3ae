"""The types that callers may pass for the fields of a conversation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from typing_extensions import TypedDict

from ..common.data import Fields, Name, Named, Thing
from ..ends.end_chat import AnyEndChat
from ..speakers.interrupt_on import InterruptOn, Rule
from ..speakers.speaker import Speaker
from ..speakers.speaker_options import SpeakerFields
from .fields import Opening, TaskSpecification, Wording
from .judges import AnyJudge, TurnOrder
from .sandbox import Sandbox
from .usage import Price

AnySpeaker: TypeAlias = Speaker | SpeakerFields | Fields
"""A speaker or its fields."""

Role: TypeAlias = str | AnySpeaker
"""A speaker in the arguments of a short form: its name or its fields."""


@dataclass(frozen=True)
class ReadAs:
    """The type of an option's value after validation, if callers may pass other types."""

    type: Any


SpeakerName: TypeAlias = Annotated[Role, ReadAs(Name)]
"""A speaker's name, or the speaker's fields."""

Names: TypeAlias = Annotated[Sequence[str], ReadAs(tuple[Name, ...])]

Things: TypeAlias = Annotated[Sequence[Thing], ReadAs(tuple[Named, ...])]
"""Names of registered objects, or in Python the objects themselves."""

Approvals: TypeAlias = Annotated[
    Mapping[Any, bool | InterruptOn | Fields], ReadAs(dict[Named, Rule])
]
"""The tools, or their names, that need approval before they run, each with its approval rule."""

NO_APPROVALS: Final[Mapping[Any, bool]] = {}


class OptionsBesideEndChat(TypedDict, total=False):
    """The fields of a conversation that no short form declares as its own parameters."""

    title: str | None
    turn_order: TurnOrder | str | Fields
    task_specification: TaskSpecification | Fields | None
    opening: Opening | Fields
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


class CommonOptions(OptionsBesideEndChat, total=False):
    """The fields of a conversation, for forms that do not declare ``end_chat`` as a parameter."""

    end_chat: AnyEndChat


class TaskOptions(CommonOptions, total=False):
    """The fields of a conversation, for forms that declare neither ``end_chat`` nor ``task``."""

    task: str | None


class ConversationOptions(CommonOptions, total=False):
    """The fields of a `Conversation` that are accepted by keyword only."""

    version: Literal[16]


class Changes(TaskOptions, total=False):
    """The fields that `Conversation.replace` accepts."""

    speakers: Mapping[str, Fields] | Sequence[AnySpeaker]
