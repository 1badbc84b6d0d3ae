"""What a speaker's model is offered to call, and whether that leaves room for what is said."""

import json
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from ....graphs.speakers.speaker import Speaker
from ....graphs.spec.context_limits import check_limits, least_limit
from ....graphs.spec.conversation import Conversation
from ....graphs.spec.handoffs import has_tool
from ....graphs.text.tokens import tokens_of
from ....tools.registry.registry import Registry
from .hand_off import hand_off_tool
from .to_user import with_to_user


def offered(registry: Registry, speaker: Speaker) -> list[BaseTool]:
    """Give the speaker's own tools that it may call, as its model is told of them."""
    tools = registry.tools_of(speaker)
    return [with_to_user(tool) for tool in tools] if speaker.speaks_with_tool_calls else tools


def defined(
    conversation: Conversation, registry: Registry, speaker: Speaker
) -> list[dict[str, Any]]:
    """Give what a speaker's model is told of all tools, in OpenAI's form."""
    tools = offered(registry, speaker)
    if has_tool(conversation, speaker):
        tools = [*tools, hand_off_tool(conversation, speaker)]
    return [*map(convert_to_openai_tool, tools)]


def tokens_of_tools(conversation: Conversation, registry: Registry, speaker: Speaker) -> int:
    """Estimate the tokens of what a speaker's model is told of all tools."""
    tools = defined(conversation, registry, speaker)
    return sum(tokens_of(json.dumps(tool)) for tool in tools)


def check_room(conversation: Conversation, registry: Registry) -> None:
    """Check that a speaker's tools and schema fit its limit on prompts.

    The rest of what every prompt holds is checked when the spec is made.
    """

    def needed(speaker: Speaker) -> int:
        schema = registry.schema_of(speaker)
        tools = tokens_of_tools(conversation, registry, speaker)
        return least_limit(conversation, speaker, schema) + tools

    check_limits(conversation, needed, ", its tools too,")
