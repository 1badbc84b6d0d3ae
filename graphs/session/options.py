"""The options of a run and of a session's methods, and their checks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage

from ...nodes.models.adapters.composed import Chat
from ...tools.registry.options import Default, check_options
from ...tools.registry.registry import Registered
from ..common.validation import name_type
from ..conversation.questions import Answer

MessageLike: TypeAlias = BaseMessage | str | int
"""A message of a session, its id or place, such as ``m0007``, or the number of its place."""


class SharedOptions(Registered, total=False):
    """The options of every run, all by name."""

    model: Chat | str | None
    """The model that speaks if the conversation names none: a LangChain chat model or a name."""
    models: Mapping[str, Chat] | None
    """LangChain chat models by the names that the conversation uses."""
    callbacks: Sequence[BaseCallbackHandler] | None
    """LangChain callback handlers, which are called for each node, model call and tool."""
    durability: Annotated[Literal["sync", "async"], Default("sync")]
    """``sync`` writes each step before the next begins; ``async`` writes it meanwhile."""
    answer: Answer | None
    """A function, sync or async, that takes a question and returns a person's answer. A function
    that is not async may wait for somebody: it is called in the thread that called `converse`, or,
    from a coroutine, in a thread of its own. Without it the session waits, and the result contains
    the questions."""


class SessionOptions(SharedOptions, total=False):
    """The options of a run of a session whose handle has the store, such as `Session.resume`."""

    message: str | None
    """The next message of the person, if the conversation has just one: it is said in the person's
    next turn, or after the end. In the latter case the session goes on: caps, guards and other ends
    count anew from this message; budgets of money, tokens, calls and seconds do not. ``exit``
    leaves, and says nothing more if the session has ended. If calls of tools must be decided first
    and ``answer`` does not decide them, `SessionError` says that the message was not said. The
    message is for the question that waits at the call: it is refused if that question was answered
    meanwhile, or another was asked."""


class StoreOptions(SharedOptions, total=False):
    """The options of runs in a store that say nothing for a person: `run_batch` and `ask`."""

    store: str | Path | None
    """The store of the session: a path, ``sqlite:///…``, ``postgresql://…`` or ``memory:``. None:
    the setting, else one SQLite file in the user's data folder."""


class Options(SessionOptions, StoreOptions, total=False):
    """The options of `converse` and `stream`."""


class GivenAnswer(NamedTuple):
    """An answer that a run begins with, as its caller gives it."""

    value: Any
    """The answer."""
    question: str | None = None
    """The id of the question. None: the only question that waits at the call."""


def check_run(options: Mapping[str, Any]) -> None:
    """Refuse unknown options, and values of a wrong type, before anything is run.

    What `Registered` holds is checked where it is registered, models where they are looked for.
    """
    check_options(options, Options, "session", "reset")
    answer, durability = options.get("answer"), options.get("durability")
    if answer is not None and not callable(answer):
        raise TypeError(f"answer must be a function, not {type(answer).__name__}")
    message = options.get("message")
    if message is not None and (not isinstance(message, str) or not message.strip()):
        raise TypeError("message must be text that is not empty")
    if durability not in (None, "sync", "async"):
        raise TypeError(f"durability must be 'sync' or 'async', not {durability!r}")
    _check_callbacks(options.get("callbacks"))


def _check_callbacks(given: object) -> None:
    if given is None:
        return
    if not isinstance(given, Sequence):
        raise TypeError(
            f"callbacks must be a list of LangChain callback handlers, not {name_type(given)}"
        )
    for place, one in enumerate(given):
        if not isinstance(one, BaseCallbackHandler):
            what = name_type(one)
            raise TypeError(f"callbacks.{place} must be a LangChain callback handler, not {what}")
