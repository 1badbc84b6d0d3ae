"""The end of a conversation, as data: the mode, the caps, other end conditions, and the guards."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from ..common.data import MOST, Accepts, AnyCase, Cap, Fields, Spec, default
from .all_ends import Guards
from .end import AnyEnd, BaseEnd, End, message_caps

NO_CAP: Final = "none"
"""The spelling of "no cap on rounds" in TOML."""


class EndChatMode(AnyCase):
    """The effect of completed tasks on the end of a conversation; letter case is ignored.

    The round cap applies to every mode (Yacana).
    """

    MAX_ITERATIONS_ONLY = "max_iterations_only"
    """The conversation continues up to the round cap; no judge is asked."""
    END_CHAT_AFTER_FIRST_COMPLETION = "end_chat_after_first_completion"
    """The first completed task ends the conversation at once."""
    ONE_LAST_CHAT_AFTER_FIRST_COMPLETION = "one_last_chat_after_first_completion"
    """The next speaker has one last message after the first completed task."""
    ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION = "one_last_group_chat_after_first_completion"
    """Every speaker has one last message after the first completed task."""
    ALL_TASK_MUST_COMPLETE = "all_task_must_complete"
    """The conversation ends when every speaker that checks completion has completed its task."""


def end_chat_fields(value: object) -> object:
    """Convert a mode, an end condition or a list of them to the field that it sets."""
    if isinstance(value, str):
        return {"mode": value}
    is_end = "kind" in value if isinstance(value, Mapping) else isinstance(value, BaseEnd | list)
    return {"when": value} if is_end or isinstance(value, tuple) else value


@cache
def _end_reader() -> TypeAdapter[End]:
    return TypeAdapter(End)


class EndChat(Spec):
    """The end conditions of a conversation.

    A plain string sets ``mode``; an end condition alone sets ``when``.
    """

    mode: Accepts[EndChatMode, EndChatMode | str] = default(EndChatMode.MAX_ITERATIONS_ONLY)
    """The effect of completed tasks."""
    max_iterations: Accepts[Cap | None, int | Literal["none"] | None] = default(5)
    """Maximum number of rounds; in one round every speaker speaks once. None means no cap, and is
    allowed only with a `MaxMessages` that alone can end the conversation, or if every round needs a
    person (or an automatic reply for a person, which has its own cap). If ``end_chat`` is an end
    condition alone and contains such a `MaxMessages`, this field is None. TOML has no null; write
    ``"none"`` there."""
    min_iterations: Annotated[int, Field(strict=True, ge=0, le=MOST)] = 0
    """Minimum number of complete rounds before a verdict, a done token, a tool call, a predicate or
    a guard ends the conversation. If one of them is met earlier, the conversation ends after these
    rounds. Budgets, errors, people and stop requests do not wait."""
    allow_unanswered_end: bool = False
    """Whether a model's done token, or a separate judge, may end the conversation before another
    speaker has spoken. If False, the model is asked for its message once more; if it says the token
    again, the conversation ends with a warning. A separate judge is asked later. This field has no
    effect if ``min_iterations`` is set."""
    when: Accepts[End | None, AnyEnd | None] = default(None)
    """Other end conditions, which apply in every mode. A list is met if any item is met."""
    guards: Accepts[Guards, Guards | Fields] = default(Guards())
    """Limits against a conversation that makes no progress."""
    on_guard: Literal["end", "ask"] = "end"
    """The effect of a guard. ``end`` ends the conversation. ``ask`` shows the reason to the person,
    who is asked next; the person's message resets the guard's count. ``ask`` needs two speakers,
    one of whom is always a person."""

    announce_last_words: bool = True
    """Whether the prompt for a speaker's last message says that the message is the last one. Only
    modes that grant such a message, and done tokens with ``answered``, make such prompts."""
    tell_rounds_left: bool = False
    """Whether each prompt in the rounds ends with the number of rounds left before the cap."""

    @model_validator(mode="before")
    @classmethod
    def _read_fields(cls, value: object) -> object:
        fields = end_chat_fields(value)
        if fields is value or not isinstance(fields, dict) or "when" not in fields:
            return fields
        try:
            end = _end_reader().validate_python(fields["when"])
        except (ValidationError, TypeError):
            # The field's own validation reports this error with its path.
            return fields
        # With an end condition alone, the number of messages is the only cap.
        return {"when": end} | ({"max_iterations": None} if message_caps(end) else {})

    @field_validator("max_iterations", mode="before")
    @classmethod
    def _none_in_toml(cls, given: object) -> object:
        return None if given == NO_CAP else given

    @property
    def is_capped(self) -> bool:
        """Return whether a number of rounds or messages alone can end the conversation."""
        return self.max_iterations is not None or bool(message_caps(self.when))

    @property
    def most_rounds(self) -> int:
        """Return the maximum number of rounds: the cap, or `MOST` if there is none."""
        return self.max_iterations or MOST

    def rounds_left(self, complete: int) -> int | None:
        """Return the number of rounds left after the complete ones, or None if there is no cap."""
        return None if self.max_iterations is None else self.max_iterations - complete

    def for_toml(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, in a form that TOML can store."""
        fields = self.model_dump(mode="json", exclude_defaults=True)
        return fields | ({"max_iterations": NO_CAP} if self.max_iterations is None else {})

    @property
    def waits_for_tasks(self) -> bool:
        """Return whether completed tasks end the conversation."""
        return self.mode is not EndChatMode.MAX_ITERATIONS_ONLY

    @property
    def waits_for_another(self) -> bool:
        """Return whether done tokens and separate judges wait for another speaker's message."""
        return not (self.allow_unanswered_end or self.min_iterations)


AnyEndChat: TypeAlias = EndChat | EndChatMode | AnyEnd
"""The types that callers may pass as ``end_chat``: a mode, its fields, or an end condition alone.
"""
