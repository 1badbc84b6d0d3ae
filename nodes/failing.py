"""What goes wrong when a model is asked, in one sentence each.

The client of OpenAI is imported only where it has raised, or reads what it raised.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from duologue.graphs.errors import ModelError
from duologue.graphs.settings import Settings
from duologue.graphs.store_errors import redacted
from duologue.nodes.origin import is_clients, is_unreadable
from duologue.nodes.too_long import as_too_long

if TYPE_CHECKING:
    import openai

_OPENAI = "api.openai.com"
"""Where calls go when no address is set."""

_ODD = (AttributeError, KeyError, TypeError, ValueError)
"""What the clients raise, unexplained, for an answer that is not OpenAI's API."""


def address_of(settings: Settings) -> str:
    """Give a server's address as users may see it: never with a password in it."""
    return redacted(settings.base_url) if settings.base_url else _OPENAI


def name_of(label: str, address: str | None) -> str:
    """Give what is asked in words: a server, or a model in a child of this process."""
    return f"the model server at {address}" if address else f"the model {label}"


@contextmanager
def failures(label: str, address: str | None) -> Iterator[None]:
    """Turn the client's exceptions inside the block into one sentence each.

    Args:
        label: The model's name.
        address: Where its server is. None: in a child of this process.

    Raises:
        ContextTooLongError: The model refused the prompt as too long.
        ModelError: The block failed; says how and what to do. An unreadable answer passes.
    """
    at = name_of(label, address)
    try:
        yield
    except Exception as error:
        if is_clients(error) and not is_unreadable(error):
            if (too_long := as_too_long(error, label)) is not None:
                raise too_long from error
            what = _what_went_wrong(error, label, address)
            raise ModelError(f"{at} {what}") from error
        if not isinstance(error, _ODD):
            raise
        raise ModelError(
            f"{at} does not answer as OpenAI's API does: check its address, which mostly ends in "
            f"/v1 ({type(error).__name__}: {str(error)[:200]})"
        ) from error


@contextmanager
def refusals(label: str) -> Iterator[None]:
    """Recognise inside the block that a model of the user's own refused a prompt as too long.

    Args:
        label: The model's name.

    Raises:
        ContextTooLongError: It did. What else it raises is the user's to read, and passes.
    """
    try:
        yield
    except Exception as error:
        if (too_long := as_too_long(error, label)) is not None:
            raise too_long from error
        raise


def _what_went_wrong(error: "openai.OpenAIError", label: str, address: str | None) -> str:
    import openai

    match error:
        case openai.AuthenticationError() | openai.PermissionDeniedError():
            return "rejected the key: check OPENAI_API_KEY or DUOLOGUE_API_KEY"
        case openai.NotFoundError():
            return (
                f"has no model {label!r}: `duologue models` lists what it has; or its address "
                "lacks /v1"
            )
        case openai.APITimeoutError():
            return "did not answer in time: raise DUOLOGUE_TIMEOUT or try again"
        case openai.APIConnectionError() if not address:
            return "is gone: its process has ended; try again"
        case openai.APIConnectionError() if broke_off(error):
            return "keeps breaking off in mid-answer: try again"
        case openai.APIConnectionError() if address == _OPENAI:
            return "can't be reached: check the network, and HTTPS_PROXY if you need a proxy"
        case openai.APIConnectionError():
            return "can't be reached: check OPENAI_BASE_URL or DUOLOGUE_BASE_URL"
        case openai.RateLimitError():
            return f"keeps refusing for now (429): {_detail(error)}"
        case openai.APIStatusError():
            return f"answered with an error ({error.status_code}): {_detail(error)}"
        case _:
            return f"broke off: {error}"


def _detail(error: "openai.APIStatusError") -> str:
    body = error.body
    message = body.get("message") if isinstance(body, dict) else None
    return str(message or error.message)


def broke_off(error: BaseException) -> bool:
    """Whether a connection broke while an answer streamed in, which the client does not mend."""
    cause: BaseException | None = error
    while cause is not None:
        trace = cause.__traceback__
        while trace is not None:
            # Where the client reads a stream; a failure before that it has retried itself.
            if trace.tb_frame.f_globals.get("__name__") == "openai._streaming":
                from openai import APIConnectionError

                return isinstance(error, APIConnectionError)
            trace = trace.tb_next
        cause = cause.__cause__
    return False
