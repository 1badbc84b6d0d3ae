"""Judges of completion and rules for the next speaker, as data."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PositiveInt,
    Tag,
    model_validator,
)

from ..common.data import (
    Accepts,
    AtLeast,
    Data,
    Kinded,
    ModelName,
    Name,
    Named,
    Temperature,
    Text,
    by_kind,
    check_distinct,
    default,
)

VERDICT_TEMPERATURE = 0.3
"""The default temperature of a verdict (Yacana's yes/no question)."""

MOST_CRITERIA = 50
"""Maximum number of criteria; all are judged in one call."""


class Judge(Kinded):
    """The default judge: each speaker that checks completion judges its own task (Yacana)."""

    kind: Literal["speaker"] = "speaker"
    """The kind of judge."""
    form: Literal["structured", "two_questions"] = "structured"
    """The form of the question. ``structured`` is one call with structured output.
    ``two_questions`` asks for the objectives left, then for one word; use it for models without
    structured output."""
    temperature: Temperature = None
    """The temperature of the verdict, 0 to 2. If None: 0.3, if the model accepts a temperature.
    ``unset`` sends none."""
    max_tokens: PositiveInt | None = None
    """Maximum length of the answer, in tokens. If None, the form of the answer determines it, and a
    repeated question allows more."""


class SeparateJudge(Kinded):
    """A judge that is not a speaker and checks the conversation against a list of criteria.

    The judge sees all messages, private openings included. It is asked after each turn of a speaker
    that checks completion, or of every speaker if none does. When all criteria are met, every task
    counts as complete.
    """

    kind: Literal["separate"] = "separate"
    """The kind of judge."""
    criteria: Accepts[
        Annotated[tuple[Text, ...], AfterValidator(check_distinct)], Sequence[str]
    ] = Field(min_length=1, max_length=MOST_CRITERIA, kw_only=False)
    """The criteria, each a statement such as "They agree on a price." A speaker with
    ``keep_self_reflection`` sees these words with the judge's findings."""
    prompt: Text | None = None
    """The judge's system prompt. A neutral prompt if None. The task and the criteria follow it."""
    model: ModelName | None = None
    """The model that judges. The conversation's default model if None."""
    form: Literal["structured", "lines"] = "structured"
    """The form of the answer. ``structured`` is structured output. ``lines`` is a line of words for
    each criterion, for models without structured output."""
    temperature: Temperature = None
    """The temperature of the verdict, 0 to 2. If None: 0.3, if the model accepts a temperature.
    ``unset`` sends none."""
    max_tokens: PositiveInt | None = None
    """Maximum length of the answer, in tokens. If None, the form of the answer determines it, and a
    repeated question allows more."""
    with_reasons: bool = False
    """Whether the judge writes for each finding a reason, and the number of the message that shows
    it. It then reads numbered lines, with the tool calls and their results. A finding that
    contradicts its reason, or names a message that does not exist, counts as inconclusive. Needs
    the form ``structured``."""
    final_verdict: bool = True
    """Whether the judge is asked once more if a cap on rounds or messages ends the conversation
    before it has judged the last message. The cap remains the reason for the end."""

    @model_validator(mode="after")
    def _has_room_for_reasons(self) -> Self:
        if self.with_reasons and self.form == "lines":
            raise ValueError(
                'with_reasons: a line has no room for a reason; set form = "structured"'
            )
        return self


class Finding(StrEnum):
    """A separate judge's decision on one criterion."""

    MET = "met"
    """The criterion is met."""
    NOT_MET = "not_met"
    """The criterion is not met."""
    INCONCLUSIVE = "inconclusive"
    """The conversation does not show whether the criterion is met."""

    @property
    def in_words(self) -> str:
        """Return the decision as words."""
        return self.value.replace("_", " ")


class FindingReason(Data):
    """A separate judge's reason for one finding."""

    text: str
    """The reason, in the judge's words, or the problem of a finding that counts as inconclusive."""
    message: PositiveInt | None = None
    """The number of the message that shows it, among the messages, tool calls and results, from 1.
    None if no single message shows it."""


class Verdict(Data):
    """A judge's answer."""

    speaker: str
    """The speaker whose task was judged, or after whose turn the separate judge was asked."""
    complete: bool
    """Whether the task is complete. False if the answer could not be read."""
    objectives_left: tuple[str, ...] = ()
    """The objectives left, in the judge's words."""
    readable: bool = True
    """Whether the answer could be read."""
    findings: dict[str, Finding] = Field(default_factory=dict)
    """A separate judge's decision on each criterion."""
    reasons: dict[str, FindingReason] = Field(default_factory=dict)
    """The reason for each finding. Empty if the judge has no ``with_reasons``."""
    final: bool = False
    """Whether the judge was asked only because a cap had been reached."""

    def describe_finding(self, criterion: str) -> str:
        """Return the decision on a criterion as words, with its reason and its message."""
        words, reason = self.findings[criterion].in_words, self.describe_reason(criterion)
        return f"{words}: {reason}" if reason else words

    def describe_reason(self, criterion: str) -> str:
        """Return the reason for a finding with its message. Empty if the judge wrote none."""
        reason = self.reasons.get(criterion)
        if reason is None:
            return ""
        at = "" if reason.message is None else f"message {reason.message}"
        return ", ".join(filter(None, [reason.text.rstrip(" ."), at]))


class RoundRobin(Kinded):
    """A turn order in which the speakers follow one another in the given order."""

    kind: Literal["round_robin"] = "round_robin"
    """The kind of turn order."""


class Concurrent(Kinded):
    """A turn order in which all speakers of a round speak at once, without hearing one another.

    Each speaker hears the messages up to the round before. Their models are called at the same
    time. End conditions are checked when the round is complete.
    """

    kind: Literal["concurrent"] = "concurrent"
    """The kind of turn order."""


class TurnFunction(Kinded):
    """A turn order in which a registered function returns the next speaker."""

    kind: Literal["function"] = "function"
    """The kind of turn order."""
    name: Named = Field(kw_only=False)
    """The name of the registered function. It receives the messages so far, oldest first, and the
    speakers' names, and returns one of the names."""

    if TYPE_CHECKING:

        def __init__(self, name: str | Callable[..., Any], **fields: Any) -> None: ...


class Moderator(Kinded):
    """A turn order in which a model that is not a speaker names the next speaker.

    The model sees the messages that all speakers hear.
    """

    kind: Literal["moderator"] = "moderator"
    """The kind of turn order."""
    prompt: Text | None = None
    """The moderator's system prompt. A neutral prompt if None. The task and the names follow it."""
    model: ModelName | None = None
    """The model that chooses. The conversation's default model if None."""
    form: Literal["structured", "word"] = "structured"
    """The form of the answer. ``structured`` is structured output. ``word`` is a name only, for
    models without structured output."""
    temperature: Temperature = None
    """The temperature of the choice, 0 to 2. If None: 0.3, if the model accepts a temperature.
    ``unset`` sends none."""


HAND_OFF: Final = "hand_off"
"""The tool with which a speaker's model names the next speaker."""


class Handoff(Kinded):
    """A turn order in which each speaker names the next (AutoGen's Swarm, OpenAI's Agents SDK).

    There are three ways to name the next speaker:

    - A model calls the tool ``hand_off`` with a name and the message, like the
      ``handoff_to_agent`` of Strands Agents. This call is the speaker's message and needs no
      further model call.
    - A speaker whose format is a `SchemaFormat` fills a field of the JSON.
    - Any speaker can begin a message with ``@`` and a name.

    If a speaker names no other, the turn goes back to the speaker that handed over to it, or else
    to the next speaker in order.
    """

    kind: Literal["handoff"] = "handoff"
    """The kind of turn order."""
    to: Accepts[
        dict[Name, Annotated[tuple[Name, ...], AtLeast(1), AfterValidator(check_distinct)]],
        Mapping[str, Sequence[str]],
    ] = Field(default=default({}), kw_only=False)
    """For each speaker's name, the names it may hand over to; this may include its own name. A
    speaker without an entry may hand over to all others."""
    field: Name = "next"
    """The field of a speaker's JSON that contains the next speaker's name."""
    private: bool = False
    """Whether a call of ``hand_off`` may restrict the message to the next speaker."""


def _kind_discriminator(default: str) -> Discriminator:
    """Return a discriminator by the field ``kind``, which may be omitted for the default kind."""

    def tag(given: object) -> str | None:
        if isinstance(given, dict):
            # Only the separate judge has criteria.
            return str(given.get("kind", "separate" if "criteria" in given else default))
        return str(getattr(given, "kind", default))

    return Discriminator(tag)


AnyJudge: TypeAlias = Annotated[
    Annotated[Judge, Tag("speaker")] | Annotated[SeparateJudge, Tag("separate")],
    _kind_discriminator("speaker"),
    BeforeValidator(by_kind),
]
"""The judge of completion."""

TurnOrder: TypeAlias = Annotated[
    Annotated[RoundRobin, Tag("round_robin")]
    | Annotated[Concurrent, Tag("concurrent")]
    | Annotated[TurnFunction, Tag("function")]
    | Annotated[Moderator, Tag("moderator")]
    | Annotated[Handoff, Tag("handoff")],
    _kind_discriminator("round_robin"),
    BeforeValidator(by_kind),
]
"""The rule that selects the next speaker."""
