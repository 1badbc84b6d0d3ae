"""What model calls use, and what that costs."""

import math
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Protocol

from langchain_core.messages import AIMessage
from pydantic import Field, NonNegativeInt

from ..common.data import Data, Spec

_MILLION = 1_000_000

ESTIMATED = "estimated_usage"
"""Stands in the ``response_metadata`` of an answer whose tokens had to be estimated."""


_TOLD = ("model_name", "model_provider", "finish_reason", ESTIMATED)


def select_response_metadata(answer: AIMessage) -> dict[str, Any]:
    """Give what is kept of what a model's client says of an answer: all else may be long."""
    metadata = answer.response_metadata
    return {name: metadata[name] for name in _TOLD if name in metadata}


_MOST_TOKENS = 10**12
"""Larger counts are ignored as wrong; sums of smaller ones can be stored."""


def token_count(told: object) -> int | None:
    """Read a count of tokens."""
    if isinstance(told, bool) or not isinstance(told, int | float):
        return None
    is_count = math.isfinite(told) if isinstance(told, float) else True
    return round(told) if is_count and 0 <= told <= _MOST_TOKENS else None


class Price(Spec):
    """What a model charges for a million tokens, in any currency."""

    input: float = Field(kw_only=False, ge=0, allow_inf_nan=False)
    """For the prompts."""
    output: float = Field(kw_only=False, ge=0, allow_inf_nan=False)
    """For the answers."""
    cached_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """For those of the prompts' tokens that came from a cache. None: as the others."""

    def of(self, prompt: int, cached: int, answer: int) -> float:
        """Give what a call costs.

        Args:
            prompt: Tokens of the prompt.
            cached: Those of them that came from a cache.
            answer: Tokens of the answer.

        Returns:
            The cost.
        """
        for_cached = self.input if self.cached_input is None else self.cached_input
        charged = (prompt - cached) * self.input + cached * for_cached + answer * self.output
        return max(charged, 0.0) / _MILLION


class Charges(Protocol):
    """What a model charges."""

    def of(self, prompt: int, cached: int, answer: int) -> float:
        """Give what a call costs."""
        ...


class Usage(Data):
    """What model calls used."""

    calls: NonNegativeInt = 0
    """Answered model calls."""
    input_tokens: NonNegativeInt = 0
    """Tokens of the prompts."""
    output_tokens: NonNegativeInt = 0
    """Tokens of the answers."""
    cached_tokens: NonNegativeInt = 0
    """Those of the prompts' tokens that came from a provider's cache."""
    estimated_calls: NonNegativeInt = 0
    """Calls whose tokens are estimated, since the model does not tell."""
    cost: float = Field(default=0, ge=0)
    """What they cost, where the prices are known."""

    def plus(self, answer: AIMessage, price: "Charges | None" = None) -> "Usage":
        """Add one answered call.

        Args:
            answer: What the model answered, with its ``usage_metadata`` where it has one.
            price: What the model charges.

        Returns:
            The sum.
        """
        used = answer.usage_metadata
        if used is None:
            return self.model_copy(update={"calls": self.calls + 1})
        cached = used.get("input_token_details", {}).get("cache_read") or 0
        one = Usage(
            calls=1,
            input_tokens=used["input_tokens"],
            output_tokens=used["output_tokens"],
            cached_tokens=cached,
            estimated_calls=ESTIMATED in answer.response_metadata,
            cost=0
            if price is None
            else price.of(used["input_tokens"], cached, used["output_tokens"]),
        )
        return add_usage((self, one))


def add_usage(parts: Iterable[Usage]) -> Usage:
    """Add up what several models used."""
    found = list(parts)
    return Usage.model_validate(
        {name: sum(map(attrgetter(name), found)) for name in Usage.model_fields}
    )


def read_usage(state: Mapping[str, Any]) -> dict[str, Usage]:
    """Read what a session has used from its state."""
    return {label: Usage.model_validate(part) for label, part in state.get("usage", {}).items()}


def dump_usage(usage: Mapping[str, Usage]) -> dict[str, Any]:
    """Write usage as plain values."""
    return {label: part.model_dump(mode="json") for label, part in usage.items()}
