"""The base classes of end conditions: reason, strength, wording, facts, and counts from the log."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import reduce
from operator import or_
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    NoReturn,
    Protocol,
    TypeAlias,
    TypeGuard,
    TypeVar,
)

from langchain_core.messages import BaseMessage
from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, NonNegativeFloat, NonNegativeInt
from pydantic_core import CoreSchema

from ..common.data import Accepts, Data, Fields, Kinded, by_kind
from ..common.errors import suggest_near_or_all
from ..speakers.replies import Failure, Flaw, Source
from ..speakers.speaker import Speaker


class Facts(Data):
    """The facts of a log so far, computed by `graphs.rules.log_counter`."""

    messages: NonNegativeInt = 0
    """Number of messages of the speakers."""
    calls: NonNegativeInt = 0
    """Number of answered model calls."""
    tokens: NonNegativeInt = 0
    """Number of tokens of prompts and answers."""
    cost: NonNegativeFloat = 0
    """Cost of the model calls whose prices are known. 0 if no price is known."""
    seconds: NonNegativeFloat = 0
    """Seconds of running time."""
    calls_by: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """Number of answered model calls, by the speaker in whose turns they were made. Calls of a
    judge, and the call that rewrites the task, belong to no speaker."""
    tokens_by: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """Number of tokens of these calls, by speaker."""
    cost_by: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    """Cost of these calls, by speaker. 0 if no price is known."""
    stop_requested: bool = False
    """Whether a stop was requested from outside."""
    tokens_said: tuple[tuple[str, str], ...] = ()
    """The done tokens that were said, each with its speaker."""
    tokens_unanswered: tuple[tuple[str, str], ...] = ()
    """The done tokens of the newest speaker that count only once another speaker answers, and have
    no answer yet."""
    alone: bool = False
    """Whether at most one speaker has spoken so far. Computed only for a separate judge."""
    predicates: tuple[str, ...] = ()
    """The predicates that returned true after the latest turn."""
    tools_called: tuple[tuple[str, str], ...] = ()
    """The ending tools that answered without an error, each with its caller."""
    code_by: str | None = None
    """The speaker of the newest message if this message contains code that can be run, otherwise
    None."""
    no_code_by: str | None = None
    """The speaker of the newest message if this message contains no such code, otherwise None."""
    said_by: str | None = None
    """The speaker of the newest message that all speakers hear. This field and the next three are
    computed only if people take part."""
    heard_from: tuple[str, ...] = ()
    """The speakers of messages that all speakers hear."""
    terminated: tuple[str, ...] = ()
    """The speakers for whom the newest message ends with their termination word."""
    auto_replies: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """Number of consecutive automatic replies, by the speaker for whom a person writes."""
    counts: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """The counts of end conditions and guards, such as consecutive blank replies, by their reasons.
    Zeros are left out."""

    def count(self, reason: str) -> int:
        """Return the count of the end with this reason."""
        return self.counts.get(reason, 0)


class Metadata(Protocol):
    """The part of a `graphs.log.metadata.MessageMetadata` that end conditions read."""

    @property
    def kind(self) -> str:
        """Return the kind of message."""

    @property
    def speaker(self) -> str | None:
        """Return the speaker, or None for a message of the conversation itself."""

    @property
    def is_aloud(self) -> bool:
        """Return whether the other speakers hear the message, in a round or as last words."""

    @property
    def ends_turn(self) -> bool:
        """Return whether the message is the last one of a speaker's turn."""


class SpeechMetadata(Metadata, Protocol):
    """The part of a speech's metadata that end conditions read."""

    @property
    def source(self) -> Source:
        """Return the speech's origin."""

    @property
    def flaw(self) -> Flaw | None:
        """Return the fault of the message, or None if it has none."""


class ResultMetadata(Metadata, Protocol):
    """The part of a tool result's metadata that end conditions read."""

    @property
    def failure(self) -> Failure | None:
        """Return the cause of a failed call, or None if the call did not fail."""

    @property
    def tool(self) -> str | None:
        """Return the tool that ran if a person chose another tool, otherwise None."""


class JudgeVerdict(Protocol):
    """The part of a `Verdict` that end conditions read."""

    @property
    def speaker(self) -> str:
        """Return the speaker after whose turn the judge was asked."""

    @property
    def readable(self) -> bool:
        """Return whether the judge's answer could be read."""

    @property
    def final(self) -> bool:
        """Return whether the judge was asked only because a cap was reached."""


