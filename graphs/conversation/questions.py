"""What a person is asked while a conversation waits, as data.

When a person is asked for a message is in `graphs.rules.turns`, before calls of tools in
`graphs.speakers.interrupt_on`.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from langchain_core.messages import ToolCall
from langgraph.types import Interrupt
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import to_jsonable_python

from ..common.data import Data
from ..common.errors import AnswerError
from ..common.sanitize import dump_exact_json, escape_invisible
from ..speakers.interrupt_on import Action

EXIT = "exit"
"""What a person says to leave, in any case and with any white space around it (Agere)."""


class Because(StrEnum):
    """Why a person is asked."""

    TURN = "turn"
    """It is the turn of the speaker that the person speaks for."""
    CALLS = "calls"
    """Another speaker has called tools, which have not run yet."""
    TERMINATION = "termination"
    """The newest message is a termination message."""
    MAX_CONSECUTIVE_AUTO_REPLY = "max_consecutive_auto_reply"
    """So many automatic replies were given."""
    GUARD = "guard"
    """A guard found that something goes wrong: the prompt says what."""


Empty: TypeAlias = Literal["auto_reply", "run", "stop"] | None
"""What happens without an answer: something else replies, the calls are run, or the conversation
ends. None: there must be one."""


class Asking(NamedTuple):
    """That a person is asked now."""

    speaker: str  # whom the person speaks for
    because: Because  # why
    empty: Empty  # what happens without an answer
    why: str = ""  # what a guard has found


def _is_text(given: object) -> object:
    if not isinstance(given, str):
        raise ValueError(f"it must be text, not {type(given).__name__}")
    return given


def _is_said(given: str) -> str:
    if not given.strip():
        raise ValueError("it must not be empty")
    return given


_AnyText = Annotated[
    str,
    BeforeValidator(_is_text),
    Field(description="The message. It may be empty or exit, as the question says."),
]
_SomeText = Annotated[
    str,
    BeforeValidator(_is_text),
    AfterValidator(_is_said),
    Field(
        description="The message, or exit to leave the conversation.",
        json_schema_extra={"pattern": r"\S"},
    ),
]


def is_exit(answer: object) -> bool:
    """Whether an answer asks to leave the conversation."""
    return isinstance(answer, str) and answer.strip().casefold() == EXIT


class _Question(Data):
    """Base of all questions."""

    id: str
    """By which it is answered: LangGraph's id of the interrupt."""
    response_schema: dict[str, Any] = Field(default_factory=dict)
    """The JSON schema of an answer; empty where any answer fits."""
    problem: str | None = None
    """What was wrong with the answer before, where there was one that did not fit."""

    def summary(self) -> str:
        """Say what is asked."""
        raise NotImplementedError

    def sample(self) -> str:
        """Return an answer as an example, or what stands for one."""
        return "JSON"

    def read(self, typed: str) -> JsonValue:
        """Read an answer that was typed.

        Args:
            typed: The text.

        Returns:
            The answer, of the type that the question wants.

        Raises:
            AnswerError: It can't be read.
        """
        raise NotImplementedError


class MessageQuestion(_Question):
    """What a speaker says next. It is answered with text."""

    kind: Literal["message"] = "message"
    """Which question it is."""
    speaker: str
    """The speaker that the person speaks for."""
    because: Because
    """Why the person is asked."""
    task: str = ""
    """What the speaker works on; empty where that is for the person to say."""
    heard: str = ""
    """What the speaker has heard since it last spoke."""
    calls: tuple[Action, ...] = ()
    """The calls that wait, where another speaker has called tools. A text interrupts them."""
    empty: Empty = None
    """What happens without an answer: an automatic reply, the calls are run, or the conversation
    ends. None: there must be one."""
    prompt: str
    """What is asked, in a sentence."""

    def summary(self) -> str:
        """Say what is asked."""
        return self.prompt

    def sample(self) -> str:
        """Give what stands for a text."""
        return "TEXT"

    def read(self, typed: str) -> JsonValue:
        """Take any text as it is."""
        return typed


class ApprovalQuestion(_Question):
    """Whether tools may run. It is answered with decisions, as LangChain's human-in-the-loop is."""

    kind: Literal["approval"] = "approval"
    """Which question it is."""
    action_requests: tuple[dict[str, Any], ...]
    """The calls, each with ``name``, ``args`` and ``description``."""
    review_configs: tuple[dict[str, Any], ...]
    """For each call ``action_name`` and ``allowed_decisions``."""

    def summary(self) -> str:
        """Return the descriptions of the calls, and the calls that these do not quote.

        What can't be seen in them is escaped.
        """
        return " ".join(map(_describe_call, self.action_requests))

    def allowed(self, call: dict[str, Any]) -> list[str]:
        """Return the decisions allowed for one of the calls."""
        for review in self.review_configs:
            if review.get("action_name") == call.get("name"):
                return list(review.get("allowed_decisions", ()))
        return []

    def sample(self) -> str:
        """Return an answer that approves of all calls, where that is allowed."""
        if not all("approve" in self.allowed(call) for call in self.action_requests):
            return "JSON"
        return json.dumps({"decisions": [{"type": "approve"} for _ in self.action_requests]})

    def read(self, typed: str) -> JsonValue:
        """Read JSON, or that the person leaves."""
        if is_exit(typed):
            return typed
        try:
            answer: JsonValue = json.loads(typed)
        except ValueError as error:
            raise AnswerError(
                f"the answer is not JSON ({error}), and the question stays open: "
                f"it must be like {self.sample()}"
            ) from error
        return answer


