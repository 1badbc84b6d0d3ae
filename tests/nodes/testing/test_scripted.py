"""The scripted model: transcripts, streams, tools, structured output, failures, records."""

import asyncio
import copy
from concurrent.futures import ThreadPoolExecutor
from typing import get_args
from unittest.mock import Mock

import openai
import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessageChunk, HumanMessage
from pydantic import BaseModel, ValidationError

from duologue.graphs import Conversation, converse, stream
from duologue.nodes.testing import (
    Line,
    Prompt,
    Purpose,
    Reply,
    Script,
    ScriptedChatModel,
    ScriptExhaustedError,
)


class Verdict(BaseModel):
    """A verdict on the work."""

    done: bool


CALL = {"name": "add", "args": {"a": 1}, "id": "c1"}
BROKEN = {"name": "add", "args": "{a", "id": "c2"}


def add(a: int) -> int:
    """Adds one."""
    return a + 1


async def test_answers_in_order_in_all_four_ways() -> None:
    model = ScriptedChatModel(script=["one", Reply(text="two"), "three here", {"é": 4}])
    assert model.invoke("a").content == "one"
    assert (await model.ainvoke("b")).content == "two"
    assert "".join(str(c.content) for c in model.stream("c")) == "three here"
    assert "".join([str(c.content) async for c in model.astream("d")]) == '{"é": 4}'
    assert [call.prompt[-1]["content"] for call in model.calls] == ["a", "b", "c", "d"]


def test_the_words_are_the_usage() -> None:
    reply = ScriptedChatModel(["five words are in here"]).invoke([("system", "a b"), ("user", "c")])
    assert reply.usage_metadata == {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8}


def test_streams_by_words_or_by_the_given_chunks() -> None:
    model = ScriptedChatModel(["one  two\nthree", Reply(text="abc", chunks=("a", "bc"))])
    first, second = ([c.content for c in model.stream("x") if c.content] for _ in range(2))
    assert first == ["one  ", "two\n", "three"]
    assert second == ["a", "bc"]


def test_tool_calls_whole_and_streamed() -> None:
    model = ScriptedChatModel([Reply(tool_calls=[CALL, BROKEN]), Reply(tool_calls=[CALL])])
    whole = model.invoke("x")
    assert whole.tool_calls == [{**CALL, "type": "tool_call"}]
    assert [bad["args"] for bad in whole.invalid_tool_calls] == ["{a"]
    assert whole.response_metadata["finish_reason"] == "tool_calls"
    joined: BaseMessageChunk | None = None
    for chunk in model.stream("x"):
        joined = chunk if joined is None else joined + chunk
    assert isinstance(joined, AIMessage)
    assert joined.tool_calls == [{**CALL, "type": "tool_call"}]


def test_records_parameters_tools_and_schema_through_bound_models() -> None:
    model = ScriptedChatModel(script=["x", "x", '{"done": true}'])
    model.bind(temperature=0.3, stop=["END"]).invoke("a")
    model.bind_tools([add], tool_choice="any").invoke("b")
    model.with_structured_output(Verdict, method="json_schema").invoke("c")
    plain, tooled, shaped = model.calls
    assert plain.kwargs == {"temperature": 0.3, "stop": ["END"]}
    assert plain.schema is None
    assert [tool["function"]["name"] for tool in tooled.tools] == ["add"]
    assert tooled.kwargs == {"tool_choice": "any"}
    assert shaped.schema is not None
    assert shaped.schema["properties"].keys() == {"done"}
    assert shaped.messages[0].content == "c"


def test_copies_play_on_and_record_in_the_same_place() -> None:
    model = ScriptedChatModel(["one", "two", "three"])
    copies = [model, copy.deepcopy(model), model.model_copy(deep=True)]
    assert [m.invoke("x").content for m in copies] == ["one", "two", "three"]
    assert len(model.calls) == 3


@pytest.mark.parametrize("schema", [Verdict, Verdict.model_json_schema()])
def test_structured_output_parses_or_says_why_not(schema: type | dict[str, object]) -> None:
    model = ScriptedChatModel(script=[Verdict(done=True), "no", "no", Reply(refusal="never")])
    shaped = model.with_structured_output(schema, include_raw=True)
    good, bad = shaped.invoke("x"), shaped.invoke("x")
    assert isinstance(good, dict)
    assert isinstance(bad, dict)
    assert Verdict.model_validate(good["parsed"]) == Verdict(done=True)
    assert good["parsing_error"] is None
    assert bad["raw"].content == "no"
    assert bad["parsed"] is None
    assert isinstance(bad["parsing_error"], OutputParserException)
    for why in ("JSON", "never"):
        with pytest.raises(OutputParserException, match=why):
            model.with_structured_output(schema).invoke("x")


