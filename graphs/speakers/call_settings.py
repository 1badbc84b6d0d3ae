"""Settings of a speaker's calls, as data: of its model, its context and the approval of its tools.

A context policy says how much of a long history a speaker's prompts contain. `graphs.rules.history`
applies it to a log. The log itself is never cut.

The payload and the answer of an approval have the shape of ``HumanInTheLoopMiddleware`` of
langchain 1.x in its default mode, one interrupt for all calls of a message (``HITLRequest`` and
``HITLResponse`` with ``name``, ``args`` and ``description``; the 1.0 alphas had ``arguments``).
User interfaces made for it can therefore show these questions. The `langchain` package itself is
not needed.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, PositiveInt, model_validator

from ..common.data import (
    Accepts,
    Cap,
    Data,
    Kinded,
    ModelName,
    Spec,
    Temperature,
    Text,
    by_kind,
    check_distinct,
    default,
)

_SENT: Final = ("authorization", "content-length", "content-type", "host", "user-agent")

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header (RFC 9110, section 5.1)."""

_TEXT: Final = re.compile(r"[\x20-\x7e]*")


def _check_headers(given: dict[str, str]) -> dict[str, str]:
    for name, text in given.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid name of a header")
        if not _TEXT.fullmatch(text):
            raise ValueError(f"{name!r}: must be one line of ASCII text")
        if name.lower() in _SENT or name.lower().startswith("x-stainless-"):
            raise ValueError(f"{name!r} is set by each call; remove it")
    return given


def _check_json(given: dict[str, JsonValue]) -> dict[str, JsonValue]:
    try:
        json.dumps(given, allow_nan=False)
    except ValueError:
        raise ValueError(
            "contains NaN or an infinite number, which JSON lacks; remove it"
        ) from None
    return given


Further: TypeAlias = Annotated[dict[str, JsonValue], AfterValidator(_check_json)]
"""Settings under the names of the model's provider."""

Headers: TypeAlias = Annotated[dict[str, str], AfterValidator(_check_headers)]
"""Headers of a request."""


class ModelSettings(Spec):
    """Settings that are sent with a model call. A setting that is None is not sent."""

    temperature: Temperature = None
    """Sampling temperature, 0 to 2. If None: 0.2 for speakers and 1.0 for the rewriting of the
    task, if the model accepts a temperature. ``unset`` sends none."""
    max_tokens: PositiveInt | None = None
    """Maximum length of the answer, in tokens."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling, above 0 and up to 1."""
    stop: Accepts[tuple[str, ...], Sequence[str]] = default(())
    """Texts at which the model stops."""
    seed: int | None = None
    """Seed of the sampling. A model that supports it tends to give the same answer to the same
    prompt."""
    extra_args: Accepts[Further, Mapping[str, Any]] = default({})
    """Further settings of the model's LangChain client, under the client's names. They are stored
    with the session."""
    extra_body: Accepts[Further, Mapping[str, Any]] = default({})
    """Further fields of the request's JSON body. They are stored with the session."""
    extra_headers: Accepts[Headers, Mapping[str, str]] = default({})
    """Further headers of the request. They are stored with the session, so they must not contain a
    secret."""
    attachments: bool | None = None
    """Whether images, PDFs and audio files in messages are sent to the model. If None, they are
    sent unless LangChain's profile of the model says that it does not accept them. Otherwise the
    model reads a short description of each file."""

    @model_validator(mode="after")
    def _check_set_once(self) -> Self:
        for name in self.extra_args:
            if name in self.extra_body:
                raise ValueError(f"{name!r} is in extra_args and in extra_body; set it only once")
        return self


class SmallModelPrompt(Spec):
    """The prompt of a speaker for a very small model, such as the embedded one.

    A grammar enforces the form of the reply, so the prompt does not describe it. It must be short.
    """

    system_prompt: Text = Field(kw_only=False)
    """The system prompt. ``{task}`` in it is replaced by the task."""
    reminder: Text = Field(kw_only=False)
    """The text appended to each message that the speaker hears. ``{task}`` in it is replaced by the
    original task."""


class PrivateOpening(Spec):
    """The private start of one speaker, which the others never see (Yacana's secret).

    Raises:
        SpecError: Neither or both fields are set.
    """

    lines: Accepts[tuple[Text, ...], Sequence[str]] = default(())
    """Instructions that the speaker reads before the conversation."""
    prompt: Text | None = None
    """A prompt that the speaker answers alone, such as "Choose a secret number." Only the speaker
    itself sees the answer. None if there are ``lines``."""

    @model_validator(mode="after")
    def _check_lines_or_prompt(self) -> Self:
        if bool(self.lines) is (self.prompt is not None):
            raise ValueError("must have either lines or a prompt; set exactly one of them")
        return self


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