def _describe_call(call: dict[str, Any]) -> str:
    described = escape_invisible(str(call.get("description") or ""), keep="\n")
    name, arguments = str(call.get("name")), dump_exact_json(call.get("args"))
    shown = f"{escape_invisible(name)} with {arguments}"
    return described if shown in described else f"{described} ({shown})".lstrip()


class ToolQuestion(_Question):
    """What a tool or an agent of the user's own asks by `langgraph.types.interrupt`."""

    kind: Literal["tool"] = "tool"
    """Which question it is."""
    value: JsonValue
    """What is asked."""
    by: Literal["tool", "agent"] = "tool"
    """What asks."""

    def summary(self) -> str:
        """Return the question as JSON; what can't be seen in it is escaped."""
        who = "A tool" if self.by == "tool" else "An agent"
        return f"{who} asks: {dump_exact_json(self.value)}"

    def read(self, typed: str) -> JsonValue:
        """Read JSON, or take any other text as it is."""
        try:
            answer: JsonValue = json.loads(typed)
        except ValueError:
            return typed
        return answer


Question: TypeAlias = MessageQuestion | ApprovalQuestion | ToolQuestion
"""Anything that a person is asked."""

Answer: TypeAlias = Callable[[Question], Any | Awaitable[Any]]
"""Takes a question and gives the answer to it: text for a `MessageQuestion`, else what the
question's ``response_schema`` says. None leaves the session waiting, as an `EOFError` does."""


def interrupt_payload(
    asked: Asking, task: str, heard: str, calls: Sequence[ToolCall] = ()
) -> dict[str, Any]:
    """Make what `langgraph.types.interrupt` is given to ask a person for a message."""
    question = MessageQuestion(
        id="",
        speaker=asked.speaker,
        because=asked.because,
        task=task,
        heard=heard,
        calls=tuple(Action(name=call["name"], args=call["args"]) for call in calls),
        empty=asked.empty,
        prompt=_prompt(asked),
    )
    return question.model_dump(mode="json", exclude={"id", "response_schema", "problem"})


def schema_of(empty: Empty) -> Any:  # noqa: ANN401  # a type that pydantic reads
    """Return the type that an answer must fit, by what happens without one."""
    return _SomeText if empty is None else _AnyText


def check_message(question: MessageQuestion, answer: object) -> None:
    """Make sure that an answer fits a question for a message."""
    try:
        TypeAdapter(schema_of(question.empty)).validate_python(answer)
    except ValidationError as error:
        raise describe_misfit(error) from error


def describe_misfit(error: ValidationError) -> AnswerError:
    """Make one clear sentence of why an answer does not fit."""
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(map(str, first["loc"]))
    text = first["msg"].removeprefix("Value error, ")
    where = f"{field}: {text[:1].lower()}{text[1:]}" if field else text
    return AnswerError(f"the answer does not fit, and the question stays open: {where}")


_PROMPTS = {
    Because.TURN: "{speaker}, it is your turn.",
    Because.CALLS: "{speaker}, these tool calls wait. Write a message to interrupt them.",
    Because.TERMINATION: "{speaker}, the task is reported as done. Write a message to continue.",
    Because.MAX_CONSECUTIVE_AUTO_REPLY: "{speaker}, the limit of automatic replies is reached.",
    Because.GUARD: "{speaker}, it is your turn: {why}.",
}
_EMPTY = {
    "auto_reply": "Empty: an automatic reply is sent. ",
    "run": "Empty: the calls run. ",
    "stop": "Empty: the conversation ends. ",
    None: "",
}


def _prompt(asked: Asking) -> str:
    told = _PROMPTS[asked.because].format(speaker=asked.speaker, why=asked.why)
    return f"{told} {_EMPTY[asked.empty]}{EXIT}: leave."


def read_question(interrupt: Interrupt[Any], by: Literal["tool", "agent"]) -> Question:
    """Read a question out of LangGraph's interrupt; if it is not ours, this asks."""
    value, schema = interrupt.value, interrupt.response_schema
    found: dict[str, Any] = {
        "id": interrupt.id,
        "response_schema": schema if isinstance(schema, dict) else {},
    }
    for kind in (MessageQuestion, ApprovalQuestion) if isinstance(value, dict) else ():
        # What is not ours may look like one of these.
        with suppress(ValidationError):
            return kind.model_validate(value | found)
    return ToolQuestion(value=to_jsonable_python(value, fallback=str), by=by, **found)
