"""OpenTelemetry spans of a conversation, made by the instrumentation of LangChain only."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from openinference.instrumentation import TraceConfig
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from duologue.graphs import (
    Conversation,
    ModelError,
    Session,
    aconverse,
    chat,
    converse,
    list_sessions,
    stream,
)
from duologue.nodes.testing import Call, Prompt, Reply, ScriptedChatModel, ScriptedToolCall

SPEC = Conversation(
    task="Find out how many days two weeks have.",
    speakers=[{"name": "Ann"}, {"name": "Ben", "tools": ["calculator"]}],
    judge={"criteria": ["A number is named."], "form": "lines"},
    end_chat={"mode": "end_chat_after_first_completion", "allow_unanswered_end": True},
)
TREE = [
    "duologue",
    "duologue/task_specification",
    "duologue/user_agent",
    "duologue/user_agent/Ann speaks",
    "duologue/completion_judge",
    "duologue/completion_judge/Judge judges",
    "duologue/assistant_agent",
    "duologue/assistant_agent/Ben speaks",
    "duologue/tool_executor",
    "duologue/tool_executor/call_tool",
    "duologue/tool_executor/call_tool/calculator",
    "duologue/assistant_agent",
    "duologue/assistant_agent/Ben speaks",
    "duologue/completion_judge",
    "duologue/completion_judge/Judge judges",
]


def script(prompt: Prompt, call: Call) -> Reply | str:
    if call.purpose == "verdict":
        return "1: met" if "Fourteen" in str(prompt) else "1: not met"
    if call.speaker == "Ann":
        return "Multiply."
    if prompt[-1]["role"] == "tool":
        return "Fourteen."
    asked = ScriptedToolCall(name="calculator", args={"expression": "2 * 7"}, id="1")
    return Reply(tool_calls=[asked])


class Traced:
    """Recorded spans, and the tracer that makes them."""

    def __init__(self, config: TraceConfig) -> None:
        self.kept = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.kept))
        LangChainInstrumentor().instrument(tracer_provider=self.provider, config=config)

    def traces(self) -> list[list[ReadableSpan]]:
        """Return the spans of each trace, in the order of their starts."""
        found: dict[int, list[ReadableSpan]] = {}
        for span in sorted(self.kept.get_finished_spans(), key=lambda span: span.start_time or 0):
            found.setdefault(span.context.trace_id, []).append(span)
        return [*found.values()]


@pytest.fixture
def traced(request: pytest.FixtureRequest) -> Iterator[Traced]:
    yield Traced(getattr(request, "param", TraceConfig()))
    LangChainInstrumentor().uninstrument()
    for row in list_sessions(store="memory:traced"):
        Session(row.session, store="memory:traced").delete()


def tree(trace: Sequence[ReadableSpan]) -> list[str]:
    """Return the path of each span of a trace."""
    names: dict[int | None, str] = {None: ""}
    for span in trace:
        parent = names[span.parent.span_id if span.parent else None]
        names[span.context.span_id] = f"{parent}/{span.name}".removeprefix("/")
    return [*names.values()][1:]


def of(span: ReadableSpan, name: str) -> Any:  # noqa: ANN401
    return (span.attributes or {}).get(name)


def about(span: ReadableSpan) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(of(span, "metadata"))
    return found


@pytest.mark.parametrize("streamed", [False, True])
def test_the_spans_are_what_was_done_for_whom_and_why_it_ended(
    *, streamed: bool, traced: Traced
) -> None:
    model = ScriptedChatModel(script)
    if streamed:
        assert [*stream(SPEC, session="s1", store="memory:traced", model=model)]
    else:
        converse(SPEC, session="s1", store="memory:traced", model=model)
    (trace,) = traced.traces()
    assert tree(trace) == TREE
    assert {span.status.status_code.name for span in trace} == {"OK"}
    assert {of(span, "session.id") for span in trace} == {"s1"}
    told = {span.name: about(span).get("speaker") for span in trace}
    assert {name: who for name, who in told.items() if who} == {
        "Ann speaks": "Ann",
        "Ben speaks": "Ben",
        "calculator": "Ben",
    }
    outcome = json.loads(of(trace[0], "output.value"))["outcome"]
    assert outcome["reasons"] == ["completed"]
    assert outcome["by"] is None
    (used,) = outcome["usage"].values()
    for kind, counted in (("prompt", "input_tokens"), ("completion", "output_tokens")):
        assert sum(of(span, f"llm.token_count.{kind}") or 0 for span in trace) == used[counted]


@pytest.mark.exhaustive
async def test_each_of_many_at_once_has_its_own_trace_in_the_span_it_was_begun_in(
    traced: Traced,
) -> None:
    tracer = traced.provider.get_tracer("a server")

    async def serve(session: str) -> None:
        with tracer.start_as_current_span("request"):
            model = ScriptedChatModel(script)
            await aconverse(SPEC, session=session, store="memory:traced", model=model)

    sessions = [f"s{number}" for number in range(5)]
    await asyncio.gather(*map(serve, sessions))
    found = [{of(span, "session.id") for span in trace[1:]} for trace in traced.traces()]
    assert sorted(map(sorted, found)) == sorted([one] for one in sessions)
    for trace in traced.traces():
        assert tree(trace) == ["request", *(f"request/{one}" for one in TREE)]


def test_a_question_to_a_person_is_no_error_and_a_failing_model_is_one(traced: Traced) -> None:
    model = ScriptedChatModel([ModelError("It is gone.")])
    converse(chat(), session="s1", store="memory:traced", model=model)
    with pytest.raises(ModelError):
        converse(chat(), session="s1", store="memory:traced", model=model, message="Hello?")
    asked, asked_again, failed = traced.traces()
    assert {span.status.status_code.name for span in (*asked, *asked_again)} == {"OK"}
    assert {of(span, "session.id") for span in (*asked, *asked_again, *failed)} == {"s1"}
    ended = {span.name: span.status.status_code.name for span in failed}
    assert ended == {
        "duologue": "ERROR",
        "user_agent": "OK",
        "assistant_agent": "ERROR",
        "Assistant speaks": "ERROR",
    }


HIDDEN = TraceConfig(hide_inputs=True, hide_outputs=True)


@pytest.mark.parametrize("traced", [HIDDEN], indirect=True)
def test_what_was_said_can_be_left_out_but_what_people_are_asked_is_an_event(
    traced: Traced,
) -> None:
    converse(SPEC, session="s1", store="memory:traced", model=ScriptedChatModel(script))
    (trace,) = traced.traces()
    assert tree(trace) == TREE
    told = " ".join(span.to_json() for span in trace)
    for text in ("Multiply.", "Fourteen", "2 * 7", "two weeks", "A number is named"):
        assert text not in told
    traced.kept.clear()
    greeted = ScriptedChatModel(["Good day."])
    converse(chat(), session="s2", store="memory:traced", model=greeted, message="Hello?")
    spans = [span for trace in traced.traces() for span in trace]
    assert "Good day." in str([event.attributes for span in spans for event in span.events])
    assert "Good day." not in str([(span.attributes, span.status.description) for span in spans])


def test_the_call_of_a_judge_after_the_end_names_its_session(traced: Traced) -> None:
    model = ScriptedChatModel(script)
    result = converse(SPEC, session="s", store="memory:traced", model=model)
    judge = ScriptedChatModel(lambda _: '{"criterion_1": "met"}')
    result.session.judge(["A number is named."], model=judge)
    *_, judged = traced.traces()
    assert tree(judged)[0] == "Judge judges"
    assert {of(span, "session.id") for span in judged} == {"s"}
