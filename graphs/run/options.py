"""The options of a run, and their checks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from langchain_core.callbacks import BaseCallbackHandler

from ...nodes.models.adapters.composed import Chat
from ...tools.registry.registry import Registered, check_options
from ..common.validation import kind_of
from ..spec.questions import Answer


class Options(Registered, total=False):
    """What `converse`, `resume` and `stream` take beside the conversation, all by name."""

    store: str | Path | None
    """Where sessions are kept: a path, ``sqlite:///…``, ``postgresql://…`` or ``memory:``. None:
    the setting, else one SQLite file in the user's data folder."""
    model: Chat | str | None
    """What speaks where the conversation names no model: a LangChain chat model or a name."""
    models: Mapping[str, Chat]
    """LangChain chat models by the names that the conversation uses."""
    callbacks: Sequence[BaseCallbackHandler]
    """LangChain callback handlers, which are told of each node, model call and tool."""
    durability: Literal["sync", "async"]
    """``sync`` (the default) writes each step before the next begins; ``async`` beside it."""
    answer: Answer
    """What answers when a person is asked: a function, sync or async, that takes the question. One
    that is not async may wait for somebody: it is called in the thread of who called `converse`,
    or from a coroutine in one of its own. Without it the session waits, and the result carries the
    questions."""
    message: str | None
    """What the person says next, where the conversation has just one: in its next turn, or, where
    it has ended, after the end. Then the session goes on: caps, guards and what else ends it count
    anew from this message, budgets of money, tokens, calls and seconds do not. ``exit`` leaves, and
    says nothing more where it has ended. Where calls of tools are to be decided first and
    ``answer`` does not, `SessionError` tells that it was not said. It is for the question that
    waits at the call: if that was answered meanwhile, or another was asked, it is refused."""


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
            f"callbacks must be a list of LangChain callback handlers, not {kind_of(given)}"
        )
    for place, one in enumerate(given):
        if not isinstance(one, BaseCallbackHandler):
            what = kind_of(one)
            raise TypeError(f"callbacks.{place} must be a LangChain callback handler, not {what}")
