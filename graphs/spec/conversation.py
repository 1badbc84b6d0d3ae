"""What a conversation is, as data: task, speakers, how it opens and how it ends."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, Field, model_validator

from ..common.data import Spec
from ..common.field_docs import field_docs
from ..common.validation import validated
from .consistency import check
from .fields import ConversationFields, Prompts


class Conversation(ConversationFields):
    """One dialogue: what it is about, who speaks, how it opens and how it ends.

    Raises:
        SpecError: A field is missing, unknown or wrong, two speakers share a name,
            a name does not belong to a speaker, a mode needs a stopper and has none, an end can
            never hold, or a model has no price.
    """

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        check(self)
        return self


@dataclass(frozen=True)
class Own:
    """A value that a short form fills in by itself."""

    value: object


class Form(Spec, ABC):
    """The short form of one kind of conversation: flat fields, as in a file or in Studio.

    A field that a `Conversation` has, too, is that field of the conversation.
    """

    prompts: Prompts = Field(default_factory=dict)
    """What models are told in other words, as in a `Conversation`."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Describe the fields: LangGraph makes Studio's form from them, not from their schema."""
        super().__pydantic_init_subclass__(**kwargs)
        for name, text in field_docs(cls).items():
            cls.model_fields[name].description = text

    @classmethod
    def kind(cls) -> str:
        """Give the name of the kind, such as ``role_play`` for ``RolePlay``."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def conversation(self) -> Conversation:
        """Give the conversation that this form stands for.

        Raises:
            SpecError: The fields do not fit one another; names one.
        """
        fields = {
            name: self.own(getattr(self, name), name)
            for name in Conversation.model_fields.keys() & type(self).model_fields.keys()
            # What nobody set stays so, unless the form has a default of its own.
            if name in self.model_fields_set
            or getattr(self, name)
            != Conversation.model_fields[name].get_default(call_default_factory=True)
        }
        fields |= self._others()
        found = validated(Conversation, _plain(fields))
        # What the caller did not set is not compared when a session goes on: another release may
        # fill in something else, and what is stored holds.
        for path in _own_paths(fields):
            _unset(found, path)
        return found

    @abstractmethod
    def _others(self) -> dict[str, Any]:
        """Give the conversation's other fields."""

    def own(self, value: object, *names: str) -> object:
        """Mark what the form fills in by itself, unless the caller set one of these fields."""
        return value if self.model_fields_set & {*names} else Own(value)


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Data without marks."""
    match value:
        case Own():
            return _plain(value.value)
        case Mapping():
            return {name: _plain(one) for name, one in value.items()}
        case list() | tuple():
            return tuple(map(_plain, value))
        case _:
            return value


def _own_paths(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where marks stand in data."""
    match value:
        case Own():
            yield path
        case Mapping():
            for name, one in value.items():
                yield from _own_paths(one, (*path, name))
        case list() | tuple():
            for place, one in enumerate(value):
                yield from _own_paths(one, (*path, place))


def _unset(model: BaseModel, path: tuple[str | int, ...]) -> None:
    """Take the field at the end of a path for one that was not set."""
    at: Any = model
    for part in path[:-1]:
        at = at[part] if isinstance(part, int) else getattr(at, part)
    at.model_fields_set.discard(path[-1])
