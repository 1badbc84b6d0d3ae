"""What a speaker's model is offered to call, and whether that leaves room for what is said."""

import json

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from ....graphs.speakers.speaker import Speaker
from ....graphs.spec.context_limits import check_limits, least_limit
from ....graphs.spec.conversation import Conversation
from ....graphs.text.tokens import tokens_of
from ....tools.registry.registry import Registry
from .to_user import with_to_user


def offered(registry: Registry, speaker: Speaker) -> list[BaseTool]:
    """Give the tools that a speaker may call, as its model is told of them."""
    tools = registry.tools_of(speaker)
    return [with_to_user(tool) for tool in tools] if speaker.to_user else tools


def tokens_of_tools(registry: Registry, speaker: Speaker) -> int:
    """Estimate the tokens of what a speaker's model is told of its tools."""
    tools = (json.dumps(convert_to_openai_tool(tool)) for tool in offered(registry, speaker))
    return sum(map(tokens_of, tools))


def check_room(conversation: Conversation, registry: Registry) -> None:
    """Check that a speaker's tools and schema fit its limit on prompts.

    The rest of what every prompt holds is checked when the spec is made.
    """

    def needed(speaker: Speaker) -> int:
        schema = registry.schema_of(speaker)
        return least_limit(conversation, speaker, schema) + tokens_of_tools(registry, speaker)

    check_limits(conversation, needed, ", its tools too,")
