"""Token usage and cost of model calls."""

import math
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final, NotRequired, Protocol, cast

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails
from pydantic import Field, NonNegativeInt
from typing_extensions import TypedDict

from ..common.data import Data, Spec, WithTokens, sum_known

_MILLION = 1_000_000

ESTIMATED = "estimated_usage"
"""The key in the ``response_metadata`` of an answer whose token counts are estimated."""


_STORED_METADATA = ("model_name", "model_provider", "finish_reason", ESTIMATED)


def select_response_metadata(answer: AIMessage) -> dict[str, Any]:
    """Return the part of the response metadata that is stored. Other entries may be long."""
    metadata = answer.response_metadata
    return {name: metadata[name] for name in _STORED_METADATA if name in metadata}


_MOST_TOKENS = 10**12
"""Larger counts are ignored as wrong. Sums of smaller counts can be stored."""


def token_count(told: object) -> int | None:
    """Return a valid count of tokens, or None."""
    if isinstance(told, bool) or not isinstance(told, int | float):
        return None
    is_count = math.isfinite(told) if isinstance(told, float) else True
    return round(told) if is_count and 0 <= told <= _MOST_TOKENS else None


class InputKinds(InputTokenDetails, total=False):
    """The prompt tokens that a provider bills apart, in LangChain's format."""

    ephemeral_5m_input_tokens: int
    """Tokens that were written to Claude's cache for five minutes; not in ``cache_creation``."""
    ephemeral_1h_input_tokens: int
    """Tokens that were written to Claude's cache for an hour; not in ``cache_creation``."""


class CallUsage(TypedDict):
    """The token usage of a model call, in LangChain's format."""

    input_tokens: int
    """Tokens of the prompt."""
    output_tokens: int
    """Tokens of the answer."""
    total_tokens: int
    """Tokens of both."""
    input_token_details: NotRequired[InputKinds]
    """Tokens of the prompt by kind."""
    output_token_details: NotRequired[OutputTokenDetails]
    """Tokens of the answer by kind."""


class Usage(WithTokens, Data):
    """Token usage and cost of model calls."""

    calls: NonNegativeInt = 0
    """Number of answered model calls."""
    input_tokens: NonNegativeInt = 0
    """Tokens of the prompts."""
    output_tokens: NonNegativeInt = 0
    """Tokens of the answers."""
    cached_tokens: NonNegativeInt = 0
    """Tokens of the prompts that came from a provider's cache; included in ``input_tokens``."""
    cache_write_tokens: NonNegativeInt = 0
    """Tokens of the prompts that were written to a provider's cache; included in
    ``input_tokens``."""
    cache_write_1h_tokens: NonNegativeInt = 0
    """Tokens that were written to a cache for an hour; included in ``cache_write_tokens``."""
    audio_input_tokens: NonNegativeInt = 0
    """Tokens of audio in the prompts; included in ``input_tokens``."""
    audio_output_tokens: NonNegativeInt = 0
    """Tokens of audio in the answers; included in ``output_tokens``."""
    estimated_calls: NonNegativeInt = 0
    """Number of calls whose tokens are estimated, because the model does not report them."""
    cost: float | None = Field(default=None, ge=0)
    """Total cost of the calls whose prices are known. None if no price is known."""

    def plus(self, answer: AIMessage, price: "Charges | None" = None) -> "Usage":
        """Add one answered call.

        Args:
            answer: The model's answer, with its ``usage_metadata`` if it has any.
            price: The model's price. The cost of the call is not known if None.

        Returns:
            The sum.
        """
        used = cast("CallUsage | None", answer.usage_metadata)
        if used is None:
            return self.model_copy(update={"calls": self.calls + 1})
        read = used.get("input_token_details") or InputKinds()
        for_hour = read.get("ephemeral_1h_input_tokens", 0)
        one = Usage(
            calls=1,
            input_tokens=used["input_tokens"],
            output_tokens=used["output_tokens"],
            cached_tokens=read.get("cache_read", 0),
            cache_write_tokens=for_hour
            + read.get("cache_creation", 0)
            + read.get("ephemeral_5m_input_tokens", 0),
            cache_write_1h_tokens=for_hour,
            audio_input_tokens=read.get("audio", 0),
            audio_output_tokens=(used.get("output_token_details") or {}).get("audio", 0),
            estimated_calls=ESTIMATED in answer.response_metadata,
        )
        cost = None if price is None else price.compute_cost(one)
        return add_usage((self, one.model_copy(update={"cost": cost})))


