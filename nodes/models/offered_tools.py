"""The tools that a speaker's model is offered, also the one that hands over to the next speaker.

That one is never run: a call of it is the speaker's message, with the text beside it.
"""

import json
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from ...graphs.conversation.conversation import Conversation
from ...graphs.conversation.handoffs import hand_off_targets, has_tool, may_be_private
from ...graphs.conversation.judges import HAND_OFF
from ...graphs.conversation.limits import check_limits, least_limit
from ...graphs.log.heard_text import together
from ...graphs.log.messages import storable
from ...graphs.prompts import handoffs as prompts
from ...graphs.speakers.speaker import TO_USER, Speaker
from ...graphs.text.words import tokens_of
from ...tools.registry.registry import Registry
from .to_user import add_to_user

_LONGEST = 200
"""How much of what stands in the place of a name is kept."""


class HandedOver(NamedTuple):
    """What a reply says by calls of the tool, beside its text."""

    to: tuple[str, ...] = ()
    """Whom it names to speak next, as it is written there."""
    private: bool = False
    """Whether only the one it names is to hear it."""


def make_hand_off_tool(conversation: Conversation, speaker: Speaker) -> BaseTool:
    """Make the tool as a speaker's model is told of it."""
    render_prompt, names = conversation.render_prompt, hand_off_targets(conversation, speaker.name)
    arguments: dict[str, Any] = {
        "to": {
            "type": "string",
            "enum": [*names],
            "description": render_prompt(prompts.HAND_OFF_TO),
        },
        # Required, since many models say nothing beside a call.
        "message": {"type": "string", "description": render_prompt(prompts.HAND_OFF_MESSAGE)},
    }
    required = [*arguments]
    if may_be_private(conversation):
        arguments["private"] = {
            "type": "boolean",
            "description": render_prompt(prompts.HAND_OFF_PRIVATE),
        }
    schema = {"type": "object", "properties": arguments, "required": required}
    return StructuredTool(
        name=HAND_OFF, description=render_prompt(prompts.HAND_OFF), args_schema=schema, func=_never
    )


def _never(**_: object) -> None:
    raise AssertionError("a call of it is a message")


def read_hand_over(answer: AIMessage) -> tuple[AIMessage, HandedOver]:
    """Read the calls of the tool in an answer: its text with what they say, and whom they name."""
    made = [call["args"] for call in answer.tool_calls if call["name"] == HAND_OFF]
    if not made:
        return answer, HandedOver()
    text = str(answer.text)
    told = (storable(str(one["message"])) for one in made if one.get("message"))
    # Many models say the same beside the call.
    spoken = [one for one in dict.fromkeys(told) if one.strip() not in text]
    others = [place for place, one in enumerate(answer.tool_calls) if one["name"] != HAND_OFF]
    update: dict[str, Any] = {
        "content": together(text, spoken),
        "tool_calls": [answer.tool_calls[place] for place in others],
    }
    if TO_USER in answer.additional_kwargs:
        texts = [answer.additional_kwargs[TO_USER][place] for place in others]
        update["additional_kwargs"] = {**answer.additional_kwargs, TO_USER: texts}
    whole = answer.model_copy(update=update)
    names = tuple(storable(str(one.get("to") or "")[:_LONGEST]) for one in made)
    return whole, HandedOver(names, private=made[0].get("private") is True)


def offered_tools(registry: Registry, speaker: Speaker) -> list[BaseTool]:
    """Return the speaker's own tools that it may call, as its model sees them."""
    tools = registry.tools_of(speaker)
    return [add_to_user(tool) for tool in tools] if speaker.speaks_with_tool_calls else tools


def define_tools(
    conversation: Conversation, registry: Registry, speaker: Speaker
) -> list[dict[str, Any]]:
    """Return the definitions of all tools of a speaker, in OpenAI's form."""
    tools = offered_tools(registry, speaker)
    if has_tool(conversation, speaker):
        tools = [*tools, make_hand_off_tool(conversation, speaker)]
    return [*map(convert_to_openai_tool, tools)]


def tokens_of_tools(conversation: Conversation, registry: Registry, speaker: Speaker) -> int:
    """Estimate the tokens of what a speaker's model is told of all tools."""
    tools = define_tools(conversation, registry, speaker)
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
