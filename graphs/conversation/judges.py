"""Who decides whether a task is complete, and who decides whose turn it is, as data."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
)

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, PositiveInt, Tag

from ..common.data import (
    Accepts,
    AtLeast,
    Data,
    Kinded,
    Name,
    Named,
    Temperature,
    Text,
    by_kind,
    check_distinct,
    default,
)

VERDICT_TEMPERATURE = 0.3
"""What a verdict uses unless told otherwise (Yacana's yes/no question)."""

MOST_CRITERIA = 50
"""The longest list of criteria, which are judged in one call."""


class Judge(Kinded):
    """Every speaker that checks completion judges its own task (Yacana)."""

    kind: Literal["speaker"] = "speaker"
    """Who judges."""
    form: Literal["structured", "two_questions"] = "structured"
    """``structured``: one call whose answer is held to a schema. ``two_questions``: what is left,
    then one word, for models without structured output."""
    temperature: Temperature = None
    """The temperature of the verdict, 0 to 2. If None: 0.3, if the model accepts a temperature.
    ``unset`` sends none."""
    max_tokens: PositiveInt | None = None
    """The longest answer, in tokens. None: what its form needs; more where it is asked again."""


class SeparateJudge(Kinded):
    """A judge that takes no part and checks the conversation against a list of criteria.

    It sees all messages, private openings too. It is asked after each turn of a speaker that checks
    completion, or of every speaker if none does. When all criteria are met, every task counts as
    complete.
    """

    kind: Literal["separate"] = "separate"
    """Who judges."""
    criteria: Accepts[
        Annotated[tuple[Text, ...], AfterValidator(check_distinct)], Sequence[str]
    ] = Field(min_length=1, max_length=MOST_CRITERIA, kw_only=False)
    """What must be met, each a statement such as "They agree on a price." A speaker that keeps its
    reflections is told which are met, in these words."""
    prompt: Text | None = None
    """The judge's system prompt. None: a neutral one. The task and the criteria follow it."""
    model: Text | None = None
    """The model that judges. None: the conversation's default."""
    form: Literal["structured", "lines"] = "structured"
    """``structured``: an answer that is held to a schema. ``lines``: a line of words for each
    criterion, for models without structured output."""
    temperature: Temperature = None
    """The temperature of the verdict, 0 to 2. If None: 0.3, if the model accepts a temperature.
    ``unset`` sends none."""
    max_tokens: PositiveInt | None = None
    """The longest answer, in tokens. None: what its form needs; more where it is asked again."""
    final_verdict: bool = True
    """Whether it is asked once more where a cap on rounds or messages ends the conversation and
    nothing was judged since the last message. The reason stays the cap."""


class Finding(StrEnum):
    """A separate judge's decision on one criterion."""

    MET = "met"
    """It holds."""
    NOT_MET = "not_met"
    """It does not hold."""
    INCONCLUSIVE = "inconclusive"
    """The conversation does not show it."""

    @property
    def in_words(self) -> str:
        """It, as one says it."""
        return self.value.replace("_", " ")


class Verdict(Data):
    """A judge's answer."""

    speaker: str
    """Whose task was judged, or after whose turn the separate judge was asked."""
    complete: bool
    """Whether it is complete. False when the answer could not be read."""
    objectives_left: tuple[str, ...] = ()
    """What is left to do, in the judge's words."""
    readable: bool = True
    """Whether the answer could be read."""
    findings: dict[str, Finding] = Field(default_factory=dict)
    """What a separate judge found of each criterion."""
    final: bool = False
    """Whether it was asked for where a cap had ended the conversation already."""


class RoundRobin(Kinded):
    """One after the other, in the order of the speakers."""

    kind: Literal["round_robin"] = "round_robin"
    """Who decides."""


class TurnFunction(Kinded):
    """A registered function names who speaks next."""

    kind: Literal["function"] = "function"
    """Who decides."""
    name: Named = Field(kw_only=False)
    """The name it is registered by. It is called with the messages said so far, oldest first, and
    the speakers' names, and gives one of the names."""

    if TYPE_CHECKING:

        def __init__(self, name: str | Callable[..., Any], **fields: Any) -> None: ...


class Moderator(Kinded):
    """A model that takes no part names who speaks next. It sees what all hear."""

    kind: Literal["moderator"] = "moderator"
    """Who decides."""
    prompt: Text | None = None
    """The moderator's system prompt. None: a neutral one. The task and the names follow it."""
    model: Text | None = None
    """The model that chooses. None: the conversation's default."""
    form: Literal["structured", "word"] = "structured"
    """``structured``: an answer that is held to a schema. ``word``: a name alone, for models
    without structured output."""
    temperature: Temperature = None
    """The temperature of the choice, 0 to 2. If None: 0.3, if the model accepts a temperature.
    ``unset`` sends none."""


HAND_OFF: Final = "hand_off"
"""The tool by which a speaker's model names who speaks next."""


class Handoff(Kinded):
    """Whoever speaks names who speaks next (AutoGen's Swarm, the handoffs of OpenAI's Agents SDK).

    A model does so by calling the tool ``hand_off``, which takes a name and the message (as the
    ``handoff_to_agent`` of Strands Agents does): the call is its message, and no further model call
    is made for it. A speaker whose format is a `SchemaFormat` does so by a field of its JSON.
    Anybody can by a message that begins with ``@`` and a name. A speaker that was handed to, and
    names nobody, hands back; otherwise the next in order speaks.
    """

    kind: Literal["handoff"] = "handoff"
    """Who decides."""
    to: Accepts[
        dict[Name, Annotated[tuple[Name, ...], AtLeast(1), AfterValidator(check_distinct)]],
        Mapping[str, Sequence[str]],
    ] = Field(default=default({}), kw_only=False)
    """For speakers by name, whom each may hand over to; itself, too, if it is there. Who is not
    named here may hand over to everybody else."""
    field: Name = "next"
    """The field of a speaker's JSON that names who speaks next."""
    private: bool = False
    """Whether a call of ``hand_off`` may say that only the one it names hears the message."""


def _kind(default: str) -> Discriminator:
    """Tell kinds apart by their ``kind``, which may be left out for the default."""

    def tag(given: object) -> str | None:
        if isinstance(given, dict):
            # A list of criteria is nobody's but the separate judge's.
            return str(given.get("kind", "separate" if "criteria" in given else default))
        return str(getattr(given, "kind", default))

    return Discriminator(tag)


AnyJudge: TypeAlias = Annotated[
    Annotated[Judge, Tag("speaker")] | Annotated[SeparateJudge, Tag("separate")],
    _kind("speaker"),
    BeforeValidator(by_kind),
]
"""Who judges."""

TurnOrder: TypeAlias = Annotated[
    Annotated[RoundRobin, Tag("round_robin")]
    | Annotated[TurnFunction, Tag("function")]
    | Annotated[Moderator, Tag("moderator")]
    | Annotated[Handoff, Tag("handoff")],
    _kind("round_robin"),
    BeforeValidator(by_kind),
]
"""Who speaks next."""
