"""Options of a call that a chat model with structured output is asked with."""

from collections.abc import Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import (
    Runnable,
    RunnableBinding,
    RunnableParallel,
    RunnableSequence,
)


def binding(asked: Runnable[Any, Any], options: Mapping[str, Any]) -> Runnable[Any, Any]:
    """Give the options to the chat model with which a runnable begins.

    A map, as LangChain's structured output begins with to keep the raw message, drops those that it
    is called with.
    """
    match asked:
        case _ if not options:
            return asked
        case BaseChatModel():
            return asked.bind(**options)
        case RunnableBinding(bound=BaseChatModel()):
            return asked.model_copy(update={"kwargs": {**options, **asked.kwargs}})
        case RunnableBinding():
            return asked.model_copy(update={"bound": binding(asked.bound, options)})
        case RunnableSequence():
            return asked.model_copy(update={"first": binding(asked.first, options)})
        case RunnableParallel():
            steps = {name: binding(step, options) for name, step in asked.steps__.items()}
            return asked.model_copy(update={"steps__": steps})
        case _:
            return asked
