"""What a conversation is, as data: task, speakers, how it opens and how it ends."""

import re
from abc import ABC, abstractmethod
from typing import Any, Self

from pydantic import model_validator

from ..common.data import Data
from ..common.field_docs import field_docs
from ..common.validation import validated
from .consistency import check
from .fields import ConversationFields


class Conversation(ConversationFields):
    """One dialogue: what it is about, who speaks, how it opens and how it ends.

    Raises:
        pydantic.ValidationError: A field is missing, unknown or wrong, two speakers share a name,
            a name does not belong to a speaker, a mode needs a stopper and has none, an end can
            never hold, or a model has no price.
    """

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        check(self)
        return self


class Form(Data, ABC):
    """The short form of one kind of conversation: flat fields, as in a file or in Studio.

    A field that a `Conversation` has, too, is that field of the conversation.
    """

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
            name: getattr(self, name)
            for name in Conversation.model_fields.keys() & type(self).model_fields.keys()
            # What nobody set stays so, unless the form has a default of its own.
            if name in self.model_fields_set
            or getattr(self, name) != Conversation.model_fields[name].default
        }
        return validated(Conversation, fields | self._others())

    @abstractmethod
    def _others(self) -> dict[str, Any]:
        """Give the conversation's other fields."""
