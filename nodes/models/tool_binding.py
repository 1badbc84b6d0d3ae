"""The tools offered to a speaker's model, by the API's tool calls or by a JSON schema.

The tool for handing over to the next speaker is never run. A call of it, with the accompanying
text, is the speaker's message. Beside other calls, it is the message after these have succeeded.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel

from ...graphs.conversation.conversation import (
    Conversation,
    hand_off_targets,
    has_hand_off_tool,
    may_hand_off_privately,
)
from ...graphs.conversation.judges import HAND_OFF
from ...graphs.conversation.limits import check_limits, least_limit
from ...graphs.log.heard_text import join_texts
from ...graphs.log.messages import storable
from ...graphs.log.metadata import ModelOutput, Speech, UnheardReply
from ...graphs.prompts import prompts
from ...graphs.speakers.formats import LabelledFormat, describe_schema, schema_of
from ...graphs.speakers.speaker import TO_USER, Speaker
from ...graphs.text.words import tokens_of
from ...tools.registry.registry import Registry
from .adapters.base import Adapter, AnswerForm, Ask, Offer, Prompting, ToolCalling
from .answers import normalise_answer, structured_text
from .listeners import add_to_user
from .settings import CallSettings
from .tool_calls import key_of, normalise_calls, rename_tools, wire_names
from .tools_by_schema import add_instruction, prompt_with_tools, read_answer

_LONGEST = 200
"""Maximum length of a hand-over target, in characters."""


class HandedOver(NamedTuple):
    """The hand-over that a reply requests by tool calls."""

    to: tuple[str, ...] = ()
    """Names of the requested next speakers, as the model wrote them."""
    private: bool = False
    """Whether only the next speaker hears the message."""
    text: str = ""
    """The message."""


def make_hand_off_tool(conversation: Conversation, speaker: Speaker) -> BaseTool:
    """Return the hand-over tool as a speaker's model sees it."""
    render_prompt, names = conversation.render_prompt, hand_off_targets(conversation, speaker.name)
    arguments: dict[str, Any] = {
        "to": {
            "type": "string",
            "enum": [*names],
            "description": render_prompt(prompts.HAND_OFF_TO),
        },
        # Required, since many models write no text along with a call.
        "message": {"type": "string", "description": render_prompt(prompts.HAND_OFF_MESSAGE)},
    }
    required = [*arguments]
    if may_hand_off_privately(conversation):
        arguments["private"] = {
            "type": "boolean",
            "description": render_prompt(prompts.HAND_OFF_PRIVATE),
        }
    schema = {"type": "object", "properties": arguments, "required": required}
    # Without a function, since the tool never runs: a call of it is a message.
    return StructuredTool(
        name=HAND_OFF, description=render_prompt(prompts.HAND_OFF), args_schema=schema
    )


_TRANSFER: Final = re.compile(
    r"(?:\A|[\W_])(?:transfer|hand|delegate|escalate|forward|pass|redirect|route|switch)"
    r"(?:[\W_]*(?:off|over|back|control|conversation))*[\W_]*to(?P<who>[\W_]*[^\W_].*)",
    re.IGNORECASE,
)
"""A name of a tool that hands over to a speaker, as in other frameworks."""

_WORD: Final = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_ANY_SPEAKER: Final = frozenset({"agent", "assistant", "speaker"})


def read_transfers(conversation: Conversation, speaker: Speaker, answer: AIMessage) -> AIMessage:
    """Return an answer in which a call such as ``transfer_to_orders`` is a call of ``hand_off``.

    The call must be of no tool of the speaker, and its name or an argument must fit one speaker.
    """
    names = hand_off_targets(conversation, speaker.name)
    if not names or not answer.tool_calls:
        return answer
    calls = [
        call if call["name"] in speaker.tools else _read_transfer(call, names)
        for call in answer.tool_calls
    ]
    return answer.model_copy(update={"tool_calls": calls})


def _read_transfer(call: ToolCall, names: Sequence[str]) -> ToolCall:
    found = _TRANSFER.search(call["name"])
    if found is None:
        return call
    texts = [value for value in call["args"].values() if isinstance(value, str)]
    by_text = {text: name for text in texts for name in names if key_of(name) == key_of(text)}
    name = next(iter(by_text.values()), None) or _find_speaker(found["who"], names)
    if name is None:
        return call
    message = next((text for text in texts if text not in by_text), "")
    args = {"message": message, **call["args"], "to": name}
    return ToolCall(name=HAND_OFF, args=args, id=call["id"], type="tool_call")


