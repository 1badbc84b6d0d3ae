"""Settings that an assistant of a LangGraph server applies to the conversations it runs.

A run's own input comes first, then these settings, then the defaults.
"""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field
from pydantic.fields import FieldInfo

from ..common.data import Data, ModelName, Temperature
from ..common.model_help import field_docs
from ..common.validation import validate
from .conversation import Conversation, Form
from .fields import Prompts


class AssistantSettings(Data):
    """The settings that apply to every kind of conversation."""

    model: ModelName | None = None
    """The model of all speakers, judges and requests that name none. Not set if None."""
    temperature: Temperature = None
    """The temperature of all speakers that set none. Not set if None."""
    prompts: Prompts = Field(default_factory=dict)
    """Replacements for prompts, by the prompts' names."""

    @classmethod
    def described_fields(cls) -> dict[str, FieldInfo]:
        """Return the fields with their descriptions."""
        for name, text in field_docs(cls).items():
            cls.model_fields[name].description = text
        return cls.model_fields

    @classmethod
    def of(cls, context: object) -> Self:
        """Read the settings from a run's context, and ignore its other entries."""
        return validate(cls, _picked(context, cls.model_fields), "context.")

    def applied_to(self, conversation: Conversation) -> Conversation:
        """Apply the settings to the fields that a conversation does not set."""
        if not self.model_fields_set:
            return conversation
        update: dict[str, Any] = {"prompts": self.prompts | conversation.prompts}
        if conversation.model is None:
            update["model"] = self.model
        if self.temperature is not None:
            own = {"temperature": self.temperature}
            update["speakers"] = tuple(
                speaker
                if speaker.model_settings.temperature is not None
                else speaker.model_copy(
                    update={"model_settings": speaker.model_settings.model_copy(update=own)}
                )
                for speaker in conversation.speakers
            )
        return validate(Conversation, dict(conversation) | update)


def settings_of(form: type[Form] | None) -> dict[str, FieldInfo]:
    """Return the settings of a graph's assistants: common settings, and the form's prompts."""
    return AssistantSettings.described_fields() | (role_prompts(form) if form else {})


def role_prompts(form: type[Form]) -> dict[str, FieldInfo]:
    """Return the fields of a form that are system prompts."""
    return {name: info for name, info in form.model_fields.items() if name.endswith("_prompt")}


def prompts_set(form: type[Form], context: object) -> dict[str, Any]:
    """Return the system prompts that a run's context sets."""
    return _picked(context, role_prompts(form))


def _picked(context: object, names: Mapping[str, object]) -> dict[str, Any]:
    given = context if isinstance(context, Mapping) else {}
    return {name: given[name] for name in names if given.get(name) is not None}
