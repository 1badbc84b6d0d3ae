"""A batch as data: a conversation, the fields that vary, and limits for all of it together."""

from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, JsonValue, NonNegativeInt, PositiveFloat, PositiveInt

from ..common.data import Cap, DistinctNames, Spec
from ..spec.conversation import Conversation

Values: TypeAlias = tuple[JsonValue, ...] | str
"""The values of a field, or the path of a ``.txt``, ``.csv`` or ``.jsonl`` file that holds them."""


def _one_or_more(given: object) -> object:
    """Read one name as a list of one."""
    return given if isinstance(given, list | tuple) else (given,)


class Rate(Spec):
    """How fast one model may be called, by all sessions of a batch together."""

    requests_per_minute: PositiveInt | None = None
    """The most calls. None: as many as there are."""
    tokens_per_minute: PositiveInt | None = None
    """The most tokens, of prompts and answers. None: as many as there are."""


class Limits(Spec):
    """What holds for all sessions of a batch together. What runs then is paused, and can go on."""

    max_cost: PositiveFloat | None = None
    """The most money, by the price table."""
    max_tokens: PositiveInt | None = None
    """The most tokens, of prompts and answers."""
    max_seconds: PositiveFloat | None = None
    """The longest time that it runs, in seconds, of all runs together."""
    rates: dict[str, Rate] = Field(default_factory=dict)
    """How fast each model may be called, by its name; ``*`` stands for all others, one by one."""


class Batch(Spec):
    """Many sessions of one conversation: one for each combination of the values that vary.

    Raises:
        SpecError: A field is missing, unknown or wrong; names it, and the row of a file.
    """

    conversation: dict[str, Any] | str | Conversation
    """What each session holds but for what varies: a conversation, its fields or a short form's,
    or a file with one."""
    vary: dict[str, Values] = Field(default_factory=dict)
    """The values of each field that varies, by its path, such as ``end_chat.max_iterations`` or
    ``speakers.Buyer.task``. Fields are combined each with each; those that are named together, as
    in ``"user_role, task"``, take their values row by row. ``labels.NAME`` is no field of the
    conversation: it stands beside its session, for scores and tables."""
    trials: Cap = 1
    """How many sessions each combination has; each has a seed of its own."""
    seed: NonNegativeInt | None = None
    """The seed of the first trial; each further one has the next. None: the conversation's, or 0
    where there is more than one trial."""
    limits: Limits = Limits()
    """What holds for all sessions together."""
    score: Annotated[DistinctNames, BeforeValidator(_one_or_more)] = ()
    """Functions that score a session that has ended, by name."""
