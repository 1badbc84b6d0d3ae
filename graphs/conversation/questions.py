"""The questions that a conversation asks people while it waits, as data.

The rules for when a person is asked for a message are in `graphs.rules.turns`, and before tool
calls in `graphs.speakers.call_settings`.
"""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from langgraph.types import Interrupt
from pydantic import Field, JsonValue, PlainValidator, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import to_jsonable_python

from ..common.content import Content, text_of
from ..common.content_input import read_content
from ..common.data import Data
from ..common.errors import AnswerError
from ..common.files import parse_json
from ..common.sanitize import dump_exact_json, escape_invisible
from ..speakers.call_settings import Action

EXIT = "exit"
"""The answer with which a person leaves. Case and surrounding white space are ignored (Agere)."""

DECISION_WORDS: Final = {
    **dict.fromkeys(("yes", "y", "approve"), "approve"),
    **dict.fromkeys(("no", "n", "reject"), "reject"),
}
"""The words that answer a question about a single call, with their decisions."""


class Because(StrEnum):
    """The reason why a person is asked."""

    TURN = "turn"
    """It is the turn of the speaker for whom the person writes."""
    CALLS = "calls"
    """Another speaker has called tools, which have not run yet."""
    TERMINATION = "termination"
    """The newest message is a termination message."""
    MAX_CONSECUTIVE_AUTO_REPLY = "max_consecutive_auto_reply"
    """The maximum number of consecutive automatic replies is reached."""
    GUARD = "guard"
    """A guard found a problem; the prompt names it."""


Empty: TypeAlias = Literal["auto_reply", "run", "stop"] | None
"""The effect of an empty answer: an automatic reply is sent, the tool calls run, or the
conversation ends. None if an answer is required."""


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


class Asking(NamedTuple):
    """A request to ask a person now."""

    speaker: str  # the speaker for whom the person writes
    because: Because  # the reason
    empty: Empty  # the effect of an empty answer
    why: str = ""  # the problem that a guard found

    @property
    def prompt(self) -> str:
        """Return the question in a sentence."""
        told = _PROMPTS[self.because].format(speaker=self.speaker, why=self.why)
        return f"{told} {_EMPTY[self.empty]}Enter {EXIT} to leave."


def _read_message(given: object) -> Content:
    if not isinstance(given, str | list):
        raise ValueError(f"it must be text, not {type(given).__name__}")
    return read_content(given, "message")


def _read_full_message(given: object) -> Content:
    content = _read_message(given)
    if not text_of(content).strip():
        raise ValueError("it must not be empty")
    return content


def is_exit(answer: object) -> bool:
    """Return whether an answer asks to leave the conversation."""
    return isinstance(answer, str) and answer.strip().casefold() == EXIT


class _Question(Data):
    """Base class of all questions."""

    id: str
    """The id under which the question is answered: LangGraph's id of the interrupt."""
    response_schema: dict[str, Any] = Field(default_factory=dict)
    """The JSON schema of an answer. Empty if any answer fits."""
    problem: str | None = None
    """The error in the previous answer if that answer did not fit the question, otherwise None."""

    def summary(self) -> str:
        """Return the question as text for people."""
        raise NotImplementedError

    def sample(self) -> str:
        """Return an example of an answer, or a placeholder for one."""
        return "JSON"

    def read(self, typed: str) -> JsonValue:
        """Parse an answer that was typed.

        Args:
            typed: The text.

        Returns:
            The answer, of the type that the question expects.

        Raises:
            AnswerError: The text can't be parsed.
        """
        raise NotImplementedError


class MessageQuestion(_Question):
    """A question for a speaker's next message. The answer is text, or a list of text and files."""

    kind: Literal["message"] = "message"
    """The kind of question."""
    speaker: str
    """The speaker for whom the person writes."""
    because: Because
    """The reason for the question."""
    task: str = ""
    """The speaker's task. Empty if the person sets the topic."""
    heard: str = ""
    """The messages that the speaker has heard since it last spoke."""
    calls: tuple[Action, ...] = ()
    """The pending tool calls of another speaker, if any. A text answer interrupts them."""
    empty: Empty = None
    """The effect of an empty answer: an automatic reply is sent, the tool calls run, or the
    conversation ends. None if an answer is required."""
    prompt: str
    """The question in a sentence."""

    def summary(self) -> str:
        """Return the question as text."""
        return self.prompt

    def sample(self) -> str:
        """Return a placeholder for a text."""
        return "TEXT"

    def read(self, typed: str) -> JsonValue:
        """Return the text unchanged."""
        return typed


