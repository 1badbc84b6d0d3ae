"""The errors a user can meet. Each message is one sentence that names the thing and what to do."""

from .sanitize import shorten


class DuologueError(RuntimeError):
    """Base of every error this library raises on purpose.

    LangGraph's servers pass the text of a RuntimeError on to clients and hide that of others.

    Args:
        text: The sentence. What it quotes may be anything: it is made one harmless line, and
            cut where it is too long.
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(shorten(text).replace("\n", " "))


class SpecError(DuologueError, ValueError):
    """A conversation, or a file that should hold one, is not valid. Names the field or file."""


class ModelError(DuologueError):
    """A model can't be had or did not answer. Names the model or its address."""


class ModelUnavailableError(ModelError):
    """A model can't be had, whatever it is asked. Names the model or its address.

    Its key is rejected, there is no such model, no server is reached, or a package is missing.
    """


class ContextTooLongError(ModelError):
    """A model refused a prompt as longer than it takes. Says how long both are, where known.

    Attributes:
        prompt_tokens: The tokens of the prompt, as the model counts them. None: not told.
        limit: The tokens that the model takes, those of the answer included. None: not told.
    """

    def __init__(
        self, text: str, *, prompt_tokens: int | None = None, limit: int | None = None
    ) -> None:
        super().__init__(text)
        self.prompt_tokens = prompt_tokens
        self.limit = limit


class UnreadableAnswerError(ModelError):
    """A model's last answer does not fit the schema that was asked for. Names the schema.

    Attributes:
        reply: The whole text of that answer.
        session: The id of the session that it is stored in.
    """

    def __init__(self, text: str, *, reply: str, session: str) -> None:
        super().__init__(text)
        self.reply = reply
        self.session = session


class AnswerError(DuologueError, ValueError):
    """An answer to a question does not fit. The question stays open."""


class StoreError(DuologueError):
    """The place where sessions are kept can't be opened, read or written. Names it."""


class SessionError(DuologueError):
    """A session is unknown, busy, or belongs to another conversation. Names the session."""


class BatchError(DuologueError):
    """A batch is unknown, is run by another process, or belongs to other data. Names the batch."""


class PausedError(DuologueError):
    """A run stopped before its next model call, since all runs of a batch are paused. Says why."""


def function_error(what: str, name: str, error: BaseException, at: str | None = None) -> SpecError:
    """Make the error for a function or model of the user's own that raised."""
    where = "" if at is None else f" in {at}"
    return SpecError(f"the {what} {name!r} failed{where}: {type(error).__name__}: {error}")
