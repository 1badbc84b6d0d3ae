"""Errors for users. A message is one sentence that names the remedy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ContextDecorator, contextmanager, suppress
from difflib import get_close_matches
from functools import cache, wraps
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from .addresses import hide_addresses, show_address
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
        # A quoted sentence may end before the remedy.
        super().__init__(shorten(text).replace("\n", " ").replace(".; ", "; "))


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


class AgentError(DuologueError):
    """An agent of the user did not answer: it raised an error, or its server is down or refuses.

    The message names the agent and, without secrets, the server's address if it is known.
    """


class ToolServerError(DuologueError):
    """An MCP server can't be reached or started, or did not answer as MCP requires.

    The message names the server and, without secrets, its address.
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
    """A simulation has neither passed nor failed.

    The message names the verdict that is inconclusive, or the error of the simulated user.
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


def function_error(
    what: str, name: str, error: BaseException, at: str | None = None
) -> DuologueError:
    """Return the error for a user's function, model or agent that raised an exception.

    It is a `SpecError` only if the function itself is at fault, and not the network.
    """
    where = "" if at is None else f" in {at}"
    address = None if isinstance(error, DuologueError) else find_address(error)
    server = "" if address is None else f" (its server is {address})"
    said = hide_addresses(f"{type(error).__name__}: {error}")
    is_unknown = what == "agent" and server and getattr(error, "status_code", None) == 404
    remedy = "; name the model of this server by agent_model (--agent-model)" if is_unknown else ""
    # A special OSError that names no file is an error of the network.
    is_network = address is not None or any(
        isinstance(one, OSError) and type(one) is not OSError and one.filename is None
        for one in iter_causes(error)
    )
    kind = AgentError if what == "agent" else DuologueError if is_network else SpecError
    return kind(f"the {what} {name!r} failed{where}: {said}{server}{remedy}")


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


F = TypeVar("F", bound=Callable[..., Any])


class _HiddenFrames(ContextDecorator):
    """A context and a decorator that end tracebacks in the user's own code.

    A decorated function is sync or async. An async generator function uses the context.
    """

    is_on = True
    """Whether it hides frames. The command line shows all of them if asked for a traceback."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _kind: object, error: BaseException | None, _frames: object) -> None:
        """Shorten the traceback of an error. It is raised again without this frame."""
        if self.is_on and isinstance(error, Exception):
            _hide_frames(error)

    def __call__(self, func: F) -> F:
        """Return the function with shorter tracebacks."""
        # Imported here: `inspect` takes as long as the rest of this module.
        from inspect import iscoroutinefunction

        if not iscoroutinefunction(func):
            return super().__call__(func)

        @wraps(func)
        async def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # any function's
            with self:
                return await func(*args, **kwargs)

        return cast("F", call)


hide_frames: Final = _HiddenFrames()
"""For public functions: no frame of this or another library is above the user's frames."""


def _hide_frames(error: Exception) -> None:
    """Leave only the frames from the user's first one on in an error and its causes.

    If there is none, a `DuologueError` and its causes have no frames, and neither has an error
    about an argument or a script. The cause of another error has only the place where it was
    raised. Any other error is a fault of a library, and keeps all frames.
    """
    for one in iter_causes(error):
        frames = last = one.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_libraries()):
            last, frames = frames, frames.tb_next
        if frames is not None or isinstance(error, DuologueError) or _is_raised_for_users(one):
            # An assignment fails for an error that is a frozen dataclass.
            one.with_traceback(frames)
        elif one is not error:
            one.with_traceback(last)
        if notes := getattr(one, "__notes__", None):
            # LangGraph notes the name and the id of a task, which a user can't use.
            notes[:] = [note for note in notes if not note.startswith("During task with name")]


def _is_raised_for_users(error: BaseException) -> bool:
    """Return whether a statement of this package raised an error about an argument or a script."""
    from traceback import extract_tb

    if not isinstance(error, TypeError | KeyError | AssertionError) or not error.__traceback__:
        return False
    # An inner function may have hidden the place, before a thread raised the error again.
    if not hasattr(error, "is_raised_for_users"):
        place = extract_tb(error.__traceback__)[-1]
        is_own = place.filename.startswith(str(_ROOT))
        error.is_raised_for_users = is_own and (place.line or "").startswith("raise ")  # type: ignore[union-attr]
    return bool(error.is_raised_for_users)  # type: ignore[union-attr]


_ROOT: Final = Path(__file__).parents[2]
"""The folder of this package."""


@cache
def _libraries() -> tuple[str, ...]:
    """Return the folders of this package, of other packages, and of the standard library."""
    # Imported here, since most programs raise no error.
    from sysconfig import get_path

    names = ("stdlib", "platstdlib", "purelib", "platlib")
    own = (_ROOT / "graphs", _ROOT / "nodes", _ROOT / "tools")
    folders = map(str, (*own, *(get_path(name) for name in names)))
    return (*(f"{folder}{os.sep}" for folder in folders), "<frozen")


@contextmanager
def naming_path(path: str) -> Iterator[None]:
    """Put the path of a part in front of each `SpecError` about the part."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{path}.{error}") from error


def name_type(given: object) -> str:
    """Return the type of a wrong value, for the end of an error."""
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__


def list_names(names: Iterable[str]) -> str:
    """Join names for an error message, each in quotes."""
    return ", ".join(repr(name) for name in names)


def did_you_mean(unknown: str, known: Sequence[str]) -> str:
    """Suggest similar names for the end of an error; case is ignored."""
    folded = {name.casefold(): name for name in known}
    near = [folded[name] for name in get_close_matches(unknown.casefold(), folded, cutoff=0.65)]
    return f"; did you mean {list_names(near)}?" if near else ""


def suggest_kind(unknown: object, known: Iterable[str]) -> str:
    """Suggest similar kinds of conversations, and list all, for the end of an error."""
    near = did_you_mean(unknown, [*known]) if isinstance(unknown, str) else ""
    begin = f"{near} The kinds are" if near else "; choose one of"
    return f"{begin} {list_names(known)}"


def suggest_near_or_all(unknown: str, known: Sequence[str]) -> str:
    """Suggest similar names, or else list all, for the end of an error."""
    return did_you_mean(unknown, known) or f"; choose one of {list_names(known)}"


def suggest_option(unknown: str, known: Sequence[str]) -> str:
    """Suggest the option with the same meaning, or else similar names, or else list all."""
    from .hints import SYNONYMS, suggest_name

    same = [name for name in SYNONYMS.get(unknown.casefold(), ()) if name in known]
    near = f"; did you mean {list_names(same)}?" if same else ""
    is_simulation = "make_agent" in known
    # `ask` and `simulate` have no conversation of the user.
    has_conversation = not is_simulation and "end_when" not in known
    meant = suggest_name(unknown, [*known, "run"] if has_conversation else known)
    first, second = (meant, near) if is_simulation else (near, meant)
    return first or second or suggest_near_or_all(unknown, known)
