"""How a conversation ends, as data: the mode, the caps, other ends, and the guards."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from ..common.data import MOST, Accepts, AnyCase, Cap, Fields, Spec, default
from .all_ends import Guards
from .end import AnyEnd, BaseEnd, End, message_caps

NO_CAP: Final = "none"
"""How TOML says that there is no cap on rounds."""


class EndChatMode(AnyCase):
    """How completed tasks end a conversation; any case is read.

    The round cap applies to every mode (Yacana).
    """

    MAX_ITERATIONS_ONLY = "max_iterations_only"
    """Rounds until the cap; nobody is asked."""
    END_CHAT_AFTER_FIRST_COMPLETION = "end_chat_after_first_completion"
    """The first completed task ends it at once."""
    ONE_LAST_CHAT_AFTER_FIRST_COMPLETION = "one_last_chat_after_first_completion"
    """The next speaker has one last message after the first completed task."""
    ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION = "one_last_group_chat_after_first_completion"
    """Every speaker has one last message after the first completed task."""
    ALL_TASK_MUST_COMPLETE = "all_task_must_complete"
    """Goes on until every speaker that checks completion has completed its task."""


def end_chat_fields(value: object) -> object:
    """Return a bare mode, an end alone or a list of ends as the field of `EndChat` that it sets."""
    if isinstance(value, str):
        return {"mode": value}
    is_end = "kind" in value if isinstance(value, Mapping) else isinstance(value, BaseEnd | list)
    return {"when": value} if is_end or isinstance(value, tuple) else value


@cache
def _end_reader() -> TypeAdapter[End]:
    return TypeAdapter(End)


class EndChat(Spec):
    """How the conversation ends. A bare word is its mode, an end alone its ``when``."""

    mode: Accepts[EndChatMode, EndChatMode | str] = default(EndChatMode.MAX_ITERATIONS_ONLY)
    """How completed tasks end it."""
    max_iterations: Accepts[Cap | None, int | Literal["none"] | None] = default(5)
    """The cap, in rounds; in one round every speaker speaks once. No cap if None, which is
    possible only with a `MaxMessages` that ends it by itself, or if every round needs a person, or
    an automatic reply in a person's place, which has its own cap. An end alone with such a
    `MaxMessages` sets it to None. TOML has no null: there it is written ``"none"``."""
    min_iterations: Annotated[int, Field(strict=True, ge=0, le=MOST)] = 0
    """How many rounds must be complete before a verdict, what is said or called, a predicate or a
    guard ends it; what would have ended it before does so then. Budgets, errors, people and stops
    do not wait."""
    allow_unanswered_end: bool = False
    """Whether a model's done token, or a separate judge, may end it before another speaker than the
    one who has just spoken has said something. If not, the model is asked for its message once
    more; if it says the token again, the conversation ends, with a warning. The judge is asked
    later. Nothing of this applies if ``min_iterations`` is set."""
    when: Accepts[End | None, AnyEnd | None] = default(None)
    """What else ends it, whatever the mode. A list means any of its ends."""
    guards: Accepts[Guards, Guards | Fields] = default(Guards())
    """What ends it when it goes wrong."""
    on_guard: Literal["end", "ask"] = "end"
    """What a guard does. ``end``: it ends the conversation. ``ask``: the person is told why as it
    is asked next, and what it says begins the guard's count anew; possible only between two, for
    one of whom a person speaks each time."""

    announce_last_words: bool = True
    """Whether a speaker whose last words are promised is told, as it says them, that they are its
    last message. It stands at the end of that prompt alone."""
    tell_rounds_left: bool = False
    """Whether a speaker is told, at the end of each of its prompts in the rounds, how many rounds
    are left up to the cap."""

    @model_validator(mode="before")
    @classmethod
    def _read_fields(cls, value: object) -> object:
        fields = end_chat_fields(value)
        if fields is value or not isinstance(fields, dict) or "when" not in fields:
            return fields
        try:
            end = _end_reader().validate_python(fields["when"])
        except (ValidationError, TypeError):
            # It is refused with its path when the field is read.
            return fields
        # In an end alone, the number of messages is the only cap.
        return {"when": end} | ({"max_iterations": None} if message_caps(end) else {})

    @field_validator("max_iterations", mode="before")
    @classmethod
    def _none_in_toml(cls, given: object) -> object:
        return None if given == NO_CAP else given

    @property
    def is_capped(self) -> bool:
        """Whether a number of rounds or messages ends it, whatever else happens."""
        return self.max_iterations is not None or bool(message_caps(self.when))

    @property
    def most_rounds(self) -> int:
        """The most rounds it can have: the cap, or `MOST` if there is none."""
        return self.max_iterations or MOST

    def rounds_left(self, complete: int) -> int | None:
        """Return how many rounds remain after the complete ones, or None if there is no cap."""
        return None if self.max_iterations is None else self.max_iterations - complete

    def for_toml(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as TOML can store them."""
        fields = self.model_dump(mode="json", exclude_defaults=True)
        return fields | ({"max_iterations": NO_CAP} if self.max_iterations is None else {})

    @property
    def waits_for_tasks(self) -> bool:
        """Whether completed tasks end it."""
        return self.mode is not EndChatMode.MAX_ITERATIONS_ONLY

    @property
    def waits_for_another(self) -> bool:
        """Whether a done token or a separate judge ends it only once another speaker has spoken."""
        return not (self.allow_unanswered_end or self.min_iterations)


AnyEndChat: TypeAlias = EndChat | EndChatMode | AnyEnd
"""The types that callers may pass as ``end_chat``: a mode, its fields, or an end alone."""