def test_a_used_up_script_names_the_calls_and_the_prompt() -> None:
    model = ScriptedChatModel(["one"])
    model.invoke("x")
    with pytest.raises(ScriptExhaustedError, match=r"has 1 replies, but call 2 was.*\n  user: why"):
        model.invoke("why")


def test_errors_are_those_of_the_real_client() -> None:
    limited = Reply(error=429, retry_after=2, code="slow")
    model = ScriptedChatModel([limited, Reply(error="drop"), KeyError("mine")])
    with pytest.raises(openai.RateLimitError) as caught:
        model.invoke("x")
    assert (caught.value.code, caught.value.response.headers["retry-after"]) == ("slow", "2")
    with pytest.raises(openai.APIConnectionError):
        model.invoke("x")
    with pytest.raises(KeyError, match="mine"):
        model.invoke("x")


def test_a_stream_that_drops_has_said_half() -> None:
    stream = ScriptedChatModel([Reply(text="a b", error="drop")]).stream("x")
    assert next(stream).content == "a "
    with pytest.raises(openai.APIConnectionError):
        next(stream)


def test_threads_and_tasks_get_every_reply_once() -> None:
    said = [str(n) for n in range(40)]
    model = ScriptedChatModel(script=said)
    with ThreadPoolExecutor(8) as pool:
        heard = [str(m.content) for m in pool.map(model.invoke, said[:20])]

    async def rest() -> list[AIMessage]:
        return await asyncio.gather(*(model.ainvoke(n) for n in said[20:]))

    heard += [str(m.content) for m in asyncio.run(rest())]
    assert sorted(heard, key=int) == said
    assert len(model.calls) == 40


def test_a_function_sees_the_prompt_and_may_change_it() -> None:
    def echo(prompt: Prompt) -> str:
        return str(prompt.pop()["content"]).upper()

    model = ScriptedChatModel(script=echo)
    assert model.invoke([HumanMessage("hi", name="bob")]).content == "HI"
    assert model.calls[0].prompt == [{"role": "user", "content": "hi", "name": "bob"}]


@pytest.mark.parametrize("script", ["one", [1], iter(["one"]), [None], [AIMessage("one")]])
def test_what_is_no_script_is_refused_at_once(script: Script) -> None:
    with pytest.raises(TypeError, match="script"):
        ScriptedChatModel(script=script)


@pytest.mark.parametrize(
    "fields", [{"text": "ab", "chunks": ("a",)}, {"error": 200}, {"code": "x"}, {"delay": -1}]
)
def test_an_impossible_reply_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Reply.model_validate(fields)


@pytest.mark.part(1)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_script_sees_what_each_call_is_for(*, streamed: bool) -> None:
    said: dict[str | None, Line] = {
        "task": "Plant beans.",
        "speech": "Beans! " * 60,
        "choice": {"next_speaker": "Ben"},
        "verdict": {"criterion_1": "not_met"},
        "summary": "Beans were planted.",
    }

    model = ScriptedChatModel(lambda prompt, call: said[call.purpose])
    names = ("Ann", "Ben", "Cat")
    spec = {
        "task": "Plan a garden",
        "task_specification": {},
        "speakers": [
            {"name": name, "context": {"kind": "summary", "limit": 480}} for name in names
        ],
        "turn_order": "moderator",
        "judge": {"kind": "separate", "criteria": ["They agree."]},
        "end_chat": {
            "mode": "end_chat_after_first_completion",
            "max_iterations": 3,
            "guards": {"same_replies": 0, "standstill": 0, "echo": 0},
        },
    }
    if streamed:
        assert [*stream(Conversation.model_validate(spec), model=model, store="memory:")]
    else:
        converse(Conversation.model_validate(spec), model=model, store="memory:")
    assert {call.purpose for call in model.calls} == {*get_args(Purpose)}
    for call in model.calls:
        is_of_a_speaker = call.purpose in ("speech", "summary")
        assert (call.speaker in names) == is_of_a_speaker


def test_a_call_that_no_conversation_makes_has_no_purpose() -> None:
    model = ScriptedChatModel(lambda prompt, call: f"{call.purpose} {call.speaker}")
    assert model.invoke("x").content == "None None"


def test_only_a_second_argument_that_is_required_gets_the_call() -> None:
    def script(prompt: Prompt, said: str = "x") -> str:
        return said

    assert ScriptedChatModel(script).invoke("a").content == "x"
    assert ScriptedChatModel(Mock(return_value="y")).invoke("a").content == "y"