def is_speech(about: Metadata) -> TypeGuard[SpeechMetadata]:
    """Return whether a speaker says the message in its own turn."""
    return about.kind == "speech"


def is_public_speech(about: Metadata) -> TypeGuard[SpeechMetadata]:
    """Return whether a speaker says the message in its own turn, and the others hear it."""
    return about.kind == "speech" and about.is_aloud


def is_tool_calls(about: Metadata) -> bool:
    """Return whether the message is a speaker's call of tools."""
    return about.kind == "tool_calls"


def is_tool_result(about: Metadata) -> TypeGuard[ResultMetadata]:
    """Return whether the message is the result of a tool."""
    return about.kind == "tool_result"


def verdict_of(about: Metadata) -> JudgeVerdict | None:
    """Return the judge's verdict in a message, or None."""
    verdict: JudgeVerdict | None = getattr(about, "verdict", None)
    return verdict


class Strength(IntEnum):
    """The precedence of end conditions, strongest first."""

    HARD = 0  # ends at once, even within a turn, and cancels promised last words
    SAID = 1  # ends before the next message, and cancels promised last words
    VERDICT = 2  # ends after promised last words, as do the weaker ones
    GUARD = 3  # yields to a verdict
    CAP = 4  # yields to all others


class EndSettings(Protocol):
    """The part of `EndChat` that end conditions read."""

    @property
    def when(self) -> "BaseEnd | None":
        """Return the end conditions that the conversation names."""

    @property
    def guards(self) -> object:
        """Return an object that contains the limit of each guard under the guard's reason."""

    @property
    def waits_for_tasks(self) -> bool:
        """Return whether completed tasks end the conversation."""


class ConversationLike(Protocol):
    """The part of a `Conversation` that end conditions read."""

    @property
    def speakers(self) -> tuple[Speaker, ...]:
        """Return the speakers."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the speakers' names."""

    @property
    def end_chat(self) -> EndSettings:
        """Return the end conditions and guards."""

    @property
    def has_separate_judge(self) -> bool:
        """Return whether a separate judge decides if the tasks are complete."""

    @property
    def is_free(self) -> bool:
        """Return whether all prices are 0."""

    def speaker(self, name: str) -> Speaker:
        """Return the speaker of this name."""


class Tally(ABC):
    """A counter for one end condition. It reads the log message by message."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Return the count after the newest message."""

    @abstractmethod
    def add(self, message: BaseMessage, about: Metadata) -> None:
        """Read the next message of the log."""


