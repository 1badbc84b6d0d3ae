"""The base of every end: its reason, its strength, its words, and what it counts in the log."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
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
    TypeVar,
    Union,
)

from langchain_core.messages import BaseMessage
from pydantic import BeforeValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from ..common.data import Accepts, Fields, Kinded, by_kind
from ..common.validation import suggest_near_or_all
from ..speakers.speaker import Speaker
from .facts import Facts, Metadata


class Strength(IntEnum):
    """What an end overrules, the strongest first."""

    HARD = 0  # ends it at once, even within a turn, and cancels promised last words
    SAID = 1  # ends it before anybody answers, and cancels promised last words
    VERDICT = 2  # ends it once promised last words are spoken, as those that follow do
    GUARD = 3  # yields to a verdict
    CAP = 4  # yields to everything


class EndSettings(Protocol):
    """What ends read of `EndChat`."""

    @property
    def when(self) -> "BaseEnd | None":
        """The ends that the conversation names."""

    @property
    def guards(self) -> object:
        """The limits of the guards, by their reasons."""

    @property
    def waits_for_tasks(self) -> bool:
        """Whether completed tasks end the conversation."""


class Dialogue(Protocol):
    """What ends read of a `Conversation`."""

    @property
    def speakers(self) -> tuple[Speaker, ...]:
        """Who takes part."""

    @property
    def names(self) -> tuple[str, ...]:
        """The speakers' names."""

    @property
    def end_chat(self) -> EndSettings:
        """How it ends."""

    @property
    def has_separate_judge(self) -> bool:
        """Whether a separate judge decides if the tasks are complete."""

    @property
    def is_free(self) -> bool:
        """Whether all its prices are 0."""

    def speaker(self, name: str) -> Speaker:
        """Return the speaker of this name."""


class Tally(ABC):
    """What one end counts in the log, message by message."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The count after the newest message."""

    @abstractmethod
    def add(self, message: BaseMessage, about: Metadata) -> None:
        """Read the next message of the log."""


