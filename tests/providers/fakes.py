"""The fakes by the names of their APIs, and the client that calls each."""

from pkgutil import resolve_name
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from pydantic import SecretStr

from duologue.nodes.testing import Script

from .base import FakeServer

KEY: Final = SecretStr("any")

# Classes by their modules: clients take seconds to import, and each worker of a parallel run reads
# this module to list the tests.
FAKES: Final = {
    "openai_chat": "openai_chat:OpenAIChat",
    "openai_responses": "openai_responses:OpenAIResponses",
    "anthropic": "anthropic_messages:AnthropicMessages",
    "google": "google_generative:GoogleGenerative",
    "ollama": "ollama_chat:OllamaChat",
    "mistral": "mistral:Mistral",
    "deepseek": "deepseek:DeepSeek",
    "openrouter": "openrouter:OpenRouter",
    "vllm": "vllm:Vllm",
    "litellm": "litellm:LiteLLM",
}
"""The module and class of each API's fake."""

WITHOUT_CLIENT: Final = {"gemini_openai": "gemini_openai:GeminiOpenAI"}
"""Fakes of APIs for which LangChain has no client of its own."""


def fake(api: str, script: Script = (), **options: Any) -> FakeServer[Any]:
    """Return the fake of an API, which runs inside `with`.

    Args:
        api: The API's name.
        script: Replies in the order of the calls, or a function from the messages, in OpenAI's
            form, and the request to a reply.
        options: The fake's own options.

    Returns:
        The server. Its `calls` are the answered requests, its `refused` the texts of the errors.
    """
    found: type[FakeServer[Any]] = resolve_name(f"{__package__}.{(FAKES | WITHOUT_CLIENT)[api]}")
    return found(script, **options)


_CLIENTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "openai_chat": ("langchain_openai:ChatOpenAI", {"model": "gpt-4.1-mini"}),
    "openai_responses": (
        "langchain_openai:ChatOpenAI",
        {"model": "gpt-4.1-mini", "use_responses_api": True},
    ),
    "anthropic": ("langchain_anthropic:ChatAnthropic", {"model": "claude-sonnet-4-6"}),
    "google": ("langchain_google_genai:ChatGoogleGenerativeAI", {"model": "gemini-2.5-flash"}),
    "gemini_openai": ("langchain_openai:ChatOpenAI", {"model": "gemini-3-pro-preview"}),
    "ollama": ("langchain_ollama:ChatOllama", {"model": "llama3.2:3b"}),
    "mistral": ("langchain_mistralai:ChatMistralAI", {"model": "mistral-small-latest"}),
    "deepseek": ("langchain_deepseek:ChatDeepSeek", {"model": "deepseek-chat"}),
    "openrouter": ("langchain_openrouter:ChatOpenRouter", {"model": "anthropic/claude-sonnet-4.5"}),
    "vllm": ("langchain_openai:ChatOpenAI", {"model": "Qwen/Qwen3-8B"}),
    "litellm": ("langchain_openai:ChatOpenAI", {"model": "gpt-4.1-mini"}),
}
"""The module and class of each API's client, and its default options."""

_OURS: Final = "duologue.nodes.models.client.chat_model:ChatModel"

_TRIES: Final = {"google": 1, "mistral": 1}
"""The option `max_retries` of clients that count the first try as well."""


def client_of(
    api: str, server: FakeServer[Any], *, ours: bool = False, **options: Any
) -> BaseChatModel:
    """Return LangChain's client of an API, which calls a fake.

    Args:
        api: The API's name.
        server: The fake.
        ours: Whether to return our own client, if the API has OpenAI's form.
        options: Arguments of the client, such as `model`, which has a default.

    Returns:
        The chat model.
    """
    place, defaults = _CLIENTS[api]
    if api != "ollama":
        defaults = {"api_key": KEY, "max_retries": _TRIES.get(api, 0), **defaults}
    made: BaseChatModel = resolve_name(_OURS if ours else place)(
        base_url=server.url, **{**defaults, **options}
    )
    return made