class FactTally(Tally):
    """A counter that computes fields of `Facts` instead of a number."""

    count = 0

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Return the fields of `Facts` that this counter computes."""


Tallies: TypeAlias = Mapping[str, Tally]
"""The counters, each under the reason of the end condition or guard."""

E = TypeVar("E", bound="BaseEnd")


class AtEnd(NamedTuple):
    """The state of a conversation that has just ended."""

    conversation: ConversationLike
    facts: Facts
    speaker: str | None  # the speaker of the current turn
    completed: tuple[str, ...]  # the speakers with completed tasks, in order of completion
    left_by: str | None  # the speaker whose person has left
    met: Sequence["BaseEnd"]  # the end conditions of the spec that are met
    tallies: Tallies  # the counters of all end conditions

    def met_of(self, kind: type[E]) -> list[E]:
        """Return the end conditions of one class that are met."""
        return [end for end in self.met if isinstance(end, kind)]


class CountedMessage(NamedTuple):
    """A message that may contribute to an end, with the facts before and after it."""

    message: BaseMessage
    about: Metadata
    conversation: ConversationLike
    before: Facts  # before the message
    facts: Facts  # after the message
    tallies: Tallies  # after the message


class EndStep(NamedTuple):
    """The contribution of one message to an end."""

    kind: Literal["said", "answered", "called", "counted"]
    speaker: str | None
    text: str  # the speaker's action in a few words
    reached: int | None = None  # the count of a guard
    limit: int | None = None  # the count at which the guard ends the conversation
    act: tuple[str, str] | None = None  # the done token or ending tool, with its speaker


_WAITING_STRENGTHS: Final = (Strength.SAID, Strength.VERDICT, Strength.GUARD)


class EndRule:
    """Base of all end conditions and guards, with everything that does not depend on a limit."""

    reason: ClassVar[str]
    """The reason for the end, as the value of a `Reason`."""
    strength: ClassVar[Strength]
    """The precedence of this end condition over others."""
    report: ClassVar[str]
    """The text of the row in the report of a batch, such as "The time limit was reached"."""
    explanation: ClassVar[str]
    """The cause of the end in a few words, with the placeholders ``{by}``, ``{count}`` and
    ``{facts}``."""
    stops_calls: ClassVar[bool] = False
    """Whether this end condition ends the conversation before pending tool calls are run."""
    allows_final_verdict: ClassVar[bool] = False
    """Whether a separate judge may still give a final verdict when this end condition is met."""

    @classmethod
    def waits(cls, *, has_left: bool) -> bool:
        """Return whether this end condition waits until the minimum number of rounds is complete.

        Args:
            has_left: Whether a person has ended the conversation.
        """
        return cls.strength in _WAITING_STRENGTHS

    @classmethod
    def is_met_unnamed(cls, conversation: ConversationLike, facts: Facts) -> bool:
        """Return whether this end condition is met although ``end_chat.when`` does not name it."""
        return False

    @classmethod
    def tally(cls, conversation: ConversationLike) -> Tally | None:
        """Return a new counter, or None if this end condition needs no counter.

        `Facts.counts` contains the result of the counter.
        """
        return None

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        """Describe in a few words why the conversation ended."""
        count = at.facts.count(cls.reason)
        return cls.explanation.format(by=cls.find_ender(at), count=count, facts=at.facts)

    @classmethod
    def find_ender(cls, at: AtEnd) -> str | None:
        """Return the speaker that ended the conversation, or None if no speaker ended it.

        A speaker ends the conversation with a message, a tool call or a completed task.
        """
        return None

    @classmethod
    def steps(cls, step: CountedMessage) -> Iterator[EndStep]:
        """Yield the contributions of a message to this end condition."""
        yield from ()


class BaseEnd(Kinded, EndRule):
    """Base of all end conditions. ``a | b`` is met when one is met, ``a & b`` when both are."""

    comes_of_tools: ClassVar[bool] = False
    """Whether tool results can meet this end condition before the turn is over."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:  # as pydantic's
        """Register the class by its kind, which is also its reason."""
        if "kind" in cls.model_fields:
            cls.reason = cls.model_fields["kind"].default
            KINDS[cls.reason] = cls

    def __or__(self, other: "BaseEnd") -> "AnyOf":
        if not isinstance(other, BaseEnd):
            return NotImplemented
        return AnyOf(of=(*_parts(self, AnyOf), *_parts(other, AnyOf)))

    def __and__(self, other: "BaseEnd") -> "AllOf":
        if not isinstance(other, BaseEnd):
            return NotImplemented
        return AllOf(of=(*_parts(self, AllOf), *_parts(other, AllOf)))

    def __bool__(self) -> NoReturn:
        """Raise an error: Python evaluates ``a or b`` to ``a``, and ``b`` would be lost.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"{type(self).__name__} is neither true nor false; use '|' instead of 'or', "
            "'&' instead of 'and', and 'is None' instead of 'not'"
        )

    if TYPE_CHECKING:

        @property
        def kind(self) -> str: ...

    def is_met(self, facts: Facts) -> bool:
        """Return whether these facts meet the end condition."""
        raise NotImplementedError

    def describe(self) -> str:
        """Describe the end condition in a few words, such as "12 messages"."""
        raise NotImplementedError

    def describe_end(self) -> str:
        """Describe the end condition as the rest of "Ends …", such as "at 12 messages"."""
        return f"at {self.describe()}"

    def check(self, conversation: ConversationLike, path: str) -> None:
        """Check that the end condition fits the conversation.

        Raises:
            ValueError: The end condition does not fit; the message names the field.
        """

    def meter(self, facts: Facts) -> tuple[str, float, float] | None:
        """Return the name, count and limit for a meter on the page, or None for no meter."""
        return None

    def comes_of(self, speaker: Speaker) -> bool:
        """Return whether a turn of this speaker can meet the end condition, for drawings."""
        return False

    @property
    def most_messages(self) -> int | None:
        """Return the number of messages at which this end is met, or None if no number meets it."""
        return None

    @property
    def most_calls(self) -> int | None:
        """Return the number of calls at which this end is met, or None if no number meets it."""
        return None

    def most_answers(self, speakers: int) -> int:
        """Return the maximum number of messages that this end condition allows after a cap."""
        return 0

    def registered(self) -> Iterator[tuple[str, str, str]]:
        """Yield the field, the kind and the name of each registered object that is used here."""
        yield from ()


KINDS: Final[dict[str, type[BaseEnd]]] = {}
"""All end conditions that a conversation may name in ``end_chat.when``, by kind."""


def _read_end(value: object) -> object:
    """Convert a list, as in files, to an `AnyOf`, and a plain string to an end of this kind."""
    if isinstance(value, list | tuple):
        return value[0] if len(value) == 1 else {"kind": "any", "of": value}
    return by_kind(value)


class _OfAnyKind:
    """A validator that reads an end by its kind.

    It knows all kinds that are registered when an end condition is read for the first time.
    """

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        simple = [kind for kind in KINDS.values() if not issubclass(kind, AnyOf | AllOf)]
        ends: Any = reduce(or_, (*simple, AnyOf, AllOf))
        tagged = Annotated[ends, Field(discriminator="kind"), BeforeValidator(_read_end)]
        return handler.generate_schema(tagged)


End: TypeAlias = Annotated[BaseEnd, _OfAnyKind()]
"""An end condition of any kind."""

AnyEnd: TypeAlias = BaseEnd | str | Fields | Sequence[BaseEnd | str | Fields]
"""The types that callers may pass as an end condition."""


class AnyOf(BaseEnd):
    """A combination that is met when any part is met: ``a | b`` in Python, a list in a file."""

    kind: Literal["any"] = "any"
    """The kind of end."""
    of: Accepts[tuple[End, ...], Sequence[BaseEnd | str | Fields]] = Field(
        min_length=1, kw_only=False
    )
    """The end conditions that are combined."""

    def describe(self) -> str:
        return " or ".join(end.describe() for end in self.of)


class AllOf(BaseEnd):
    """A combination that is met when all parts are met: ``a & b`` in Python.

    Done tokens and tool calls of earlier turns still count; a predicate must be true at the same
    time as the other end conditions.
    """

    kind: Literal["all"] = "all"
    """The kind of end."""
    of: Accepts[tuple[End, ...], Sequence[BaseEnd | str | Fields]] = Field(
        min_length=1, kw_only=False
    )
    """The end conditions that are combined."""

    def describe(self) -> str:
        return " and ".join(end.describe() for end in self.of)

    def describe_end(self) -> str:
        return " and ".join(end.describe_end() for end in self.of)


def _parts(end: BaseEnd, whole: type[AnyOf] | type[AllOf]) -> tuple[BaseEnd, ...]:
    return end.of if isinstance(end, whole) else (end,)


def leaves(end: BaseEnd | None, path: str = "") -> Sequence[tuple[str, BaseEnd]]:
    """Return the simple parts of an end condition, each with its path in the spec."""
    if not isinstance(end, AnyOf | AllOf):
        return () if end is None else ((path, end),)
    parts = enumerate(end.of)
    return [leaf for place, part in parts for leaf in leaves(part, f"{path}.of.{place}")]


def alternatives(end: BaseEnd | None) -> tuple[BaseEnd, ...]:
    """Return the end conditions of which any single one ends the conversation."""
    if isinstance(end, AnyOf):
        return tuple(part for one in end.of for part in alternatives(one))
    return () if end is None else (end,)


def lone(end: BaseEnd | None) -> Iterator[BaseEnd]:
    """Yield the end conditions that are sufficient alone, because no ``&`` joins them to others."""
    yield from (one for one in alternatives(end) if not isinstance(one, AllOf))


def message_caps(end: BaseEnd | None) -> list[int]:
    """Return the limits on messages that end a conversation by themselves."""
    return [one.most_messages for one in lone(end) if one.most_messages is not None]


def call_caps(end: BaseEnd | None) -> list[int]:
    """Return the limits on model calls that end a conversation by themselves."""
    return [one.most_calls for one in lone(end) if one.most_calls is not None]


def count_of(count: float, one: str, more: str = "") -> str:
    """Return a number and its noun, such as "3 rounds"."""
    number = f"{count:,}".removesuffix(".0")
    return f"{number} {one if count == 1 else more or one + 's'}"


def check_name(conversation: ConversationLike, field: str, name: str | None) -> None:
    """Check that a speaker has this name.

    Raises:
        ValueError: No speaker has this name; the message names the field.
    """
    if name is not None and name not in conversation.names:
        raise ValueError(
            f"{field}: no speaker is called {name!r}{suggest_near_or_all(name, conversation.names)}"
        )


def doers(what: str, by: str | None, done: Sequence[tuple[str, str]]) -> list[str]:
    """Return the speakers that said a token or called a tool, or only the given speaker."""
    return [speaker for one, speaker in done if one == what and by in (None, speaker)]


def listed(words: Sequence[str]) -> str:
    """Join words by "and" without duplicates."""
    return " and ".join(dict.fromkeys(words))