def _find_speaker(written: str, names: Sequence[str]) -> str | None:
    """Return the only speaker whose name has the words that a model has written, or None."""
    same = [name for name in names if key_of(name) == key_of(written)]
    words = _words_of(written)
    near = [
        name
        for name in names
        if (own := _words_of(name)) and words and (own <= words or words <= own)
    ]
    return next((fits[0] for fits in (same, near) if len(fits) == 1), None)


def _words_of(name: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(name)} - _ANY_SPEAKER


def read_hand_over(answer: AIMessage) -> tuple[AIMessage, HandedOver]:
    """Return an answer with its hand-over calls turned into text, and the requested hand-over.

    Beside other calls, the hand-over remains a call, which contains the text of the answer: nobody
    hears the text before these calls have succeeded.
    """
    handed = read_hand_over_calls(answer)
    if not handed.to:
        return answer, HandedOver()
    if len(handed.to) == len(answer.tool_calls) and not answer.invalid_tool_calls:
        whole = answer.model_copy(update={"content": handed.text, "tool_calls": []})
        return whole, handed
    if TO_USER in answer.additional_kwargs:
        # These texts were sent at once.
        return answer, HandedOver()
    calls, text = [], handed.text
    for call in answer.tool_calls:
        if call["name"] == HAND_OFF:
            call, text = {**call, "args": {**call["args"], "message": text}}, ""
        calls.append(call)
    return answer.model_copy(update={"content": "", "tool_calls": calls}), HandedOver()


def read_hand_over_calls(message: AIMessage) -> HandedOver:
    """Return the hand-over that the calls of a message request, with the text of the message."""
    made = [call["args"] for call in message.tool_calls if call["name"] == HAND_OFF]
    if not made:
        return HandedOver()
    text = str(message.text)
    told = (storable(str(one["message"])) for one in made if one.get("message"))
    # Many models repeat the message in the text of the answer.
    spoken = [one for one in dict.fromkeys(told) if one.strip() not in text]
    names = tuple(storable(str(one.get("to") or "")[:_LONGEST]) for one in made)
    private = made[0].get("private") is True
    return HandedOver(names, private=private, text=join_texts(text, spoken))


def offered_tools(registry: Registry, speaker: Speaker) -> list[BaseTool]:
    """Return the speaker's own tools, with the argument ``to_user`` if the speaker may use it."""
    tools = registry.tools_of(speaker)
    return [add_to_user(tool) for tool in tools] if speaker.speaks_with_tool_calls else tools


def define_tools(
    conversation: Conversation, registry: Registry, speaker: Speaker
) -> list[dict[str, Any]]:
    """Return the definitions of all tools of a speaker, in OpenAI's form."""
    tools = offered_tools(registry, speaker)
    if has_hand_off_tool(conversation, speaker):
        tools = [*tools, make_hand_off_tool(conversation, speaker)]
    return [*map(convert_to_openai_tool, tools)]


def tokens_of_tools(conversation: Conversation, registry: Registry, speaker: Speaker) -> int:
    """Estimate the tokens of the definitions of a speaker's tools."""
    tools = define_tools(conversation, registry, speaker)
    return sum(tokens_of(json.dumps(tool)) for tool in tools)


def check_room(conversation: Conversation, registry: Registry) -> None:
    """Check that the tools and the schema of each speaker fit into its limit on prompts.

    The other constant parts of a prompt are checked when the spec is made.
    """

    def count_needed(speaker: Speaker) -> int:
        schema = registry.schema_of(speaker)
        tools = tokens_of_tools(conversation, registry, speaker)
        return least_limit(conversation, speaker, schema) + tools

    check_limits(conversation, count_needed, ", its tools too,")


class ToolOffer:
    """The tools that a call offers to the model, which calls them by its API.

    Args:
        tools: The tools.
        choice: ``auto``, ``required``, ``none`` or the name of a tool.
        marks: The format of the message. None if it may have any form.
    """

    is_in_prompt: ClassVar[bool] = False
    """Whether prompts describe the tools, even if the model may not call any now."""

    def __init__(
        self,
        tools: Sequence[BaseTool] = (),
        choice: str = "none",
        marks: LabelledFormat | None = None,
    ) -> None:
        self.tools = tools
        self.choice = choice
        self.may_call = bool(tools) and choice != "none"
        # Listeners can't follow JSON.
        self.is_shown = not (self.is_in_prompt and self.may_call)
        self._marks = None if self.may_call else marks
        self._names = wire_names(tool.name for tool in tools)

    def prompt(self, messages: Sequence[BaseMessage], prompting: Prompting) -> list[BaseMessage]:
        """Return the prompt to send, with tool names that the provider accepts."""
        return rename_tools(messages, self._names)

    def ask(self, adapter: Adapter, settings: CallSettings, purpose: type[ModelOutput]) -> Ask:
        """Return the function that calls the model for an answer."""
        offer = Offer(self.tools, self.choice, self._names) if self.tools else None
        return adapter.prepare_answer(settings, AnswerForm(purpose, self._marks, offer))

    def read(self, found: Any, adapter: Adapter) -> AIMessage:  # noqa: ANN401
        """Return the answer as the log stores it."""
        answer = normalise_answer(found, adapter.label)
        return normalise_calls(answer, self._names, are_mended=adapter.mends_calls)

    def describe(self) -> dict[str, Any]:
        """Return the form of the answer, for recorders."""
        sent = [*map(convert_to_openai_tool, self.tools)]
        return {"tools": sent, "tool_choice": self.choice} if sent else {}

    def show_as(self, purpose: type[ModelOutput]) -> type[ModelOutput]:
        """Return the purpose under which the answer is streamed."""
        return purpose


