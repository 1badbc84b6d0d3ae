"""Ends that are decided outside the conversation: by a registered function or by a request."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from ..common.data import Named
from ..speakers.speaker import Speaker
from .end import AtEnd, BaseEnd, Dialogue, Strength, leaves, listed
from .facts import Facts


class Predicate(BaseEnd):
    """An end that is met when a registered function returns true after a turn."""

    kind: Literal["predicate"] = "predicate"
    """The kind of end."""
    name: Named = Field(kw_only=False)
    """The name of the registered function. It receives the messages so far, oldest first."""

    strength: ClassVar = Strength.SAID
    report: ClassVar = "A predicate ended it"

    if TYPE_CHECKING:

        def __init__(self, name: str | Callable[..., Any], **fields: Any) -> None: ...

    def is_met(self, facts: Facts) -> bool:
        return self.name in facts.predicates

    def describe(self) -> str:
        return f"{self.name}()"

    def describe_end(self) -> str:
        return f"when {self.name}() returns true"

    def comes_of(self, speaker: Speaker) -> bool:
        return True

    def registered(self) -> Iterator[tuple[str, str, str]]:
        yield "name", "predicates", self.name

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        names = [repr(end.name) for end in at.met_of(Predicate)]
        return f"the predicate {listed(names)} returned true"


class StopRequested(BaseEnd):
    """A hard stop at a stop request from outside, after the current turn.

    It applies to every conversation. If `EndChat.when` names it, a request ends the conversation
    only in the combination that is written there.
    """

    kind: Literal["stop_requested"] = "stop_requested"
    """The kind of end."""

    strength: ClassVar = Strength.HARD
    report: ClassVar = "A stop was requested"
    explanation: ClassVar = "a stop was requested"
    works_unnamed: ClassVar = True

    def is_met(self, facts: Facts) -> bool:
        return facts.stop_requested

    @classmethod
    def is_met_unnamed(cls, dialogue: Dialogue, facts: Facts) -> bool:
        # If the spec names this end, only the spec's combination counts.
        return facts.stop_requested and not any(
            isinstance(end, cls) for _, end in leaves(dialogue.end_chat.when)
        )

    def describe(self) -> str:
        return "a request to stop"