class Price(Spec):
    """A model's price for a million tokens, in any currency."""

    input: float = Field(kw_only=False, ge=0, allow_inf_nan=False)
    """The price of prompt tokens."""
    output: float = Field(kw_only=False, ge=0, allow_inf_nan=False)
    """The price of answer tokens."""
    cached_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The price of prompt tokens from a cache. The price of other prompt tokens if None."""
    cache_write: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The price of prompt tokens that are written to a cache. 1.25 times the price of other prompt
    tokens if None, as Anthropic and OpenAI bill them."""
    cache_write_1h: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The price of prompt tokens that are written to a cache for an hour. Twice the price of other
    prompt tokens if None, as Anthropic bills them."""
    audio_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The price of audio in prompts. The price of other prompt tokens if None."""
    audio_output: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The price of audio in answers. The price of other answer tokens if None."""

    def compute_cost(self, used: Usage) -> float:
        """Return the cost of the tokens that calls used, in the currency of the price."""
        kinds = (
            (used.cached_tokens, self.cached_input, self.input),
            (
                used.cache_write_tokens - used.cache_write_1h_tokens,
                self.cache_write,
                1.25 * self.input,
            ),
            (used.cache_write_1h_tokens, self.cache_write_1h, 2 * self.input),
            (used.audio_input_tokens, self.audio_input, self.input),
        )
        others = used.input_tokens - sum(tokens for tokens, _, _ in kinds)
        text = used.output_tokens - used.audio_output_tokens
        spoken = self.output if self.audio_output is None else self.audio_output
        charged = others * self.input + text * self.output + used.audio_output_tokens * spoken
        for tokens, price, default in kinds:
            charged += tokens * (default if price is None else price)
        return max(charged, 0.0) / _MILLION


class Charges(Protocol):
    """A source of a model's prices."""

    def compute_cost(self, used: Usage) -> float:
        """Return the cost of the tokens that calls used."""
        ...


_COUNTS = tuple(name for name in Usage.model_fields if name != "cost")


def add_usage(parts: Iterable[Usage]) -> Usage:
    """Return the total usage of several models."""
    found = list(parts)
    counts = {name: sum(map(attrgetter(name), found)) for name in _COUNTS}
    return Usage(cost=sum_known(map(attrgetter("cost"), found)), **counts)


def add_models(usage: Mapping[str, Usage], more: Mapping[str, Usage]) -> dict[str, Usage]:
    """Return the sum of two usages by model."""
    sums = {name: add_usage((usage.get(name, Usage()), used)) for name, used in more.items()}
    return {**usage, **sums}


def read_usage(state: Mapping[str, Any]) -> dict[str, Usage]:
    """Return the usage that a session's state contains, by the models' labels."""
    return {label: Usage.model_validate(part) for label, part in state.get("usage", {}).items()}


def dump_usage(usage: Mapping[str, Usage]) -> dict[str, Any]:
    """Convert usage to plain values. Each step stores them, so unused kinds are left out."""
    return {
        label: part.model_dump(
            mode="json", exclude={name for name in _RARE if not getattr(part, name)}
        )
        for label, part in usage.items()
    }


_RARE: Final = (
    *("cache_write_tokens", "cache_write_1h_tokens"),
    *("audio_input_tokens", "audio_output_tokens"),
)
"""Kinds of tokens that few calls use."""
