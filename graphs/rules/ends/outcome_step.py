"""One step towards the end of a conversation, as `Result.why` gives it."""

from enum import StrEnum

from pydantic import NonNegativeInt

from ...common.data import Data
from ...display.lists import ShownList
from ...display.panel import Panel
from ...ends.all_ends import Reason
from ...spec.judges import Verdict


class OutcomeStepKind(StrEnum):
    """What kind of step led to the end."""

    VERDICT = "verdict"  # a judge's answer
    REJECTED = "rejected"  # a reply that broke a rule and was asked for again
    CUT_OFF = "cut_off"  # a message that ended at the longest length of an answer
    COUNTED = "counted"  # a message that a guard counted
    SAID = "said"  # a done token
    ANSWERED = "answered"  # the answer for which a done token has waited
    CALLED = "called"  # a tool that ends it
    DECIDED = "decided"  # what a person decided about a call of a tool
    CHOICE = "choice"  # a choice of the next speaker that could not be read
    THOUGHT = "thought"  # what a model thought, which led to nothing by itself
    REASON = "reason"  # a reason that held at the end


class OutcomeStep(Data):
    """One step towards the end of a conversation."""

    kind: OutcomeStepKind
    """What kind of step it is."""
    message: str | None = None
    """The place of the message that it is about. None: the end itself."""
    speaker: str | None = None
    """Whose message, call, task or turn it is. None: nobody's."""
    text: str
    """What it is, in a few words."""
    reason: Reason | None = None
    """The reason that it is, or may become."""
    count: NonNegativeInt | None = None
    """How many the guard has counted."""
    limit: NonNegativeInt | None = None
    """At how many the guard ends the conversation."""
    verdict: Verdict | None = None
    """The judge's answer."""

    def __str__(self) -> str:
        return self.text if self.message is None else f"{self.message} {self.text}"


class OutcomeSteps(ShownList[OutcomeStep]):
    """What led to an end, oldest first; it shows itself as a table."""

    def _panel(self) -> Panel:
        rows = ((one.message or "", one.kind.value.replace("_", " "), one.text) for one in self)
        return Panel(head=("Message", "Step", "What it is"), rows=tuple(rows))
