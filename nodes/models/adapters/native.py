"""Tools offered to a model that calls them by its API, in LangChain's terms."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from ....graphs.common.errors import ModelError, SpecError
from ..tool_calling.names import Names
from .binding import binding
from .composed import Chat, composed
from .dialects import Prepared, dialect_of

ToolCalling = Literal["native", "schema"]
"""How a model calls tools: by its API, or by an answer that is held to a JSON schema."""

CHOICES = ("auto", "required", "none")
"""What a choice of tools may be, beside the name of one."""


def check_choice(choice: str, tools: Sequence[BaseTool]) -> None:
    """Make sure that a tool choice is a known word or one of the tools."""
    if choice not in CHOICES and all(choice != tool.name for tool in tools):
        raise SpecError(f"tool_choice: {choice!r} is not one of the speaker's tools")


def offering(
    chat: Chat,
    label: str,
    tools: Sequence[BaseTool],
    choice: str,
    names: Names,
    prepare: Callable[[BaseChatModel, Mapping[str, Any]], Prepared] = Prepared,
) -> Chat:
    """Return a model with tools on offer.

    Args:
        chat: The chat model, or a composition of some.
        label: How the model is called in errors.
        tools: The tools.
        choice: ``auto``, ``required``, ``none`` or the name of a tool.
        names: The names of the tools as they are sent.
        prepare: Returns each chat model and the arguments of its calls, by the arguments that are
            bound to it.

    Raises:
        ModelError: The model can't call tools.
    """
    offered = [
        tool
        if names[tool.name] == tool.name
        else tool.model_copy(update={"name": names[tool.name]})
        for tool in tools
    ]

    def offer(model: BaseChatModel, bound: Mapping[str, Any]) -> Chat:
        model, options = prepare(model, bound)
        return binding(model.bind_tools(offered, **_chosen(model, choice, names)), options)

    try:
        return composed(chat, offer)
    except NotImplementedError as error:
        raise ModelError(
            f'{label} can\'t call tools: set tool_calling = "schema", or take the tools away'
        ) from error


def _chosen(model: BaseChatModel, choice: str, names: Names) -> dict[str, Any]:
    dialect = dialect_of(model)
    match choice:
        case "none":
            return {"tool_choice": dialect.none}
        case _ if choice == "auto" or not dialect.may_force(model):
            # Every server chooses by itself unless told otherwise; some refuse the word.
            return {}
        case "required":
            return {"tool_choice": "any"}
        case _:
            return {"tool_choice": names[choice]}
