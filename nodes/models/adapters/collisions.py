"""Further settings of the user's that a call sets by itself, by the names of all providers."""

from collections.abc import Mapping
from typing import Final

from ....graphs.common.errors import SpecError
from ..settings import CallSettings

_OURS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict"), "max_tokens"
    ),
    **dict.fromkeys(("stop", "stop_sequences"), "stop"),
    **dict.fromkeys(("seed", "random_seed"), "seed"),
    "temperature": "temperature",
    "top_p": "top_p",
}
"""Our name for each setting that has a field, by providers' names for it."""

_SENT: Final = (
    *("model", "messages", "input", "contents", "system", "n", "stream", "stream_options"),
    *("tools", "tool_choice", "functions", "function_call", "response_format", "text", "format"),
    *("output_config", "config", "callbacks", "options", "extra_body", "extra_headers"),
)
"""Parts of a request that each call sets."""


def check_collisions(settings: CallSettings) -> None:
    """Check that no further setting is one that a call sets by itself.

    Raises:
        SpecError: One is. Names the field.
    """
    for field in ("extra_args", "extra_body"):
        for name in getattr(settings, field):
            where = f"{settings.where}.{field}.{name}"
            if name in _OURS:
                raise SpecError(
                    f"{where}: there is a field for it; set {settings.where}.{_OURS[name]} instead"
                )
            if name in _SENT:
                raise SpecError(f"{where}: each call sets it; remove it")
