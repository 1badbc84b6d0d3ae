"""Whether a model or an error is of OpenAI's client, told without importing it for nothing.

Importing it costs as much as the rest of this program. An object of one of its classes shows that
it is imported already.
"""

from typing import TYPE_CHECKING, TypeGuard

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata

if TYPE_CHECKING:
    import openai

    from .chat_model import ChatModel


def comes_from(thing: object, module: str) -> bool:
    """Whether a thing's class, or one that it is made from, stands in a package or module."""
    homes = (each.__module__ for each in type(thing).__mro__)
    return any(home == module or home.startswith(f"{module}.") for home in homes)


def _is_one_of(error: BaseException | None, *names: str) -> bool:
    """Whether an error is of one of these classes of OpenAI's client."""
    if not comes_from(error, "openai"):
        return False
    import openai

    return isinstance(error, tuple(getattr(openai, name) for name in names))


def is_clients(error: BaseException) -> TypeGuard["openai.OpenAIError"]:
    """Whether OpenAI's client raised an error."""
    return _is_one_of(error, "OpenAIError")


def is_api_error(error: BaseException) -> TypeGuard["openai.APIError"]:
    """Whether OpenAI's client raised an error for what a server said, or for its silence."""
    return _is_one_of(error, "APIError")


def is_status_error(error: BaseException | None) -> TypeGuard["openai.APIStatusError"]:
    """Whether OpenAI's client raised an error for an HTTP status."""
    return _is_one_of(error, "APIStatusError")


def answer_in(error: BaseException) -> AIMessage | None:
    """Give the answer that OpenAI's client has raised for, since it does not fit its schema."""
    if not _is_one_of(error, "ContentFilterFinishReasonError", "LengthFinishReasonError"):
        return None
    # Older clients give none for what was filtered.
    completion = getattr(error, "completion", None)
    if completion is None or not completion.choices:
        return AIMessage("")
    choice, used = completion.choices[0], completion.usage
    counted = used and UsageMetadata(
        input_tokens=used.prompt_tokens,
        output_tokens=used.completion_tokens,
        total_tokens=used.total_tokens,
    )
    return AIMessage(
        choice.message.content or "",
        usage_metadata=counted,
        response_metadata={"finish_reason": choice.finish_reason},
    )


def is_ours(chat: object) -> TypeGuard["ChatModel"]:
    """Whether a model is the client that is made here, and not one of the user's own."""
    return comes_from(chat, "duologue.nodes.models.client.chat_model")
