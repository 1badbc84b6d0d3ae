"""Ends that are decided outside of the conversation: by a function of yours, by a request."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from ..common.data import Named
from ..speakers.speaker import Speaker
from .end import AtEnd, BaseEnd, Dialogue, Strength, leaves, listed
from .facts import Facts


class Predicate(BaseEnd):
    """A registered function says so, after a turn."""

    kind: Literal["predicate"] = "predicate"
    """Which end it is."""
    name: Named = Field(kw_only=False)
    """The name it is registered by. It is called with the messages said so far, oldest first."""

    strength: ClassVar = Strength.SAID
    report: ClassVar = "A function of yours ended it"

    if TYPE_CHECKING:

        def __init__(self, name: str | Callable[..., Any], **fields: Any) -> None: ...

    def is_met(self, facts: Facts) -> bool:
        return self.name in facts.predicates

    def describe(self) -> str:
        return f"{self.name}()"

    def foresee(self, speaker: Speaker, facts: Facts) -> tuple[Facts, bool]:
        held = (*facts.predicates, str(self.name))
        return facts.model_copy(update={"predicates": held}), True

    def registered(self) -> Iterator[tuple[str, str, str]]:
        yield "name", "predicates", self.name

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        names = [repr(end.name) for end in at.met_of(Predicate)]
        return f"the predicate {listed(names)} says so"


class StopRequested(BaseEnd):
    """Somebody outside asked it to stop; a hard stop, after the current turn.

    It always works. Where a conversation's ends name it, it counts only as they say.
    """

    kind: Literal["stop_requested"] = "stop_requested"
    """Which end it is."""

    strength: ClassVar = Strength.HARD
    report: ClassVar = "Somebody asked it to stop"
    explanation: ClassVar = "it was asked to stop"
    works_unnamed: ClassVar = True

    def is_met(self, facts: Facts) -> bool:
        return facts.stop_requested

    @classmethod
    def is_met_unnamed(cls, dialogue: Dialogue, facts: Facts) -> bool:
        # If the spec names it, it counts only as the spec says.
        return facts.stop_requested and not any(
            isinstance(end, cls) for _, end in leaves(dialogue.end_chat.when)
        )

    def describe(self) -> str:
        return "a request to stop"

    def foresee(self, speaker: Speaker, facts: Facts) -> tuple[Facts, bool]:
        return facts.model_copy(update={"stop_requested": True}), False
