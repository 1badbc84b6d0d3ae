"""The errors for users. Each message is one sentence that names the object and the remedy."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .addresses import show_address
from .sanitize import shorten


def how_to_install(extra: str) -> str:
    """Return the commands that install one of the package's extras, as a remedy for an error."""
    return (
        f"run `pip install '.[{extra}]'` or `uv sync --inexact --extra {extra}` in a clone of "
        "duologue"
    )


class DuologueError(RuntimeError):
    """Base of every error that this library raises on purpose.

    It is a RuntimeError because LangGraph's servers send the text of a RuntimeError to clients and
    hide the text of other errors.

    Args:
        text: The sentence. It may quote any text: it is escaped, joined to one line, and
            shortened if it is too long.
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(shorten(text).replace("\n", " "))


class SpecError(DuologueError, ValueError):
    """An invalid conversation, or an invalid file for one.

    The message names the field or file.
    """


class ModelError(DuologueError):
    """A model is not available or did not answer.

    The message names the model or its address.
    """


class ModelUnavailableError(ModelError):
    """A model is not available for any request.

    The message names the model or its address.

    Its key is rejected, the model does not exist, the server can't be reached, or a package is
    missing.
    """


class ContextTooLongError(ModelError):
    """A model refused a prompt that is too long for it. Contains both lengths if they are known.

    Attributes:
        prompt_tokens: Tokens of the prompt as the model counts them. None if unknown.
        limit: Maximum tokens that the model accepts, including the answer. None if unknown.
        estimate: Tokens of the prompt as duologue estimates them. None if unknown.
    """

    def __init__(
        self, text: str, *, prompt_tokens: int | None = None, limit: int | None = None
    ) -> None:
        super().__init__(text)
        self.prompt_tokens = prompt_tokens
        self.limit = limit
        self.estimate: int | None = None


class UnreadableAnswerError(ModelError):
    """A model's last answer does not fit the requested schema.

    The message names the schema.

    Attributes:
        reply: The complete text of this answer.
        session: The id of the session that contains it.
    """

    def __init__(self, text: str, *, reply: str, session: str) -> None:
        super().__init__(text)
        self.reply = reply
        self.session = session


class AnswerError(DuologueError, ValueError):
    """An answer to a question does not fit. The question stays open."""


class StoreError(DuologueError):
    """The store of sessions can't be opened, read or written.

    The message names the store.
    """


class SessionError(DuologueError):
    """A session is unknown, busy, or belongs to another conversation.

    The message names the session.
    """


class BatchError(DuologueError):
    """A batch is unknown, is run by another process, or belongs to other data.

    The message names the batch.
    """


class InconclusiveResult(DuologueError):  # noqa: N818  # an outcome of a test, not a fault
    """A simulation has neither passed nor failed: a verdict is inconclusive.

    The message names the verdict.
    """


class PausedError(DuologueError):
    """A run stopped before its next model call, because its batch is paused.

    Contains the reason.
    """


class ServerDownError(PausedError):
    """A run stopped because the server of an agent's model is down. It can be resumed.

    Attributes:
        outage: The number of the outage.
    """

    def __init__(self, text: str, outage: int) -> None:
        super().__init__(text)
        self.outage = outage


def function_error(what: str, name: str, error: BaseException, at: str | None = None) -> SpecError:
    """Return the error for a user's function or model that raised an exception."""
    where = "" if at is None else f" in {at}"
    address = None if isinstance(error, DuologueError) else find_address(error)
    server = "" if address is None else f" (its server is {address})"
    return SpecError(f"the {what} {name!r} failed{where}: {type(error).__name__}: {error}{server}")


def find_address(error: BaseException) -> str | None:
    """Return the address of the HTTP request that has failed, without secrets. None if unknown."""
    for one in iter_causes(error):
        # Clients raise RuntimeError if an error has no request.
        with suppress(Exception):
            url = str(getattr(one, "request").url)  # noqa: B009  # errors of several clients
            if url.startswith(("http://", "https://")):
                return show_address(url)
    return None


def iter_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__


@contextmanager
def naming_path(path: str) -> Iterator[None]:
    """Put the path of a part in front of each `SpecError` about the part."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{path}.{error}") from error
