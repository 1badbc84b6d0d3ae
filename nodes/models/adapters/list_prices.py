"""List prices of providers, from the table in the package ``genai-prices``."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from langchain_core.language_models import BaseChatModel

from ....graphs.conversation.usage import Usage


@dataclass(frozen=True)
class ListPrice:
    """A model, as its provider's price list identifies it."""

    model: str
    provider: str | None
    address: str | None
    """Address of the model's server. The provider's own if None."""

    def of(self, used: Usage) -> float:
        """Return the price of the tokens that calls used, in US dollars.

        Raises:
            LookupError: The price is not known.
        """
        import genai_prices

        counted = genai_prices.Usage(
            input_tokens=used.input_tokens,
            cache_read_tokens=used.cached_tokens,
            cache_write_tokens=used.cache_write_tokens,
            cache_write_1h_tokens=used.cache_write_1h_tokens,
            input_audio_tokens=used.audio_input_tokens,
            # Without it, some prices can't be computed. Our kinds exclude each other.
            cache_audio_read_tokens=0,
            output_tokens=used.output_tokens,
            output_audio_tokens=used.audio_output_tokens,
        )
        if self.address is None:
            found = genai_prices.calc_price(counted, self.model, provider_id=self.provider)
        else:
            found = genai_prices.calc_price(counted, self.model, provider_api_url=self.address)
        return float(found.total_price)


def list_price(chat: BaseChatModel) -> ListPrice | None:
    """Return the list price of a chat model, or None if it is not listed or there is no table."""
    if not has_list():
        return None
    # LangChain's own tracers use this method.
    told = chat._get_ls_params()
    return _find(told, getattr(chat, "openai_api_base", None))


def has_list() -> bool:
    """Return whether the table is installed. If so, load the table from its files."""
    if find_spec("genai_prices") is None:
        return False
    _load_list()
    return True


@cache
def _load_list() -> None:
    with suppress(LookupError):
        ListPrice("gpt-4o", "openai", None).of(Usage(input_tokens=1, output_tokens=1))


async def load_list() -> bool:
    """Call `has_list`, in a thread if the table is not loaded yet, because that takes a second."""
    is_loaded = bool(_load_list.cache_info().currsize)
    return has_list() if is_loaded else await asyncio.to_thread(has_list)


def label_of_call(serialized: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    """Return the name of a call's model, as LangChain's callbacks describe it."""
    path = serialized.get("id") or ["a model"]
    return str(metadata.get("ls_model_name") or path[-1])


def list_price_of_call(
    serialized: Mapping[str, Any], metadata: Mapping[str, Any]
) -> ListPrice | None:
    """Return the list price of a call's model, as LangChain's callbacks describe it."""
    return _find(metadata, serialized.get("kwargs", {}).get("openai_api_base"))


def _find(told: Mapping[str, Any], address: str | None) -> ListPrice | None:
    """Return the table's entry for a model, or None, by its metadata and its address."""
    model = told.get("ls_model_name")
    if not model:
        return None
    # Models of other servers with OpenAI's API may have the same names.
    found = ListPrice(model, told.get("ls_provider"), address)
    try:
        found.of(Usage(input_tokens=1, output_tokens=1))
    except LookupError:
        return None
    return found
