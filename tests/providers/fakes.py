"""The fakes by the names of their APIs, and the client that calls each."""

from collections.abc import Callable
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

OLDER: Final = {"deepseek_r1": "deepseek:DeepSeekR1"}
"""Fakes of older versions of APIs."""

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
    found: type[FakeServer[Any]] = resolve_name(
        f"{__package__}.{(FAKES | OLDER | WITHOUT_CLIENT)[api]}"
    )
    return found(script, **options)


def _openai(server: FakeServer[Any], **options: Any) -> BaseChatModel:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(base_url=server.url, api_key=KEY, max_retries=0, **options)


def _responses(server: FakeServer[Any], **options: Any) -> BaseChatModel:
    return _openai(server, use_responses_api=True, **options)


def _anthropic(server: FakeServer[Any], **options: Any) -> BaseChatModel:
    from langchain_anthropic import ChatAnthropic

    return ChatAnthropic(base_url=server.url, api_key=KEY, max_retries=0, **options)


def _google(server: FakeServer[Any], **options: Any) -> BaseChatModel:
    from langchain_google_genai import ChatGoogleGenerativeAI

    return ChatGoogleGenerativeAI(base_url=server.url, api_key=KEY, max_retries=1, **options)


def _ollama(server: FakeServer[Any], **options: Any) -> BaseChatModel:
    from langchain_ollama import ChatOllama

    return ChatOllama(base_url=server.url, **options)


def _mistral(server: FakeServer[Any], **options: Any) -> BaseChatModel:
    from langchain_mistralai import ChatMistralAI

    return ChatMistralAI(base_url=server.url, api_key=KEY, max_retries=1, **options)


def _deepseek(server: FakeServer[Any], **options: Any) -> BaseChatModel:
    from langchain_deepseek import ChatDeepSeek

    return ChatDeepSeek(base_url=server.url, api_key=KEY, max_retries=0, **options)


def _openrouter(server: FakeServer[Any], **options: Any) -> BaseChatModel:
    from langchain_openrouter import ChatOpenRouter

    return ChatOpenRouter(base_url=server.url, api_key=KEY, max_retries=0, **options)


def _ours(server: FakeServer[Any], **options: Any) -> BaseChatModel:
    from duologue.nodes.models.client.chat_model import ChatModel

    return ChatModel(base_url=server.url, api_key=KEY, max_retries=0, **options)


_CLIENTS: Final[dict[str, tuple[Callable[..., BaseChatModel], str]]] = {
    "openai_chat": (_openai, "gpt-4.1-mini"),
    "openai_responses": (_responses, "gpt-4.1-mini"),
    "anthropic": (_anthropic, "claude-sonnet-4-6"),
    "google": (_google, "gemini-2.5-flash"),
    "gemini_openai": (_openai, "gemini-3-pro-preview"),
    "ollama": (_ollama, "llama3.2:3b"),
    "mistral": (_mistral, "mistral-small-latest"),
    "deepseek": (_deepseek, "deepseek-chat"),
    "openrouter": (_openrouter, "anthropic/claude-sonnet-4.5"),
    "vllm": (_openai, "Qwen/Qwen3-8B"),
    "litellm": (_openai, "gpt-4.1-mini"),
}


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
    make, model = _CLIENTS[api]
    if ours:
        make = _ours
    return make(server, **{"model": model, **options})
