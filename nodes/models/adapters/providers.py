"""Models of providers, by names such as ``anthropic:claude-…``, as LangChain makes them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from pydantic import ValidationError

from ....graphs.common.errors import DuologueError, ModelError, ModelUnavailableError
from ....graphs.common.sanitize import excerpt
from ..client.failures import passed, refusals
from ..client.origin import answer_in
from ..client.server_replies import TooLargeReplyError
from ..refusals import is_unavailable
from ..tool_calling.calls import unread

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
"""The prefix of models that this project's own client asks."""


def is_of_provider(name: str | None) -> bool:
    """Return whether a name begins with the name of a provider whose client LangChain makes."""
    provider, colon, model = (name or "").partition(":")
    return provider in _PACKAGES and bool(colon and model.strip())


def without_openai(name: str) -> str:
    """Return a model's name as OpenAI knows it, without LangChain's prefix for OpenAI."""
    model = name.removeprefix(_OPENAI)
    return model if model.strip() else name


def loads_files(name: str) -> bool:
    """Whether a name means weights that are loaded into this process: a folder's, or a hub's."""
    return name.startswith("huggingface:")


def of_provider(name: str) -> BaseChatModel:
    """Make the model of a provider. It takes seconds and reads files.

    Raises:
        ModelUnavailableError: A package or a setting of the provider is missing.
    """
    package = _PACKAGES[name.partition(":")[0]]
    missing = [
        install
        for module, install in (
            ("langchain", "duologue[providers]"),
            (package.replace("-", "_"), package),
        )
        if find_spec(module) is None
    ]
    if missing:
        raise ModelUnavailableError(
            f"model {name!r} needs more packages: install {' and '.join(missing)}"
        )
    from langchain.chat_models import init_chat_model

    with provider_failures(name, ModelUnavailableError):
        return init_chat_model(name)


def check_reply_size(found: object, label: str, limit: int) -> None:
    """Check the size of a reply that a provider's package has read, before anything else reads it.

    These packages read with clients of their own, which have no limit. Each character counts as a
    byte.

    Raises:
        ModelError: The reply is larger than the limit.
    """
    left, size = [found], 0
    while left:
        part = left.pop()
        size += len(part) if isinstance(part, str | bytes) else 1
        if size > limit:
            raise ModelError(f"the model {label} sent {TooLargeReplyError(limit)}")
        if isinstance(part, AIMessage):
            calls = (*part.tool_calls, *part.invalid_tool_calls)
            left += (part.content, part.additional_kwargs, *calls)
        elif isinstance(part, Mapping):
            left += part.values()
        elif isinstance(part, list | tuple):
            left += part


@contextmanager
def provider_failures(label: str, kind: type[ModelError] = ModelError) -> Iterator[None]:
    """Make one error of whatever a provider's package raises inside the block."""
    try:
        with refusals(label):
            yield
    except DuologueError:
        raise
    except Exception as error:
        if passed(error, "langchain_core.callbacks.manager") or _holds_answer(error):
            raise
        kind = ModelUnavailableError if is_unavailable(error) else kind
        raise kind(f"the model {label} failed: {_told(error)}") from error


def _holds_answer(error: Exception) -> bool:
    """Whether the answer can be read from it."""
    if isinstance(error, ValidationError):
        return unread(error) is not None
    return answer_in(error) is not None


def _told(error: Exception) -> str:
    # Among the input that pydantic shows there may be a key.
    what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
    return excerpt(what) or type(error).__name__
