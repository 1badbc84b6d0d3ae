"""Models of providers, by names such as ``anthropic:claude-…``, created by LangChain."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from pydantic import ValidationError

from ....graphs.common.errors import DuologueError, ModelError, ModelUnavailableError
from ....graphs.common.sanitize import excerpt
from ....graphs.common.settings import Settings
from ..client.server_replies import TooLargeReplyError
from ..refusals import (
    advise_on_credit,
    find_refusal,
    is_foreign,
    is_outage,
    is_unavailable,
    passed,
    read_too_long,
)
from ..settings import learned_of_name
from .langchain import LangChainModel

_PACKAGES: Final = {
    **{
        name: f"langchain-{name.replace('_', '-')}"
        for name in (
            *("anthropic", "azure_ai", "baseten", "cohere", "deepseek", "fireworks"),
            *("google_genai", "google_vertexai", "groq", "huggingface", "ibm", "litellm", "meta"),
            *("mistralai", "ollama", "openrouter", "perplexity", "together", "upstage", "xai"),
        )
    },
    **dict.fromkeys(("azure_openai", "langsmith"), "langchain-openai"),
    **dict.fromkeys(
        (
            *("anthropic_bedrock", "bedrock", "bedrock_converse"),
            *("bedrock_mantle_anthropic", "bedrock_mantle_openai"),
        ),
        "langchain-aws",
    ),
    "google_anthropic_vertex": "langchain-google-vertexai",
    "nvidia": "langchain-nvidia-ai-endpoints",
}
"""The package of each provider. Any other word before a colon is part of a model's name."""

_OPENAI: Final = "openai:"
"""Prefix of the models that this project's own client calls."""


def is_of_provider(name: str | None) -> bool:
    """Return whether a name begins with a provider whose client LangChain creates."""
    provider, colon, model = (name or "").partition(":")
    return provider in _PACKAGES and bool(colon and model.strip())


def without_openai(name: str) -> str:
    """Return OpenAI's name for a model, without LangChain's prefix."""
    model = name.removeprefix(_OPENAI)
    return model if model.strip() else name


def loads_files(name: str) -> bool:
    """Return whether a name means weights that are loaded into this process."""
    return name.startswith("huggingface:")


class ProviderModel(LangChainModel):
    """A model created by a provider's name, such as ``anthropic:claude-sonnet-4-5``."""

    def __init__(self, label: str, chat: BaseChatModel, max_reply_size: int) -> None:
        super().__init__(label, chat, learned_of_name(label, None))
        self.max_reply_size = max_reply_size

    def checked(self, found: object) -> object:
        """Return a reply after checking its size. Each character counts as a byte.

        The providers' packages have their own HTTP clients, which have no limit.
        """
        left, size = [found], 0
        while left:
            part = left.pop()
            size += len(part) if isinstance(part, str | bytes) else 1
            if size > self.max_reply_size:
                too_large = TooLargeReplyError(self.max_reply_size)
                raise ModelError(f"the model {self.label} sent {too_large}")
            if isinstance(part, AIMessage):
                calls = (*part.tool_calls, *part.invalid_tool_calls)
                left += (part.content, part.additional_kwargs, *calls)
            elif isinstance(part, Mapping):
                left += part.values()
            elif isinstance(part, list | tuple):
                left += part
        return found

    @contextmanager
    def errors(self, *, of_many: bool) -> Iterator[None]:
        """Turn all errors of the provider's package into errors of duologue."""
        with provider_failures(self.label):
            yield


def make_model(name: str, settings: Settings) -> ProviderModel:
    """Create the model of a provider. Takes seconds and reads files.

    Args:
        name: The provider and its name for the model, such as ``anthropic:claude-sonnet-4-5``.
        settings: The settings of duologue.

    Raises:
        ModelUnavailableError: A package or a setting of the provider is missing.
    """
    package = _PACKAGES[name.partition(":")[0]]
    missing = [name for name in ("langchain", package) if find_spec(name.replace("-", "_")) is None]
    if missing:
        raise ModelUnavailableError(
            f"model {name!r} needs more packages; run `pip install {' '.join(missing)}`"
        )
    from langchain.chat_models import init_chat_model

    with provider_failures(name, ModelUnavailableError):
        chat = init_chat_model(name)
    return ProviderModel(name, chat, settings.max_reply_size)


@contextmanager
def provider_failures(label: str, kind: type[ModelError] = ModelError) -> Iterator[None]:
    """Turn all errors of a provider's package inside the block into one kind of error.

    The exceptions that `failures` passes unchanged pass here as well.
    """
    try:
        yield
    except DuologueError:
        raise
    except Exception as error:
        if (too_long := read_too_long(error, label)) is not None:
            raise too_long from error
        # A package that is not known here reports most failures by a status or a connection.
        is_failure = find_refusal(error) is not None or is_outage(error)
        is_of_others = is_foreign(error) and not is_failure
        if is_of_others or passed(error, "langchain_core.callbacks.manager"):
            raise
        kind = ModelUnavailableError if is_unavailable(error) else kind
        said = f"{_told(error)}{advise_on_credit(error)}"
        raise kind(f"the model {label} failed: {said}") from error


def _told(error: Exception) -> str:
    # The input that pydantic quotes may contain a key.
    what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
    return excerpt(what) or type(error).__name__
