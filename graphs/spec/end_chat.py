"""How a conversation ends, as data: the mode, the caps, other ends, and the guards."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from ..common.data import MOST, Accepts, AnyCase, Cap, Fields, Spec, default
from .ends import AnyEnd, BaseEnd, End, MaxMessages, lone

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


Limit = Annotated[int, Field(strict=True, ge=0, le=MOST)]
"""At how many a guard ends the conversation. 0: never."""


class Guards(Spec):
    """What ends a conversation that goes wrong, each at its own number; 0 switches it off.

    They count what all hear, so not opening answers.
    """

    blank_replies: Limit = 2
    """Blank replies in a row, by any speaker, each after it was asked for again. Fixed texts, and
    what tools and code give, do not count."""
    same_replies: Limit = 3
    """How often one speaker gives the same reply while nobody says anything new: others may say
    again what they said before. A reply is the same if only signs differ, or less than a twentieth
    and no number. Short replies do not count."""
    farewells: Limit = 4
    """Messages in a row that hold nothing but thanks or farewells. With ``standstill`` on they end
    nothing while a question is open, until who asked it goes on, nor where the mode waits for a
    completed task."""
    standstill: Limit = 2
    """Rounds of sentences in which nobody says anything new: all say the same again, or go round in
    a cycle of up to three. Three rounds of short lines count as one, and so do six of short
    questions and answers. One sentence of one speaker counts as one round when it is said six
    times while nobody says anything new but numbers. What people say is always new."""
    role_flips: Limit = 2
    """How often one speaker speaks another's part, each after it was asked to correct it."""
    same_tool_calls: Limit = 5
    """Equal calls in a row, within a turn, by messages of one speaker: of the same tools, with the
    same arguments and the same results. Calls that fail do not count. The last of these messages is
    rejected and asked for again before it counts."""
    echo: Limit = 3
    """Messages in a row of one speaker that say word for word what another has said since its last
    turn, each after it was asked for again. Short lines, moves of a game, thanks and farewells
    do not count, nor does what it was asked to repeat. 0: such a message is not asked for again,
    either."""
    unreadable_verdicts: Limit = 3
    """Verdicts in a row that can't be read."""


def end_chat_fields(value: object) -> object:
    """Return a bare mode, an end alone or a list of ends as the field of `EndChat` that it sets."""
    if isinstance(value, str):
        return {"mode": value}
    is_end = "kind" in value if isinstance(value, Mapping) else isinstance(value, BaseEnd | list)
    return {"when": value} if is_end or isinstance(value, tuple) else value


@cache
def _end_reader() -> TypeAdapter[End]:
    return TypeAdapter(End)


def _is_capped(end: End | None) -> bool:
    """Return whether a number of messages ends it by itself."""
    return any(isinstance(one, MaxMessages) for one in lone(end))


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
        return {"when": end} | ({"max_iterations": None} if _is_capped(end) else {})

    @field_validator("max_iterations", mode="before")
    @classmethod
    def _none_in_toml(cls, given: object) -> object:
        return None if given == NO_CAP else given

    @property
    def is_capped(self) -> bool:
        """Whether a number of rounds or messages ends it, whatever else happens."""
        return self.max_iterations is not None or _is_capped(self.when)

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
    def waits_for_another(self) -> bool:
        """Whether a done token or a separate judge ends it only once another speaker has spoken."""
        return not (self.allow_unanswered_end or self.min_iterations)


AnyEndChat: TypeAlias = EndChat | EndChatMode | AnyEnd
"""The types that callers may pass as ``end_chat``: a mode, its fields, or an end alone."""
