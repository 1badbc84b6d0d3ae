"""The settings of one model call: those of the user, and this project's defaults."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from ...graphs.common.data import UNSET
from ...graphs.speakers.parts import ModelSettings


@dataclass(frozen=True)
class CallSettings:
    """The settings of one model call, by the names of `ModelSettings`.

    A setting of the user's is sent, or its refusal is an error. A default is sent if the client and
    the model accept it.
    """

    chosen: Mapping[str, Any] = field(default_factory=dict)
    """The settings that the user set."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The defaults of the settings that the user did not set."""
    where: str = "model_settings"
    """The path of the settings in the conversation, for errors."""
    extra_args: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the client, by its names."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request's body."""
    extra_headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers of the request."""

    @classmethod
    def of(cls, model_settings: ModelSettings, where: str, **defaults: object) -> Self:
        """Return the settings of a call.

        Args:
            model_settings: The settings that the user set.
            where: Their path in the conversation.
            defaults: The values of settings that the user did not set. None: there is no default.
        """
        own: dict[str, Any] = {
            "temperature": model_settings.temperature,
            "max_tokens": model_settings.max_tokens,
            "top_p": model_settings.top_p,
            "stop": list(model_settings.stop) or None,
            "seed": model_settings.seed,
        }
        return cls(
            {name: value for name, value in own.items() if value not in (None, UNSET)},
            {
                name: value
                for name, value in defaults.items()
                if value is not None and own[name] is None
            },
            where,
            model_settings.extra_args,
            model_settings.extra_body,
            model_settings.extra_headers,
        )

    @cached_property
    def is_set(self) -> bool:
        """Whether the user set any."""
        return bool(self.chosen or self.extra_args or self.extra_body or self.extra_headers)

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """The settings and defaults to send, without those that only the provider knows."""
        return {**self.defaults, **self.chosen}

    def without(self, names: Collection[str]) -> Self:
        """Return the settings without the defaults of these names."""
        kept = {name: value for name, value in self.defaults.items() if name not in names}
        return self if len(kept) == len(self.defaults) else replace(self, defaults=kept)
