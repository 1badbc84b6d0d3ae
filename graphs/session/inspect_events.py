"""A session as messages, events and usage of Inspect, the evaluation framework.

This module imports ``inspect_ai``, so only the export to this format imports it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple

from inspect_ai.event import (
    ErrorEvent,
    Event,
    InfoEvent,
    ModelEvent,
    SampleLimitEvent,
    SpanBeginEvent,
    SpanEndEvent,
    ToolEvent,
)
from inspect_ai.log import EvalError, EvalSampleLimit
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Content,
    ContentAudio,
    ContentDocument,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
    StopReason,
)
from inspect_ai.tool import ToolCall, ToolCallError
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.messages.tool import ToolCall as LangChainToolCall

from ..conversation.usage import Usage, add_usage
from ..ends.end import lone
from ..ends.end_chat import Reason
from ..ends.limits import Limit
from ..log.messages import metadata, storable, thought_text
from ..log.metadata import (
    JudgeQuestion,
    MessageMetadata,
    ModelOutput as ModelMessage,
    PendingAnswer,
    Reflection,
    SpeakerChoice,
    SpecifiedTask,
    Summary,
    ToolResult,
    verdict_of,
)
from ..log.transcript import trajectory
from ..speakers.reply_parts import StopCause, calls_of
from .stored_session import StoredSession

MODEL: Final = "none/none"
"""The model of a log. Inspect creates it to score the log, so it must need neither a package nor a
key. The models of a session are in its events and its usage.
"""

_LIMITS: Final[
    Mapping[Reason, Literal["message", "token", "cost", "time", "turn", "custom", "operator"]]
] = {
    Reason.MAX_MESSAGES: "message",
    Reason.MAX_TOKENS: "token",
    Reason.MAX_COST: "cost",
    Reason.MAX_SECONDS: "time",
    # A turn of Inspect is a model call.
    Reason.MAX_CALLS: "turn",
    Reason.MAX_ITERATIONS: "custom",
    Reason.STOP_REQUESTED: "operator",
}
"""The caps that are limits in Inspect, with the limit's type."""

_CALLERS: Final[Mapping[type[MessageMetadata], str]] = {
    Reflection: "Judge",
    SpeakerChoice: "Moderator",
    SpecifiedTask: "Task specification",
}
"""The names of the callers that are not speakers."""

_STOPS: Final[Mapping[StopCause, StopReason]] = {
    StopCause.LENGTH: "max_tokens",
    StopCause.THOUGHT: "max_tokens",
    StopCause.FILTER: "content_filter",
    StopCause.PROMPT: "content_filter",
    StopCause.REFUSAL: "content_filter",
}
"""Inspect's stop reason for each cause that has one."""


@dataclass(frozen=True)
class SampleFacts:
    """The facts about a sample that its session does not contain."""

    id: str | int
    """The sample's id."""
    ended_at: datetime
    """The time when the session last changed, in UTC."""
    epoch: int = 1
    """The number of the trial, from 1."""
    target: str = ""
    """The expected result. Empty if there is none."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Further facts, as plain values."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The scores by name."""
    seconds: float = 0
    """Running time in seconds."""
    error: str | None = None
    """The error that stopped the session, as a sentence. None if there is none."""


class _Answer(NamedTuple):
    """An answered model call."""

    at: int
    """The index of the answer in the log."""
    message: AnyMessage
    """The answer."""
    about: MessageMetadata
    """The metadata of the answer."""
    model: str
    """The name of the model, as the usage names it."""
    usage: Usage | None
    """The usage of the call. None if the log does not contain it, as for a separate judge."""


