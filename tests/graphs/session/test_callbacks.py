"""LangChain's callback handlers receive the starts, ends and errors of a run (G7)."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool

from duologue.graphs import SpecError, aconverse, converse, list_sessions, stream
from duologue.nodes.testing import Line as Said, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook
from support.shape_help import never, talk

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


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "callbacks: must be a list of LangChain callback handlers, not int"),
        (
            BaseCallbackHandler(),
            "callbacks: must be a list of LangChain callback handlers, not BaseCallbackHandler",
        ),
        ([print], "callbacks.0: must be a LangChain callback handler, not builtin_function_or_me"),
        (
            [BaseCallbackHandler(), BaseCallbackHandler],
            "callbacks.1: must be a LangChain callback handler, not the class BaseCallbackHandler",
        ),
    ],
)
def test_what_is_no_handler_is_refused_and_nothing_is_stored(given: Any, words: str) -> None:  # noqa: ANN401
    store = f"memory:{uuid4().hex}"
    with pytest.raises(TypeError) as caught:
        converse(talk("Ann", "Bob"), model=never(), store=store, callbacks=given)
    assert str(caught.value).startswith(words)
    assert list_sessions(store=store) == []


def test_a_durability_that_there_is_not_is_refused() -> None:
    unknown: Any = "exit"
    with pytest.raises(TypeError, match="durability: must be 'sync' or 'async', not 'exit'"):
        converse(talk("Ann", "Bob"), model=never(), store="memory:", durability=unknown)


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
