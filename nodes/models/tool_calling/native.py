"""Tools offered to a model that calls them by its API, in LangChain's terms."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from ....graphs.common.errors import ModelError, SpecError
from ..binding import binding
from ..composed import Chat, composed
from .names import Names

ToolCalling = Literal["native", "schema"]
"""How a model calls tools: by its API, or by an answer that is held to a JSON schema."""

CHOICES = ("auto", "required", "none")
"""What a choice of tools may be, beside the name of one."""


def check_choice(choice: str, tools: Sequence[BaseTool]) -> None:
    """Make sure that a tool choice is a known word or one of the tools."""
    if choice not in CHOICES and all(choice != tool.name for tool in tools):
        raise SpecError(f"tool_choice: {choice!r} is not one of the speaker's tools")


def offering(chat: Chat, label: str, tools: Sequence[BaseTool], choice: str, names: Names) -> Chat:
    """Offer tools to a model."""
    offered = [
        tool
        if names[tool.name] == tool.name
        else tool.model_copy(update={"name": names[tool.name]})
        for tool in tools
    ]

    def offer(model: BaseChatModel, bound: Mapping[str, Any]) -> Chat:
        chosen = _chosen(model, choice, names)
        return binding(model.bind_tools(offered, **chosen), bound)

    try:
        return composed(chat, offer)
    except NotImplementedError as error:
        raise ModelError(
            f'{label} can\'t call tools: set tool_calling = "schema", or take the tools away'
        ) from error


def _chosen(model: BaseChatModel, choice: str, names: Names) -> dict[str, Any]:
    match choice:
        case "auto":
            # What every server does by itself; some refuse the word.
            return {}
        case "required":
            return {"tool_choice": "any"}
        case "none":
            # By LangChain's Anthropic client "none" would be the name of a tool.
            anthropic = model._llm_type.startswith("anthropic")
            return {"tool_choice": {"type": "none"} if anthropic else "none"}
        case _:
            return {"tool_choice": names[choice]}
