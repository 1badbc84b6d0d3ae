"""The types that callers may pass for the fields of a speaker."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required

from langchain_core.messages import MessageLikeRepresentation
from typing_extensions import TypedDict

from ..common.data import Fields, Spec, Thing
from .context import Context
from .formats import Format
from .interrupt_on import InterruptOn
from .model_settings import ModelSettings, PrivateOpening, SmallModelPrompt
from .replies import AnyReply


class SpeakerOptions(TypedDict, total=False):
    """The fields of a `Speaker` that are accepted by keyword only."""

    task: str | None
    private_opening: PrivateOpening | Fields | None
    memory: Sequence[MessageLikeRepresentation]
    replies: Sequence[AnyReply | Spec | Thing | Fields]
    examples: Sequence[MessageLikeRepresentation]
    prefixes: Mapping[str, str]
    speaks_to: Sequence[str] | None
    labels: bool | None
    hooks: Sequence[Thing]
    small_model_prompt: SmallModelPrompt | Fields | None
    checks_completion: bool
    keep_self_reflection: bool
    writes_output: bool
    format: Format | Fields | None
    tools: Sequence[Thing]
    tool_choice: str
    tool_calling: Literal["native", "schema"] | None
    interrupt_on: Mapping[Any, bool | InterruptOn | Fields]
    speaks_with_tool_calls: bool
    return_direct: bool
    model: str | None
    model_settings: ModelSettings | Fields
    on_length: Literal["accept", "continue", "retry"]
    context: Context | Fields | Literal["all"]


class SpeakerFields(SpeakerOptions, total=False):
    """The fields of a `Speaker` as a dict."""

    name: Required[str]
    system_prompt: str | None


class SpeakerChanges(SpeakerOptions, total=False):
    """The fields that `Speaker.replace` accepts."""

    name: str
    system_prompt: str | None
