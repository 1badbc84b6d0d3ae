"""How much of a long history a speaker is shown, as data: the context policies.

What a policy keeps of a log is in `graphs.rules.history`. The log itself is never cut.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from ..common.data import Cap, Kinded, Temperature, Text, by_kind

SUMMARY_WORDS = 150
"""The longest summary, in words, unless told otherwise."""

SUMMARY_TEMPERATURE = 0.2
"""What a summary uses unless told otherwise: it is to say what was said."""


class KeepAll(Kinded):
    """The whole history, for as long as the model takes it."""

    kind: Literal["all"] = "all"
    """Which policy it is."""


class LastMessages(Kinded):
    """The last messages.

    When there are more than the limit, half of them go at once: the prompt's beginning then stays
    as it is for many turns, which is what servers cache. What was said since the speaker's last
    turn is kept whatever the limit, so that even a limit of 1 works.
    """

    kind: Literal["last"] = "last"
    """Which policy it is."""
    limit: Cap = Field(kw_only=False)
    """The most messages that the speaker said or heard. What it knows from before the rounds does
    not count, nor does what the conversation itself tells it, nor results of tools."""


class TokenBudget(Kinded):
    """As many messages as fit into a number of tokens.

    When they do not fit any more, half of them go at once, as with `LastMessages`.
    """

    kind: Literal["tokens"] = "tokens"
    """Which policy it is."""
    limit: Cap = Field(kw_only=False)
    """The most tokens of the whole prompt, a request to mend a reply included, by an estimate that
    is rather too high. Leave room for the answer below what the model takes."""


class RunningSummary(Kinded):
    """What does not fit into a number of tokens is summed up by a model, again and again.

    The summary stands for the older half of the messages; with it, the rest fits for many turns.
    It is written before a turn begins: what long results of tools push out within one is summed up
    before the next.
    """

    kind: Literal["summary"] = "summary"
    """Which policy it is."""
    limit: Cap = Field(kw_only=False)
    """The most tokens of the whole prompt, the summary included, as in `TokenBudget`."""
    words: Annotated[int, Field(strict=True, gt=0, le=10_000)] = SUMMARY_WORDS
    """The longest summary, in words."""
    model: Text | None = None
    """The model that sums up, mostly a cheap one. None: the speaker's own."""
    temperature: Temperature = None
    """The temperature of the summary, 0 to 2. If None: 0.2, if the model accepts a temperature.
    ``unset`` sends none."""


Context: TypeAlias = Annotated[
    KeepAll | LastMessages | TokenBudget | RunningSummary,
    Field(discriminator="kind"),
    BeforeValidator(by_kind),
]
"""How much of the history a speaker is shown."""