class ApprovalQuestion(_Question):
    """A question whether tools may run, answered as in LangChain's human-in-the-loop."""

    kind: Literal["approval"] = "approval"
    """The kind of question."""
    action_requests: tuple[dict[str, Any], ...]
    """The calls, each with ``name``, ``args`` and ``description``."""
    review_configs: tuple[dict[str, Any], ...]
    """For each call, its ``action_name`` and ``allowed_decisions``."""

    def summary(self) -> str:
        """Return the descriptions of the calls, and each call that its description does not quote.

        Invisible characters are escaped.
        """
        return " ".join(map(_describe_call, self.action_requests))

    def allowed(self, call: dict[str, Any]) -> list[str]:
        """Return the decisions allowed for one of the calls."""
        for review in self.review_configs:
            if review.get("action_name") == call.get("name"):
                return list(review.get("allowed_decisions", ()))
        return []

    def sample(self) -> str:
        """Return an answer that approves all calls, if that is allowed."""
        if not all("approve" in self.allowed(call) for call in self.action_requests):
            return "JSON"
        return json.dumps({"decisions": [{"type": "approve"} for _ in self.action_requests]})

    def read(self, typed: str) -> JsonValue:
        """Parse JSON, a word that decides on a single call, or the word with which one leaves.

        Raises:
            AnswerError: The text is none of these.
        """
        is_single = len(self.action_requests) == 1
        if is_exit(typed) or (is_single and typed.strip().casefold() in DECISION_WORDS):
            return typed
        try:
            answer: JsonValue = parse_json(typed)
        except ValueError as error:
            raise AnswerError(
                f"the answer is not JSON ({error}), and the question stays open; write "
                f"{'yes, no, or JSON' if is_single else 'JSON'}, for example, {self.sample()}"
            ) from error
        return answer


def _describe_call(call: dict[str, Any]) -> str:
    described = escape_invisible(str(call.get("description") or ""), keep="\n")
    name, arguments = str(call.get("name")), dump_exact_json(call.get("args"))
    shown = f"{escape_invisible(name)} with {arguments}"
    return described if shown in described else f"{described} ({shown})".lstrip()


class ToolQuestion(_Question):
    """A question from a tool or a user's agent, asked by `langgraph.types.interrupt`."""

    kind: Literal["tool"] = "tool"
    """The kind of question."""
    value: JsonValue
    """The question, as the tool or agent passed it to ``interrupt``."""
    by: Literal["tool", "agent"] = "tool"
    """The asker: a tool or an agent."""

    def summary(self) -> str:
        """Return the question as JSON; invisible characters are escaped."""
        who = "A tool" if self.by == "tool" else "An agent"
        return f"{who} asks: {dump_exact_json(self.value)}"

    def read(self, typed: str) -> JsonValue:
        """Parse JSON, or return any other text unchanged."""
        try:
            answer: JsonValue = parse_json(typed)
        except ValueError:
            return typed
        return answer


Question: TypeAlias = MessageQuestion | ApprovalQuestion | ToolQuestion
"""Any question to a person."""

Answer: TypeAlias = Callable[[Question], Any | Awaitable[Any]]
"""A function that receives a question and returns its answer: text for a `MessageQuestion`,
otherwise a value that fits the question's ``response_schema``. If it returns None or raises
`EOFError`, the session keeps waiting."""


def schema_of(empty: Empty) -> Any:  # noqa: ANN401  # a type that pydantic reads
    """Return the type that an answer must fit, depending on the effect of an empty answer."""
    # Forms of clients show a field for text. A list of content blocks is accepted, too.
    schema = {"type": "string", "description": "The message, or exit to leave the conversation."}
    if empty is None:
        full = WithJsonSchema({**schema, "pattern": r"\S"})
        return Annotated[Content, PlainValidator(_read_full_message), full]
    schema["description"] = "The message. The question explains an empty message and exit."
    return Annotated[Content, PlainValidator(_read_message), WithJsonSchema(schema)]


def check_message(question: MessageQuestion, answer: object) -> None:
    """Check that an answer fits a question for a message.

    Raises:
        AnswerError: It does not fit.
    """
    try:
        TypeAdapter(schema_of(question.empty)).validate_python(answer)
    except ValidationError as error:
        raise describe_misfit(error) from error


def describe_misfit(error: ValidationError) -> AnswerError:
    """Build an error that explains in one sentence why an answer does not fit."""
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(map(str, first["loc"]))
    text = first["msg"].removeprefix("Value error, ")
    fault = f"{field}: {text[:1].lower()}{text[1:]}" if field else text
    return AnswerError(f"the answer does not fit, and the question stays open: {fault}")


def read_question(interrupt: Interrupt[Any], by: Literal["tool", "agent"]) -> Question:
    """Convert LangGraph's interrupt to a question; an unknown payload becomes a `ToolQuestion`."""
    value, schema = interrupt.value, interrupt.response_schema
    found: dict[str, Any] = {
        "id": interrupt.id,
        "response_schema": schema if isinstance(schema, dict) else {},
    }
    for kind in (MessageQuestion, ApprovalQuestion) if isinstance(value, dict) else ():
        # A tool's payload may look like one of these questions.
        with suppress(ValidationError):
            return kind.model_validate(value | found)
    return ToolQuestion(value=to_jsonable_python(value, fallback=str), by=by, **found)