class SessionWriter:
    """The conversion of one session. Equal messages of several prompts become one object.

    Args:
        result: The session.
        facts: The facts that the session does not contain.
    """

    def __init__(self, result: StoredSession, facts: SampleFacts) -> None:
        self._result = result
        self._facts = facts
        self._hash = hash_of(result.session_id)
        self._known: dict[str, ChatMessage] = {}
        self._count = 0
        self._span: str | None = None
        # A session does not store the times of its messages.
        self._time = facts.ended_at - timedelta(seconds=facts.seconds)

    @cached_property
    def _answers(self) -> Mapping[int, _Answer]:
        """The answered model calls, by the index of the answer in the log."""
        found = ((at, one, metadata(one)) for at, one in enumerate(self._result.messages))
        return {
            at: self._answer(at, one, about) for at, one, about in found if _is_answer(one, about)
        }

    def _answer(self, at: int, message: AnyMessage, about: MessageMetadata) -> _Answer:
        model, used = self._model_of(message, about), None
        if isinstance(message, AIMessage) and message.usage_metadata is not None:
            used = Usage().plus(message, self._result.conversation.prices.get(model))
        return _Answer(at, message, about, storable(model), used)

    def _model_of(self, message: AnyMessage, about: MessageMetadata) -> str:
        """Return the name of the model that answered, as the usage names it."""
        ended, conversation = self._result.outcome, self._result.conversation
        known = [] if ended is None else [*ended.usage]
        is_known = about.speaker in conversation.names
        named = conversation.speaker(about.speaker or "").model if is_known else None
        likely = [message.response_metadata.get("model_name"), named]
        found = [one for one in likely if isinstance(one, str)]
        sure = [one for one in found if one in known] or (known if len(known) == 1 else found)
        return sure[0] if sure else "unknown"

    @cached_property
    def usage(self) -> dict[str, Usage]:
        """The usage by model. Summed up from the log if the session has not ended."""
        if self._result.outcome is not None:
            return {storable(name): used for name, used in self._result.outcome.usage.items()}
        return _sum_usage((one.model, one.usage) for one in self._answers.values())

    @cached_property
    def usage_by_speaker(self) -> dict[str, Usage]:
        """The usage by speaker."""
        found = self._answers.values()
        return _sum_usage(
            (storable(one.about.speaker), one.usage) for one in found if one.about.speaker
        )

    @property
    def main_model(self) -> str:
        """The model that was called most often."""
        return max(self.usage, key=lambda name: self.usage[name].calls, default=MODEL)

    @cached_property
    def limit(self) -> EvalSampleLimit | None:
        """The cap that ended the session, or None."""
        ended = self._result.outcome
        kind = None if ended is None else _LIMITS.get(ended.reason)
        if ended is None or kind is None:
            return None
        rules = self._result.conversation.end_chat
        limits = [
            float(end.limit)
            for end in lone(rules.when)
            if isinstance(end, Limit) and end.kind == ended.reason.value
        ]
        if ended.reason is Reason.MAX_ITERATIONS:
            limits = [float(rules.max_iterations or 0)]
        return EvalSampleLimit(
            type=kind, limit=min(limits, default=0.0), reason=ended.explanations[0]
        )

    def events(self) -> Iterator[Event]:
        """Yield the events of the sample. The calls of one turn are in a span of its speaker."""
        name: str | None = None
        for at, message in enumerate(self._result.messages):
            about = metadata(message)
            if (answer := self._answers.get(at)) is not None:
                if (caller := _caller(about)) != name:
                    yield from self._end_span()
                    self._span, name = f"{self._hash}-{self._count}", caller
                    yield SpanBeginEvent(id=self._span, name=name, type="agent", **self._common())
                yield self._model_event(answer)
                if (verdict := verdict_of(about)) is not None:
                    yield self._info("verdict", verdict.model_dump(mode="json"))
            elif isinstance(message, ToolMessage) and isinstance(about, ToolResult):
                yield from self._tool_event(message, about)
        yield from self._end_span()
        yield from self._ending()

    def _ending(self) -> Iterator[Event]:
        for later in self._result.later_verdicts:
            yield self._info("later_verdict", later.model_dump(mode="json", exclude={"judge"}))
        ended = self._result.outcome
        steps = [one.model_dump(mode="json") for one in self._result.why()]
        told = {"outcome": None if ended is None else str(ended), "steps": steps}
        yield self._info("why", told)
        if (cap := self.limit) is not None and cap.type != "context":
            text = cap.reason or ""
            yield SampleLimitEvent(type=cap.type, message=text, limit=cap.limit, **self._common())
        if self._facts.error is not None:
            yield ErrorEvent(error=as_error(self._facts.error), **self._common())

    def _end_span(self) -> Iterator[Event]:
        if self._span is not None:
            yield SpanEndEvent(id=self._span, **self._common())
            self._span = None

    def _common(self) -> dict[str, Any]:
        """Return the fields that all events have."""
        self._count += 1
        return {
            "uuid": f"{self._hash}-e{self._count}",
            "span_id": self._span,
            "timestamp": self._time,
            "working_start": 0.0,
        }

    def _info(self, source: str, data: object) -> Event:
        return InfoEvent(source=source, data=as_storable(data), **self._common())

    def _model_event(self, answer: _Answer) -> Event:
        message, about, model = answer.message, answer.about, answer.model
        calls = [_as_call(one) for one in _calls_of(message)]
        text = storable(message.text)
        content: str | list[Content] = text
        if thought := thought_text(about):
            content = [ContentReasoning(reasoning=storable(thought)), ContentText(text=text)]
        said = ChatMessageAssistant(
            id=message.id, content=content, tool_calls=calls or None, model=model, source="generate"
        )
        stop = about.stop if isinstance(about, ModelMessage) else None
        reason: StopReason = "tool_calls" if calls else "stop"
        if stop is not None:
            reason = _STOPS.get(stop.cause, "unknown")
        choice = ChatCompletionChoice(message=said, stop_reason=reason)
        used = None if answer.usage is None else as_usage(answer.usage)
        return ModelEvent(
            model=model,
            role=_caller(about),
            input=[self.message(one) for one in self._prompt(answer)],
            tools=[],
            tool_choice="auto",
            config=GenerateConfig(),
            output=ModelOutput(model=model, choices=[choice], usage=used),
            metadata={"kind": about.kind},
            **self._common(),
        )

    def _prompt(self, answer: _Answer) -> Iterable[Mapping[str, Any]]:
        """Return what the model knew: its speaker's view, or the transcript and the question."""
        result, before = self._result, self._result.messages[: answer.at]
        conversation, name = result.conversation, answer.about.speaker
        if name in conversation.names:
            system = conversation.system_prompt(
                conversation.speaker(name or ""), result.specified_task
            )
            front = [{"role": "system", "content": system}] if system else []
            return [*front, *trajectory(conversation, before, result.specified_task, name)]
        said = trajectory(conversation, before, conversation.task, None)
        last = before[-1] if before else None
        is_asked = last is not None and isinstance(metadata(last), JudgeQuestion)
        return [*said, {"role": "user", "content": last.text}] if last and is_asked else said

    def _tool_event(self, result: ToolMessage, about: ToolResult) -> Iterator[Event]:
        call = self._calls.get(result.tool_call_id)
        if call is not None:
            text = storable(result.text)
            failed = about.failure is not None
            yield ToolEvent(
                id=call.id,
                function=about.tool or call.function,
                arguments=as_storable(about.arguments or call.arguments),
                result=text,
                error=ToolCallError("unknown", text) if failed else None,
                **self._common(),
            )

    @cached_property
    def _calls(self) -> Mapping[str, ToolCall]:
        found = (call for one in self._answers.values() for call in _calls_of(one.message))
        return {call.id: call for call in map(_as_call, found)}

    def message(self, given: Mapping[str, Any], name: str | None = None) -> ChatMessage:
        """Convert a message in OpenAI's form.

        Args:
            given: The message.
            name: The name of the message in its session. If None, equal messages are one object.
        """
        key = hash_of(json.dumps(given, sort_keys=True))
        if name is None and key in self._known:
            return self._known[key]
        here = key if name is None else f"{self._hash}-{name}"
        made = _as_chat_message(as_storable(given), here)
        if name is None:
            self._known[key] = made
        return made


