"""Options of a run and of a session's methods, and their checks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore

from ...nodes.models.adapters.composed import Chat
from ...tools.registry.hooks import Hook as Hook
from ...tools.registry.registry import Registered
from ..common.content_input import ContentInput
from ..common.errors import name_type
from ..common.model_help import Default, check_options
from ..conversation.questions import Answer

MessageLike: TypeAlias = BaseMessage | str | int
"""A reference to a message: the message, its id, its place such as ``m0007``, or that number."""


class SharedOptions(Registered, total=False):
    """The options of every run. All are keyword arguments."""

    context: Any
    """A value that tools and agents read as LangGraph's ``runtime.context``, such as the current
    user. It sets no field of the conversation, and no model receives it. It is not stored, so each
    run of a session needs it.
    """
    runtime_store: BaseStore | None
    """LangGraph's store, in which tools and agents keep facts across sessions: ``runtime.store``,
    and arguments marked with ``InjectedStore``. It contains no sessions: ``store`` names the store
    of the sessions.
    """
    model: Chat | str | None
    """The model of the speakers for which the conversation names no model: a LangChain chat model,
    or a model's name.
    """
    models: Mapping[str, Chat] | None
    """LangChain chat models, by the names that the conversation uses for them."""
    callbacks: Sequence[BaseCallbackHandler] | None
    """LangChain callback handlers. They receive the callbacks of each node, model call and tool
    call.
    """
    durability: Annotated[Literal["sync", "async"], Default("sync")]
    """When a step is written to the store: ``sync`` writes it before the next step begins,
    ``async`` while the next step runs.
    """
    keep_checkpoints: Annotated[bool, Default(value=False)]
    """Whether the checkpoints of all steps stay in the store when the session has ended. By default
    a run that ends the session deletes all but the newest checkpoint, which then contains the past
    of the session. Only LangGraph's own history of the thread is lost.
    """
    answer: Answer | None
    """A function, sync or async, that receives a question and returns a person's answer. A sync
    function may block: it is called in the thread that called `converse` or, if a coroutine made
    the call, in a separate thread. Without this option the session waits, and the result contains
    the questions.
    """


class SessionOptions(SharedOptions, total=False):
    """The options of a run that a session's handle starts, as in `Session.resume`.

    They have no ``store``: the handle names it.
    """

    message: ContentInput | None
    """The next message of the person, if exactly one person takes part in the conversation: text,
    or a list of texts and files, such as ``["What is this?", Path("plan.png")]``. A file is a
    `Path`, bytes, or one of LangChain's content blocks with ``base64``, ``url`` or ``path``. The
    person says it in the next turn, or after the end. After the end, the session continues: caps,
    guards and other end conditions count from this message on, but budgets of money, tokens, calls
    and seconds count the whole session. ``exit`` leaves the conversation, and does nothing if the
    session has ended. If tool calls must be decided first and ``answer`` does not decide them,
    `SessionError` reports that the message was not said. The message answers only the question that
    is waiting when the run is requested: it is rejected if another run has answered that question,
    or asked another, before this run begins.
    """


class StoreOptions(SharedOptions, total=False):
    """The options of runs that take no ``message``: `run_batch` and `ask`."""

    store: str | Path | None
    """The store of the session: a path, ``sqlite:///…``, ``postgresql://…`` or ``memory:``. If
    None, the store in the settings, or else an SQLite file in the user's data folder.
    """


class Options(SessionOptions, StoreOptions, total=False):
    """The options of `converse` and `stream`."""


class GivenAnswer(NamedTuple):
    """An answer with which a run begins."""

    value: Any
    """The answer."""
    question: str | None = None
    """The id of the question. If None, the only question that is waiting."""


def check_run(options: Mapping[str, Any]) -> None:
    """Raise `TypeError` for unknown options and values of a wrong type, before anything runs.

    Registered objects are checked when they are registered, models when they are looked up.
    """
    check_options(options, Options, "session", "reset")
    answer, durability = options.get("answer"), options.get("durability")
    if answer is not None and not callable(answer):
        raise TypeError(f"answer: must be a function, not {type(answer).__name__}")
    message = options.get("message")
    is_blank = isinstance(message, str) and not message.strip()
    if is_blank or not isinstance(message, str | bytes | Path | Mapping | Sequence | None):
        raise TypeError("message: must be text that is not empty, or a list of texts and files")
    if durability not in (None, "sync", "async"):
        raise TypeError(f"durability: must be 'sync' or 'async', not {durability!r}")
    keeps = options.get("keep_checkpoints")
    if not isinstance(keeps, bool | None):
        raise TypeError(f"keep_checkpoints: must be True or False, not {keeps!r}")
    _check_callbacks(options.get("callbacks"))
    _check_stores(options)


def _check_stores(options: Mapping[str, Any]) -> None:
    """Raise `TypeError` if LangGraph's store and the store of the sessions are confused."""
    store = options.get("runtime_store")
    if store is not None and not isinstance(store, BaseStore):
        raise TypeError(
            f"runtime_store: must be a store of LangGraph (a BaseStore), not {name_type(store)}; "
            "pass the store of the sessions as store"
        )
    if isinstance(options.get("store"), BaseStore):
        raise TypeError(
            "store: must be the path or address of the store of the sessions; pass LangGraph's "
            "store as runtime_store"
        )


def _check_callbacks(given: object) -> None:
    if given is None:
        return
    if not isinstance(given, Sequence):
        raise TypeError(
            f"callbacks: must be a list of LangChain callback handlers, not {name_type(given)}"
        )
    for place, one in enumerate(given):
        if not isinstance(one, BaseCallbackHandler):
            what = name_type(one)
            raise TypeError(f"callbacks.{place}: must be a LangChain callback handler, not {what}")
