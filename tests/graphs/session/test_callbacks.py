"""LangChain's callback handlers receive the starts, ends and errors of a run (G7)."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool
from openinference.instrumentation import TraceConfig
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from duologue import (
    Conversation,
    Hook,
    ModelError,
    Session,
    SpecError,
    aconverse,
    chat,
    converse,
    list_sessions,
    stream,
)
from duologue.nodes.testing import (
    Call,
    Line as Said,
    Prompt,
    Reply,
    ScriptedChatModel,
    ScriptedToolCall,
)
from support.shape_help import never, talk
from support.tables import read_rows

ALL = [f"on_{what}_{how}" for what in ("chain", "tool") for how in ("start", "end", "error")]
ALL += ["on_chat_model_start", "on_llm_end", "on_llm_error", "on_llm_new_token"]


def handler(form: str, told: list[tuple[str, str]]) -> BaseCallbackHandler:
    """Return a handler that records each event with the name of its source."""

    def noting(event: str) -> Callable[..., Any]:
        def note(self: object, *given: Any, **also: Any) -> None:
            serialized = given[0] if event == "on_tool_start" else {}
            told.append((event, str(also.get("name") or serialized.get("name") or "")))

        async def note_later(self: object, *given: Any, **also: Any) -> None:
            await asyncio.sleep(0)
            note(self, *given, **also)

        return note if form == "sync" else note_later

    base = BaseCallbackHandler if form == "sync" else AsyncCallbackHandler
    made: type[BaseCallbackHandler] = type("Noting", (base,), {one: noting(one) for one in ALL})
    return made()


def adding() -> BaseTool:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        if a > 8:
            raise OSError("too much")
        return a + b

    return add


def calling(a: int) -> Reply:
    return Reply(tool_calls=[ScriptedToolCall(name="add", args={"a": a, "b": 1}, id="c1")])


SPEC = talk({"name": "Ann", "tools": ["add"], "hooks": ["h"]}, "Bob")


def run(how: str, script: list[Said], one: BaseCallbackHandler, hook: Hook) -> None:
    options: Any = {
        "model": ScriptedChatModel(script=script),
        "store": f"memory:{uuid4().hex}",
        "callbacks": [one],
        "tools": [adding()],
        "hooks": {"h": hook},
    }
    if how == "stream":
        list(stream(SPEC, **options))
    elif how == "aconverse":
        asyncio.run(aconverse(SPEC, **options))
    else:
        converse(SPEC, **options)


@pytest.mark.parametrize("form", ["sync", "async"])
@pytest.mark.parametrize("how", ["converse", "aconverse", "stream"])
def test_g7_handlers_are_told_of_each_start_and_end(how: str, form: str) -> None:
    told: list[tuple[str, str]] = []
    run(how, [calling(1), "Two.", "Good."], handler(form, told), Hook())
    events = [event for event, _ in told]
    assert events.count("on_chat_model_start") == events.count("on_llm_end") == 3
    assert [name for event, name in told if event == "on_tool_start"] == ["add"]
    assert events.count("on_tool_end") == 1
    assert not [event for event in events if event.endswith("error")]
    begun = [name for event, name in told if event == "on_chain_start"]
    assert {"task_specification", "user_agent", "tool_executor", "assistant_agent"} <= {*begun}
    assert events.count("on_chain_end") == len(begun)
    # The events of the run itself enclose all others.
    assert (told[0][1], events[-1]) == (begun[0], "on_chain_end")
    assert ("on_llm_new_token" in events) is (how == "stream")


@pytest.mark.parametrize("form", ["sync", "async"])
@pytest.mark.parametrize("how", ["converse", "aconverse", "stream"])
def test_g7_handlers_are_told_of_each_error(how: str, form: str) -> None:
    """The errors of a tool, which the model sees, of a model, and of a hook are reported."""
    told: list[tuple[str, str]] = []
    run(how, [calling(9), "Oh.", "Good."], handler(form, told), Hook())
    assert [event for event, _ in told if event.endswith("error")] == ["on_tool_error"]

    told.clear()
    with pytest.raises(Exception, match="400"):
        run(how, [Reply(error=400)], handler(form, told), Hook())
    errors = [event for event, _ in told if event.endswith("error")]
    assert errors[0] == "on_llm_error"
    assert {*errors[1:]} == {"on_chain_error"}

    def fails(turn: object, reply: AIMessage) -> None:
        raise OSError("no luck")

    told.clear()
    with pytest.raises(SpecError, match="no luck"):
        run(how, ["Oh."], handler(form, told), Hook(after_speaker=fails))
    errors = [event for event, _ in told if event.endswith("error")]
    assert {*errors} == {"on_chain_error"}


LIST = "callbacks: must be a list of LangChain callback handlers, not"
HANDLER = "must be a LangChain callback handler, not"


@pytest.mark.parametrize(
    ("option", "given", "words"),
    [
        ("callbacks", 3, f"{LIST} int"),
        ("callbacks", BaseCallbackHandler(), f"{LIST} BaseCallbackHandler"),
        ("callbacks", [print], f"callbacks.0: {HANDLER} builtin_function_or_me"),
        (
            "callbacks",
            [BaseCallbackHandler(), BaseCallbackHandler],
            f"callbacks.1: {HANDLER} the class BaseCallbackHandler",
        ),
        ("durability", "exit", "durability: must be 'sync' or 'async', not 'exit'"),
    ],
)
def test_a_wrong_option_is_refused_and_nothing_is_stored(
    option: str,
    given: Any,  # noqa: ANN401
    words: str,
) -> None:
    store = f"memory:{uuid4().hex}"
    with pytest.raises(TypeError) as caught:
        converse(talk("Ann", "Bob"), model=never(), store=store, **{option: given})
    assert str(caught.value).startswith(words)
    assert list_sessions(store=store) == []


def test_a_run_that_gives_nothing_until_its_end_logs_that_it_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = ScriptedChatModel(script=["A secret.", "Well."])
    with caplog.at_level("INFO", logger="duologue"):
        converse(talk("Ann", "Bob"), model=model, store="memory:logged")
    lines = [record.getMessage() for record in caplog.records if record.name == "duologue"]
    assert [line.partition(" (")[0] for line in lines] == [
        "Ann said 9 characters",
        "Bob said 5 characters",
    ]


# OpenTelemetry spans of a conversation, made by the instrumentation of LangChain only

TRACED = Conversation(
    task="Find out how many days two weeks have.",
    speakers=[{"name": "Ann"}, {"name": "Ben", "tools": ["calculator"]}],
    judge={"criteria": ["A number is named."], "form": "lines"},
    end_chat={"mode": "end_chat_after_first_completion", "allow_unanswered_end": True},
)
TREE: list[str] = read_rows(__file__, "tree_of_spans")


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
        assert [*stream(TRACED, session="s1", store="memory:traced", model=model)]
    else:
        converse(TRACED, session="s1", store="memory:traced", model=model)
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
            await aconverse(TRACED, session=session, store="memory:traced", model=model)

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
    converse(TRACED, session="s1", store="memory:traced", model=ScriptedChatModel(script))
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
    result = converse(TRACED, session="s", store="memory:traced", model=model)
    judge = ScriptedChatModel(lambda _: '{"criterion_1": "met"}')
    result.session.judge(["A number is named."], model=judge)
    *_, judged = traced.traces()
    assert tree(judged)[0] == "Judge judges"
    assert {of(span, "session.id") for span in judged} == {"s"}