def _is_answer(message: AnyMessage, about: MessageMetadata) -> bool:
    """Return whether a message of the log is the answer of a model."""
    if isinstance(about, PendingAnswer):
        # The speaker's message contains the same answer.
        return False
    if isinstance(message, AIMessage) and message.usage_metadata is not None:
        return True
    # The answers of a separate judge and a moderator are stored as notes.
    return isinstance(about, Reflection | SpeakerChoice | SpecifiedTask | Summary)


def _caller(about: MessageMetadata) -> str:
    """Return the speaker of a call, or the part of the conversation that made it."""
    return storable(about.speaker) if about.speaker else _CALLERS.get(type(about), "Conversation")


def _calls_of(message: AnyMessage) -> list[LangChainToolCall]:
    return calls_of(message) if isinstance(message, AIMessage) else []


def _sum_usage(parts: Iterable[tuple[str, Usage | None]]) -> dict[str, Usage]:
    sums: dict[str, Usage] = {}
    for name, used in parts:
        if used is not None:
            sums[name] = add_usage([sums[name], used] if name in sums else [used])
    return sums


def _as_chat_message(given: Mapping[str, Any], name: str) -> ChatMessage:
    role, text = given["role"], given.get("content") or ""
    if not isinstance(text, str):
        text = [_as_part(one) for one in text]
    who = {"speaker": given["name"]} if given.get("name") else None
    if role == "system":
        return ChatMessageSystem(id=name, content=text, metadata=who)
    if role == "user":
        return ChatMessageUser(id=name, content=text, metadata=who)
    if role == "tool":
        return ChatMessageTool(id=name, content=text, tool_call_id=given["tool_call_id"])
    calls = [
        ToolCall(
            id=one["id"],
            function=one["function"]["name"],
            arguments=json.loads(one["function"]["arguments"]),
        )
        for one in given.get("tool_calls", ())
    ]
    return ChatMessageAssistant(id=name, content=text, tool_calls=calls or None, metadata=who)


