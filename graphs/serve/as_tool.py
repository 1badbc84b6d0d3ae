"""A conversation as a LangChain tool, for speakers of other conversations and for any agent."""

from collections.abc import Mapping
from typing import cast

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import ToolException
from langgraph.errors import GraphBubbleUp

from ...nodes.models.adapters.composed import Chat
from ...nodes.models.model import Models
from ...nodes.turn.inner import (
    INNER_STATE,
    close_inner,
    describe_error,
    input_of_inner,
    read_output,
)
from ...nodes.turn.node_context import Resources
from ...tools.registry.registry import ConversationTool, Registry
from ..build import compile_inner
from ..common.errors import ModelError, SpecError
from ..conversation.conversation import Conversation
from ..conversation.served import describe_argument, describe_tool, first_argument, name_graph
from ..kinds.load import ConversationLike, load_conversation
from ..log.state import State, log_of
from ..rules.outcome import Outcome
from ..rules.position import max_steps


def as_tool(
    conversation: ConversationLike,
    *,
    name: str | None = None,
    description: str | None = None,
    model: Chat | str | None = None,
    models: Mapping[str, Chat] | None = None,
) -> ConversationTool:
    """Return a LangChain tool that runs a conversation and returns its output.

    A speaker of another conversation can call the tool, and so can any LangChain agent. The
    argument of a call is ``task``, or ``message`` if one person takes part in the conversation.
    Each call runs a new conversation. If a speaker calls the tool, the session of the speaker
    contains the inner session, counts its usage and asks its questions. In an agent, the
    conversation is a subgraph of the agent's graph.

    Args:
        conversation: The conversation, or a dict or file (``.toml``, ``.json``) that contains it.
        name: The tool's name. If None, the file's name, or else the conversation's title or task.
        description: The tool's description for models. If None, the title, the task and the
            speakers of the conversation.
        model: The model for speakers without one: a LangChain chat model or a model's name. If a
            speaker calls the tool, the models of the speaker's own run speak instead.
        models: LangChain chat models by the names that the conversation uses; they have no effect
            either if a speaker calls the tool.

    Returns:
        The tool. Outside of a duologue conversation its errors are results with the status
        ``error``.

    Raises:
        SpecError: The conversation or its file is not valid.

    Example:
        >>> from duologue import as_tool, role_play
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> options = {"specify_task": False, "max_iterations": 1}
        >>> garden = role_play("A garden", "Owner", "Gardener", **options)
        >>> script = ["Instruction: Dig.", "Solution: Dug. Next request."]
        >>> tool = as_tool(garden, name="garden", model=ScriptedChatModel(script))
        >>> tool.invoke({"task": "Plan a garden."})
        'Solution: Dug. Next request.'
    """
    found = (
        conversation if isinstance(conversation, Conversation) else load_conversation(conversation)
    )
    argument = first_argument(found) or "task"
    described = {"type": "string", "description": describe_argument(found, argument)}
    resources = Resources(
        Models(model, models or {}),
        Registry(),
        allow_host=True,
        allow_paths=True,
        is_inner=True,
    )
    called = name or name_graph(found, conversation, "conversation")

    async def run(text: str | None) -> str:
        try:
            return await _run(found, called, resources, text)
        except GraphBubbleUp:
            raise
        except Exception as error:
            # Objects that users pass, such as chat models, may raise any error.
            raise ToolException(f"{called} failed: {describe_error(error)}") from error

    return ConversationTool(
        name=called,
        description=description or describe_tool(found),
        args_schema={
            "type": "object",
            "properties": {argument: described},
            "additionalProperties": False,
        },
        handle_tool_error=True,
        conversation=found,
        argument=argument,
        run_conversation=run,
    )


async def _run(
    conversation: Conversation, name: str, resources: Resources, text: str | None
) -> str:
    """Run the conversation as a part of the graph that runs now, or alone."""
    resources.registry.bring(conversation)
    graph = compile_inner(resources)
    given = input_of_inner(conversation, text)
    limit = RunnableConfig(recursion_limit=max_steps(conversation))
    state = cast("State", await graph.ainvoke(given, limit, output_keys=[*INNER_STATE]))
    ended = state.get("outcome")
    await close_inner(state)
    if not ended:
        raise SpecError(
            f"the conversation of the tool {name!r} waits for a person; call the tool in a graph "
            "with a checkpointer, and resume the graph with the answer"
        )
    output = read_output(conversation, log_of(state))
    if output is None:
        end = Outcome.model_validate(ended)
        raise ModelError(f"its conversation has ended without an output: {end}")
    return output.text