class FactTally(Tally):
    """A tally that computes fields of `Facts`, not a number."""

    count = 0

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Return the fields of `Facts` that it computes."""


Tallies: TypeAlias = Mapping[str, Tally]
"""What is counted, by the reasons of the ends that count it."""

E = TypeVar("E", bound="BaseEnd")


class AtEnd(NamedTuple):
    """A conversation that has just ended."""

    dialogue: Dialogue
    facts: Facts
    speaker: str | None  # whose turn it was
    completed: tuple[str, ...]  # who has completed its task, in this order
    left_by: str | None  # the speaker whose person has left
    met: Sequence["BaseEnd"]  # the ends of the spec that are met
    tallies: Tallies  # what each end has counted

    def met_of(self, kind: type[E]) -> list[E]:
        """Return the met ends of one kind."""
        return [end for end in self.met if isinstance(end, kind)]


class CountedMessage(NamedTuple):
    """A message on the way to the end."""

    message: BaseMessage
    about: Metadata
    dialogue: Dialogue
    before: Facts  # what was counted before it
    facts: Facts  # what is counted with it
    tallies: Tallies  # what each end has counted, with it


class EndStep(NamedTuple):
    """What a message contributed to an end."""

    kind: Literal["said", "answered", "called", "counted"]
    speaker: str | None
    text: str  # what the speaker did, in a few words
    reached: int | None = None  # what a guard has counted
    limit: int | None = None  # the count at which it ends the conversation


_WAITS: Final = (Strength.SAID, Strength.VERDICT, Strength.GUARD)


class EndRule:
    """The base of all ends and guards: what is the same whatever their limits are."""

    reason: ClassVar[str]
    """The value of its `Reason`."""
    strength: ClassVar[Strength]
    """What it overrules."""
    report: ClassVar[str]
    """Its row in the report of a batch, such as "Its time was over"."""
    explanation: ClassVar[str]
    """What happened, in a few words; ``{by}``, ``{count}`` and ``{facts}`` are filled in."""
    stops_calls: ClassVar[bool] = False
    """Whether it ends the conversation before waiting calls of tools are run."""
    allows_final_verdict: ClassVar[bool] = False
    """Whether a separate judge may still be asked for a final verdict when it is met."""

    @classmethod
    def waits(cls, *, has_left: bool) -> bool:
        """Return whether it waits until the least number of rounds is complete.

        Args:
            has_left: Whether a person has ended the conversation.
        """
        return cls.strength in _WAITS

    @classmethod
    def is_met_unnamed(cls, dialogue: Dialogue, facts: Facts) -> bool:
        """Return whether it is met without being named in ``end_chat.when``."""
        return False

    @classmethod
    def tally(cls, dialogue: Dialogue) -> Tally | None:
        """Begin to count in a log. None: it counts nothing of its own.

        `Facts.counts` contains the count.
        """
        return None

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        """Say in a few words what happened."""
        count = at.facts.count(cls.reason)
        return cls.explanation.format(by=cls.ended_by(at), count=count, facts=at.facts)

    @classmethod
    def ended_by(cls, at: AtEnd) -> str | None:
        """Return the speaker whose words, calls or completed task ended it."""
        return None

    @classmethod
    def steps(cls, step: CountedMessage) -> Iterator[EndStep]:
        """Yield what a message contributed to it."""
        yield from ()


class BaseEnd(Kinded, EndRule):
    """Base of all ends: ``a | b`` is met when one of them is, ``a & b`` when both are."""

    works_unnamed: ClassVar[bool] = False
    """Whether it can be met without being named in ``end_chat.when``, too."""
    comes_of_tools: ClassVar[bool] = False
    """Whether results of tools can meet it before the turn is over."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:  # as pydantic's
        """Register the class by its kind, which is its reason, too."""
        if "kind" in cls.model_fields:
            cls.reason = cls.model_fields["kind"].default
            _KINDS[cls.reason] = cls

    def __or__(self, other: "BaseEnd") -> "AnyOf":
        if not isinstance(other, BaseEnd):
            return NotImplemented
        return AnyOf(of=(*_parts(self, AnyOf), *_parts(other, AnyOf)))

    def __and__(self, other: "BaseEnd") -> "AllOf":
        if not isinstance(other, BaseEnd):
            return NotImplemented
        return AllOf(of=(*_parts(self, AllOf), *_parts(other, AllOf)))

    def __bool__(self) -> NoReturn:
        """Raise an error: Python reads ``a or b`` as ``a``, and ``b`` would be lost.

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
        """Return whether these facts meet it."""
        raise NotImplementedError

    def describe(self) -> str:
        """Say in a few words what must happen, such as "12 messages"."""
        raise NotImplementedError

    def describe_end(self) -> str:
        """Say the same as the rest of "Ends …", such as "at 12 messages"."""
        return f"at {self.describe()}"

    def check(self, dialogue: Dialogue, path: str) -> None:
        """Make sure that it fits the conversation.

        Raises:
            ValueError: It does not; names the field.
        """

    def meter(self, facts: Facts) -> tuple[str, float, float] | None:
        """Return the name, the count and the limit that a page shows. None: it shows none."""
        return None

    def foresee(self, speaker: Speaker, facts: Facts) -> tuple[Facts, bool]:
        """Return the facts that meet it after a speaker's turn, for pictures.

        Args:
            speaker: The speaker whose turn it is.
            facts: What else is known by then.

        Returns:
            The facts, and whether they come of this speaker's turn.
        """
        return facts, False

    @property
    def most_messages(self) -> int | None:
        """The number of messages at which it is met. None: it does not count them."""
        return None

    @property
    def most_calls(self) -> int | None:
        """The number of model calls at which it is met. None: it does not count them."""
        return None

    def most_answers(self, speakers: int) -> int:
        """Return how many messages it lets follow a cap, at most."""
        return 0

    def registered(self) -> Iterator[tuple[str, str, str]]:
        """Yield what it names of the registry: the field, the kind of thing, and the name."""
        yield from ()


_KINDS: Final[dict[str, type[BaseEnd]]] = {}
"""All ends that users write, by kind."""


def _read_end(value: object) -> object:
    """Read a list, as files have it, as any of its ends; a kind alone needs no table."""
    if isinstance(value, list | tuple):
        return value[0] if len(value) == 1 else {"kind": "any", "of": value}
    return by_kind(value)


class _OfAnyKind:
    """Reads an end by its kind: one of all that there are when an end is first read."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        simple = [kind for kind in _KINDS.values() if not issubclass(kind, AnyOf | AllOf)]
        ends: Any = Union.__getitem__((*simple, AnyOf, AllOf))
        tagged = Annotated[ends, Field(discriminator="kind"), BeforeValidator(_read_end)]
        return handler.generate_schema(tagged)