def _as_part(part: Mapping[str, Any]) -> Content:
    match part:
        case {"type": "image_url", "image_url": {"url": url}}:
            return ContentImage(image=url)
        case {"type": "input_audio", "input_audio": {"data": data, "format": form}}:
            return ContentAudio(audio=f"data:audio/{form};base64,{data}", format=form)
        case {"type": "file", "file": {"file_data": data, "filename": name}}:
            return ContentDocument(document=data, filename=name)
    return ContentText(text=part["text"])


def _as_call(call: LangChainToolCall) -> ToolCall:
    name = storable(call["name"])
    return ToolCall(id=call["id"] or name, function=name, arguments=as_storable(call["args"]))


def as_usage(used: Usage) -> ModelUsage:
    """Return usage in Inspect's form, in which the input does not include a cache's tokens."""
    return ModelUsage(
        input_tokens=used.input_tokens - used.cached_tokens - used.cache_write_tokens,
        output_tokens=used.output_tokens,
        total_tokens=used.tokens,
        input_tokens_cache_read=used.cached_tokens or None,
        input_tokens_cache_write=used.cache_write_tokens or None,
        total_cost=used.cost,
    )


def as_error(text: str) -> EvalError:
    """Return an error of a sample. There is no traceback."""
    return EvalError(message=storable(text), traceback="", traceback_ansi="")


def as_storable(given: object) -> Any:  # noqa: ANN401  # plain values of any shape
    """Return plain values whose texts can all be encoded."""
    return json.loads(storable(json.dumps(given, ensure_ascii=False, default=str)))


def hash_of(*parts: str) -> str:
    """Return an id that is made from texts."""
    return sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:22]
