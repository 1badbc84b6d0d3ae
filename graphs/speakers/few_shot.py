"""Examples that show a speaker how to answer, as data (Lagent's few-shot aggregator)."""

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import AfterValidator, Field, model_validator

from ..common.data import Spec, Text

_ROLES = {"human": "user", "Human": "user", "ai": "assistant", "AI": "assistant"}
"""What LangChain's kinds of messages, and their chunks, are called here."""


class Example(Spec):
    """One message of a conversation that shows a speaker how to answer."""

    role: Literal["user", "assistant"] = Field(kw_only=False)
    """Whose it is: ``assistant`` is the speaker itself."""
    content: Text = Field(kw_only=False)
    """What is said."""

    @model_validator(mode="before")
    @classmethod
    def _from_a_message(cls, given: object) -> object:
        """Take LangChain's messages, too, as far as they are text."""
        if not isinstance(given, BaseMessage):
            return given
        if isinstance(given, AIMessage) and (given.tool_calls or given.invalid_tool_calls):
            raise ValueError("calls of tools can't be shown: give what is said alone")
        if not _is_text(given):
            raise ValueError("only text can be shown: leave out images and the like")
        role = _ROLES.get(given.type.removesuffix("MessageChunk"), given.type)
        return {"role": role, "content": given.text}


def _is_text(message: BaseMessage) -> bool:
    """Whether a message holds nothing but text."""
    blocks = message.content if isinstance(message.content, list) else ()
    return all(isinstance(one, str) or one.get("type") == "text" for one in blocks)


def _alternate(examples: tuple[Example, ...]) -> tuple[Example, ...]:
    for place, example in enumerate(examples):
        wanted = "assistant" if place % 2 else "user"
        if example.role != wanted:
            raise ValueError(
                f"number {place + 1} must be the {wanted}'s: they alternate, and the user begins"
            )
    if len(examples) % 2:
        raise ValueError("the last one must be the assistant's: add how the speaker answers")
    return examples


Examples: TypeAlias = Annotated[tuple[Example, ...], AfterValidator(_alternate)]
"""Messages of user and assistant in turn, the last one the assistant's."""


def shown(examples: Examples, name: str) -> Iterator[BaseMessage]:
    """Give a speaker's examples as messages of a prompt."""
    for example in examples:
        if example.role == "user":
            yield HumanMessage(example.content)
        else:
            yield AIMessage(example.content, name=name)
