"""Context policies, as data: how much of a long history a speaker's prompts contain.

`graphs.rules.history` applies a policy to a log. The log itself is never cut.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from ..common.data import Cap, Kinded, ModelName, Temperature, by_kind

SUMMARY_WORDS = 150
"""The default length of a summary, in words."""

SUMMARY_TEMPERATURE = 0.2
"""The default temperature of a summary, low because it must report the messages faithfully."""


class KeepAll(Kinded):
    """A policy that keeps the whole history, for as long as the model accepts it."""

    kind: Literal["all"] = "all"
    """The kind of policy."""


class LastMessages(Kinded):
    """A policy that keeps the last messages.

    If there are more than the limit, half of them are dropped at once. The beginning of the prompt
    then stays the same for many turns, so that servers can cache it. The messages since the
    speaker's last turn are always kept, so that even a limit of 1 works.
    """

    kind: Literal["last"] = "last"
    """The kind of policy."""
    limit: Cap = Field(kw_only=False)
    """Maximum number of messages that the speaker said or heard. Messages from before the rounds,
    instructions of the conversation and tool results do not count."""


class TokenBudget(Kinded):
    """A policy that keeps as many messages as fit into a number of tokens.

    If they no longer fit, half of them are dropped at once, as with `LastMessages`.
    """

    kind: Literal["tokens"] = "tokens"
    """The kind of policy."""
    limit: Cap = Field(kw_only=False)
    """Maximum number of tokens of the whole prompt, including a request to rewrite a reply. The
    estimate tends to be too high. Leave room for the answer within the model's context. Messages of
    a turn that exceeds the limit are shortened in the prompt."""


class RunningSummary(Kinded):
    """A policy in which a model summarizes older messages when a prompt exceeds its limit.

    The summary replaces the older half of the messages, so that the rest fits for many turns. It is
    written before a turn begins. If long tool results exceed the limit within a turn, they are
    shortened in its prompts, and summarized before the next turn.
    """

    kind: Literal["summary"] = "summary"
    """The kind of policy."""
    limit: Cap = Field(kw_only=False)
    """Maximum number of tokens of the whole prompt, summary included, as in `TokenBudget`."""
    words: Annotated[int, Field(strict=True, gt=0, le=10_000)] = SUMMARY_WORDS
    """Maximum length of the summary, in words."""
    model: ModelName | None = None
    """The model that writes the summary, usually a cheap one. The speaker's model if None."""
    temperature: Temperature = None
    """The temperature of the summary, 0 to 2. If None: 0.2, if the model accepts a temperature.
    ``unset`` sends none."""


Context: TypeAlias = Annotated[
    KeepAll | LastMessages | TokenBudget | RunningSummary,
    Field(discriminator="kind"),
    BeforeValidator(by_kind),
]
"""Any context policy."""
