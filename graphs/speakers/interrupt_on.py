"""Approval before tools run, as data: the questions about tool calls and the possible decisions.

The payload and the answer have the shape of ``HumanInTheLoopMiddleware`` of langchain 1.x in its
default mode, one interrupt for all calls of a message (``HITLRequest`` and ``HITLResponse`` with
``name``, ``args`` and ``description``; the 1.0 alphas had ``arguments``). User interfaces made for
it can therefore show these questions. The `langchain` package itself is not needed.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from ..common.data import Accepts, Data, Spec, Text, check_distinct, default

DecisionType: TypeAlias = Literal["approve", "edit", "reject", "respond"]
"""A person's decision on a call: run it, change it, refuse it, or answer in its place."""

DECISIONS: tuple[DecisionType, ...] = get_args(DecisionType)
"""All decisions."""


class InterruptOn(Spec):
    """The approval rule of a tool (LangChain's ``InterruptOnConfig``).

    Raises:
        SpecError: The allowed decisions are empty, or contain a duplicate or an unknown decision.
    """

    allowed_decisions: Accepts[
        Annotated[tuple[DecisionType, ...], AfterValidator(check_distinct)], Sequence[DecisionType]
    ] = Field(default=default(DECISIONS), min_length=1, kw_only=False)
    """The allowed decisions: ``approve``, ``edit``, ``reject``, ``respond``; at least one."""
    description: Text | None = None
    """The text that the person reads. If None, it names the speaker, the tool and the arguments."""


def _read_rule(given: object) -> object:
    """Read a boolean or an `InterruptOn`, so that an error names only the matching type's field."""
    if isinstance(given, bool | InterruptOn):
        return given
    if not isinstance(given, Mapping):
        raise ValueError("must be true, false, or a table with allowed_decisions")
    return InterruptOn.model_validate(given)


Rule: TypeAlias = Annotated[bool | InterruptOn, BeforeValidator(_read_rule)]
"""Whether a person is asked before a tool runs, or the rule for it."""


class Action(Data):
    """A tool and its arguments."""

    name: str
    """The tool's registered name."""
    args: dict[str, Any]
    """The arguments."""


class ActionRequest(Action):
    """A call that waits for a decision."""

    description: str
    """The text that the person reads."""


class ReviewConfig(Data):
    """The allowed decisions for the call at the same position in ``action_requests``."""

    action_name: str
    """The tool's registered name."""
    allowed_decisions: tuple[DecisionType, ...]
    """The allowed decisions."""
    args_schema: dict[str, JsonValue] | None = None
    """The JSON schema of the tool's arguments, if they may be edited. None otherwise."""


class Approval(Data):
    """A question for decisions: the tool calls of one message that need approval, in order."""

    action_requests: tuple[ActionRequest, ...]
    """The calls."""
    review_configs: tuple[ReviewConfig, ...]
    """The allowed decisions for each call."""

    def payload(self) -> dict[str, Any]:
        """Return the question as plain values, the payload of an interrupt."""
        return self.model_dump(mode="json", exclude_defaults=True)


class Approve(Data):
    """The decision to run the call unchanged."""

    type: Literal["approve"]


class Edit(Data):
    """The decision to run another call instead."""

    type: Literal["edit"]
    edited_action: Action
    """The call that runs: the same tool, or another of the speaker's tools."""


class Reject(Data):
    """The decision not to run the call. The speaker sees that it was refused."""

    type: Literal["reject"]
    message: str | None = None
    """The reason. None if there is none."""


class Respond(Data):
    """The decision not to run the call and to use the person's text as its result."""

    type: Literal["respond"]
    message: str
    """The text that replaces the tool's result."""


AnyDecision: TypeAlias = Annotated[Approve | Edit | Reject | Respond, Field(discriminator="type")]
"""A decision on one call."""


class Decisions(Data):
    """The answer: a decision for each call, in the order of the calls."""

    decisions: tuple[AnyDecision, ...]
    """The decisions."""
