"""Approval before tools run, as data: what a person is asked of calls, and what may be answered.

The payload and the answer have the shape of ``HumanInTheLoopMiddleware`` of langchain 1.x in its
default mode, one interrupt for all calls of a message (``HITLRequest`` and ``HITLResponse`` with
``name``, ``args`` and ``description``; the 1.0 alphas had ``arguments``), so that user interfaces
made for it show ours. The `langchain` package itself is not needed.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from ..common.data import Accepts, Data, Spec, Text, check_distinct, default

DecisionType: TypeAlias = Literal["approve", "edit", "reject", "respond"]
"""What a person may decide of a call: let it run, change it, refuse it, answer in its place."""

DECISIONS: tuple[DecisionType, ...] = get_args(DecisionType)
"""All that there are."""


class InterruptOn(Spec):
    """What is asked before a tool runs (LangChain's ``InterruptOnConfig``).

    Raises:
        SpecError: There is no decision, one twice, or one that is unknown.
    """

    allowed_decisions: Accepts[
        Annotated[tuple[DecisionType, ...], AfterValidator(check_distinct)], Sequence[DecisionType]
    ] = Field(default=default(DECISIONS), min_length=1, kw_only=False)
    """What a person may decide: ``approve``, ``edit``, ``reject``, ``respond``; at least one."""
    description: Text | None = None
    """What the person is told. None: who wants to call what, and with which arguments."""


def _read_rule(given: object) -> object:
    """Read one of two kinds, so that an error names its field and not all that it might be."""
    if isinstance(given, bool | InterruptOn):
        return given
    if not isinstance(given, Mapping):
        raise ValueError("must be true, false, or a table with allowed_decisions")
    return InterruptOn.model_validate(given)


Rule: TypeAlias = Annotated[bool | InterruptOn, BeforeValidator(_read_rule)]
"""Whether a person is asked before a tool runs, or what may be decided then."""


class Action(Data):
    """A tool and its arguments."""

    name: str
    """The tool's registered name."""
    args: dict[str, Any]
    """Its arguments."""


class ActionRequest(Action):
    """A call that waits for a decision."""

    description: str
    """What the person is told."""


class ReviewConfig(Data):
    """What may be decided of the call at the same place."""

    action_name: str
    """The tool's registered name."""
    allowed_decisions: tuple[DecisionType, ...]
    """What may be decided."""
    args_schema: dict[str, JsonValue] | None = None
    """The JSON schema of the tool's arguments, where they may be edited."""


class Approval(Data):
    """What a person is asked: the calls of one message that need a decision, in their order."""

    action_requests: tuple[ActionRequest, ...]
    """The calls."""
    review_configs: tuple[ReviewConfig, ...]
    """For each call what may be decided."""

    def payload(self) -> dict[str, Any]:
        """Give it as plain values, which an interrupt carries."""
        return self.model_dump(mode="json", exclude_defaults=True)


class Approve(Data):
    """The call runs as it was made."""

    type: Literal["approve"]


class Edit(Data):
    """Another call runs in its place."""

    type: Literal["edit"]
    edited_action: Action
    """What runs: the same tool, or another one of the speaker's."""


class Reject(Data):
    """The call does not run, and the speaker is told so."""

    type: Literal["reject"]
    message: str | None = None
    """Why."""


class Respond(Data):
    """The call does not run; what the person says is its result."""

    type: Literal["respond"]
    message: str
    """The result."""


AnyDecision: TypeAlias = Annotated[Approve | Edit | Reject | Respond, Field(discriminator="type")]
"""What was decided of one call."""


class Decisions(Data):
    """The answer: a decision for each call, in the order of the calls."""

    decisions: tuple[AnyDecision, ...]
    """The decisions."""
