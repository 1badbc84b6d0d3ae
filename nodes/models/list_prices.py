"""What providers charge, from the table that the package ``genai-prices`` brings along."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from langchain_core.language_models import BaseChatModel


@dataclass(frozen=True)
class ListPrice:
    """What a provider's price list says of a model."""

    model: str
    provider: str | None
    address: str | None
    """Where its server is. None: the provider's own."""

    def of(self, prompt: int, cached: int, answer: int) -> float:
        """Give what a call costs, in US dollars; raises `LookupError` where nothing is known."""
        from genai_prices import Usage, calc_price

        used = Usage(input_tokens=prompt, cache_read_tokens=cached, output_tokens=answer)
        if self.address is None:
            found = calc_price(used, self.model, provider_id=self.provider)
        else:
            found = calc_price(used, self.model, provider_api_url=self.address)
        return float(found.total_price)


def list_price(chat: BaseChatModel) -> ListPrice | None:
    """Find a chat model in the table. None: it is not in it, or there is no table."""
    if not has_list():
        return None
    # What LangChain's own tracers read.
    told = chat._get_ls_params()
    return listed(told, getattr(chat, "openai_api_base", None))


def has_list() -> bool:
    """Whether there is a table, which is read. It reads files."""
    if find_spec("genai_prices") is None:
        return False
    with suppress(LookupError):
        ListPrice("gpt-4o", "openai", None).of(1, 0, 1)
    return True


def listed(told: Mapping[str, Any], address: str | None) -> ListPrice | None:
    """Find a model in the table, which is there, by what tracers read of it and its address."""
    model = told.get("ls_model_name")
    if not model:
        return None
    # Other servers speak OpenAI's API too, and their models may have the same names.
    found = ListPrice(model, told.get("ls_provider"), address)
    try:
        found.of(1, 0, 1)
    except LookupError:
        return None
    return found