End: TypeAlias = Annotated[BaseEnd, _OfAnyKind()]
"""Any end."""

AnyEnd: TypeAlias = BaseEnd | str | Fields | Sequence[BaseEnd | str | Fields]
"""The types that callers may pass as an end."""


class AnyOf(BaseEnd):
    """One of several ends; in Python ``a | b``, in a file a list of them."""

    kind: Literal["any"] = "any"
    """Which end it is."""
    of: Accepts[tuple[End, ...], Sequence[BaseEnd | str | Fields]] = Field(
        min_length=1, kw_only=False
    )
    """The ends."""

    def describe(self) -> str:
        return " or ".join(end.describe() for end in self.of)


class AllOf(BaseEnd):
    """Several ends at once; in Python ``a & b``.

    What was said or called earlier still counts; a predicate must hold at that moment.
    """

    kind: Literal["all"] = "all"
    """Which end it is."""
    of: Accepts[tuple[End, ...], Sequence[BaseEnd | str | Fields]] = Field(
        min_length=1, kw_only=False
    )
    """The ends."""

    def describe(self) -> str:
        return " and ".join(end.describe() for end in self.of)


def _parts(end: BaseEnd, whole: type[AnyOf] | type[AllOf]) -> tuple[BaseEnd, ...]:
    return end.of if isinstance(end, whole) else (end,)


def leaves(end: BaseEnd | None, path: str = "") -> Sequence[tuple[str, BaseEnd]]:
    """Return the ends that an end is made of, each with its path in the spec."""
    if not isinstance(end, AnyOf | AllOf):
        return () if end is None else ((path, end),)
    parts = enumerate(end.of)
    return [leaf for place, part in parts for leaf in leaves(part, f"{path}.of.{place}")]


def alternatives(end: BaseEnd | None) -> tuple[BaseEnd, ...]:
    """Return the ends any of which is enough."""
    if isinstance(end, AnyOf):
        return tuple(part for one in end.of for part in alternatives(one))
    return () if end is None else (end,)


def lone(end: BaseEnd | None) -> Iterator[BaseEnd]:
    """Yield the ends that are enough by themselves: those not joined to another by ``&``."""
    yield from (one for one in alternatives(end) if not isinstance(one, AllOf))


def message_caps(end: BaseEnd | None) -> list[int]:
    """Return the numbers of messages that end a conversation by themselves."""
    return [one.most_messages for one in lone(end) if one.most_messages is not None]


def call_caps(end: BaseEnd | None) -> list[int]:
    """Return the numbers of model calls that end a conversation by themselves."""
    return [one.most_calls for one in lone(end) if one.most_calls is not None]


def count_of(count: float, one: str, more: str = "") -> str:
    """Return a number and its noun, such as "3 rounds"."""
    number = f"{count:,}".removesuffix(".0")
    return f"{number} {one if count == 1 else more or one + 's'}"


def check_name(dialogue: Dialogue, field: str, name: str | None) -> None:
    """Make sure that a speaker has this name.

    Raises:
        ValueError: None has; names the field.
    """
    if name is not None and name not in dialogue.names:
        raise ValueError(
            f"{field}: nobody is called {name!r}{suggest_near_or_all(name, dialogue.names)}"
        )


def doers(what: str, by: str | None, done: Sequence[tuple[str, str]]) -> list[str]:
    """Return those who said a token or called a tool, of those who may."""
    return [speaker for one, speaker in done if one == what and by in (None, speaker)]


def listed(words: Sequence[str]) -> str:
    """Join words by "and", each once."""
    return " and ".join(dict.fromkeys(words))