class SchemaToolOffer(ToolOffer):
    """Tools that a model calls by answering in JSON, as a schema requires.

    A model that has written calls as text writes more of them unless a prompt forbids it.
    """

    is_in_prompt = True

    def prompt(self, messages: Sequence[BaseMessage], prompting: Prompting) -> list[BaseMessage]:
        """Return the prompt to send, with the tools, their calls and results as text."""
        return prompt_with_tools(messages, self.tools, self.choice, prompting.describe_tool)

    def ask(self, adapter: Adapter, settings: CallSettings, purpose: type[ModelOutput]) -> Ask:
        """Return the function that calls the model for an answer."""
        form = AnswerForm(purpose, self._marks)
        if self.may_call:
            return adapter.prepare_tool_call(settings, form, Offer(self.tools, self.choice, {}))
        return adapter.prepare_answer(settings, form)

    def read(self, found: Any, adapter: Adapter) -> AIMessage:  # noqa: ANN401
        """Return the answer as the log stores it."""
        if self.may_call:
            is_held = type(found) is dict
            read = structured_text if is_held else normalise_answer
            return read_answer(read(found, adapter.label), self.tools)
        answer = normalise_answer(found, adapter.label)
        if self.tools:
            # The model may call no tool now, so a call that it writes is not part of its message.
            answer = read_answer(answer, self.tools)
            answer = answer.model_copy(update={"tool_calls": [], "invalid_tool_calls": []})
        return normalise_calls(answer, {}, are_mended=adapter.mends_calls)

    def show_as(self, purpose: type[ModelOutput]) -> type[ModelOutput]:
        """Return the purpose under which the answer is streamed. JSON is not shown to people."""
        return UnheardReply if self.may_call and purpose is Speech else purpose


class ObjectOffer(ToolOffer):
    """A call for an answer that matches a schema, without tools.

    Args:
        offer: An offer without tools, which prepares the prompt.
        schema: The pydantic model of the answer.
        instead: The setting that errors recommend instead of structured output.
    """

    def __init__(self, offer: ToolOffer, schema: type[BaseModel], instead: str) -> None:
        super().__init__()
        self._offer = offer
        self._schema = schema
        self._instead = instead

    def prompt(self, messages: Sequence[BaseMessage], prompting: Prompting) -> list[BaseMessage]:
        """Return the prompt to send."""
        return self._offer.prompt(messages, prompting)

    def ask(self, adapter: Adapter, settings: CallSettings, purpose: type[ModelOutput]) -> Ask:
        """Return the function that calls the model for an answer."""
        if not adapter.find_unsupported(schema_of(self._schema)):
            return adapter.prepare_object(settings, self._schema, self._instead)
        # The structured output of some providers would allow fewer answers, or none.
        as_text = adapter.prepare_answer(settings, AnswerForm(purpose))
        described = describe_schema(self._schema)
        return lambda messages, config: as_text(add_instruction(messages, described), config)

    def read(self, found: Any, adapter: Adapter) -> AIMessage:  # noqa: ANN401
        """Return the answer as a message of text."""
        return structured_text(found, adapter.label)

    def describe(self) -> dict[str, Any]:
        """Return the form of the answer, for recorders."""
        return {"schema": self._schema.model_json_schema()}


def choose_offer(prompting: Prompting, chosen: ToolCalling | None) -> type[ToolOffer]:
    """Return the class that offers tools to a model.

    Args:
        prompting: The model's `Prompting`.
        chosen: The speaker's ``tool_calling``. The default of the model's family if None.
    """
    return SchemaToolOffer if (chosen or prompting.tool_calling) == "schema" else ToolOffer
