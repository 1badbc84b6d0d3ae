"""R2: the thoughts of an answer, in the forms of servers and LangChain's clients."""

import json
import tomllib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from hypothesis import given, settings, strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.messages.tool import ToolCall
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langchain_openai.chat_models.base import _construct_responses_api_input
from openai import AsyncOpenAI

from duologue.graphs import Result, converse, load_conversation
from duologue.graphs.log.heard_text import HeardText
from duologue.graphs.speakers.reply_parts import THOUGHT, Reasoning, Thought
from duologue.nodes.models.answers import add_thought, count_usage, get_thought, normalise_answer
from duologue.nodes.models.listeners import Tokens
from duologue.nodes.models.opaque_fields import Family, family_of, prepare_prompt
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.log import fields_of
from support.models import ChatModel

HM = "Hm, let me see."


def connected(answer: Callable[[httpx2.Request], httpx2.Response]) -> ChatModel:
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    api = AsyncOpenAI(base_url="http://server/v1", api_key="any", http_client=client)
    return ChatModel(
        model="scripted",
        base_url="http://server/v1",
        api_key="any",
        root_async_client=api,
        async_client=api.chat.completions,
        stream_usage=True,
    )


def said_by(whole: dict[str, Any], pieces: list[dict[str, Any]]) -> ChatModel:
    """Return a model whose server sends this message, or streams these pieces of it."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        if not json.loads(request.content).get("stream"):
            choice = {"index": 0, "message": whole, "finish_reason": "stop"}
            return httpx2.Response(200, json={"choices": [choice]})
        events = [{"choices": [{"index": 0, "delta": one}]} for one in pieces]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        body = "".join(f"data: {json.dumps(one)}\n\n" for one in [*events])
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, text=f"{body}data: [DONE]\n\n", headers=headers)

    return connected(answer)


async def both(model: ChatModel) -> list[AIMessage]:
    """Return a model's answers to a normal and to a streamed call."""
    whole = await model.ainvoke("Hi.")
    merged: Any = None
    async for piece in model.astream("Hi."):
        merged = piece if merged is None else merged + piece
    return [normalise_answer(whole, "m"), normalise_answer(merged, "m")]


DATA = tomllib.loads(Path(__file__).with_name("thoughts.toml").read_text("utf-8"))
PART = {"type": "thinking", "thinking": [{"type": "text", "text": HM}]}
TAGGED = {"content": f"<think>{HM}</think>Yes.", "reasoning_content": None}
WAYS: dict[str, dict[str, Any]] = {
    **DATA["ways"],
    "null": {"whole": TAGGED | {"reasoning": 7}, "pieces": [TAGGED | {"reasoning": [7]}]},
}


@pytest.mark.parametrize("way", WAYS)
async def test_r2_our_client_keeps_what_a_server_says_of_a_thought(way: str) -> None:
    for answer in await both(said_by(**WAYS[way])):
        assert answer.text == "Yes."
        thought = get_thought(answer)
        assert thought is not None
        assert thought.text == HM


DETAIL: dict[str, Any] = {
    "type": "reasoning.text",
    "index": 0,
    "format": "f",
    "text": HM,
    "signature": "s",
}


async def test_r2_what_a_gateway_gives_goes_back_whole() -> None:
    part = {name: DETAIL[name] for name in ("type", "index", "format")}
    words: list[dict[str, Any]] = [{"text": "Hm, "}, {"text": "let me see."}, {"signature": "s"}]
    pieces: list[dict[str, Any]] = [{"reasoning_details": [part | word]} for word in words]
    other = {"type": "reasoning.encrypted", "index": 1, "data": "x"}
    pieces += [{"reasoning_details": [other]}, {"content": "Yes."}]
    whole = {"content": "Yes.", "reasoning_details": [DETAIL, other]}
    for answer in await both(said_by(whole, pieces)):
        thought = get_thought(answer, goes_back=True)
        assert thought is not None
        assert thought.text == HM
        again = add_thought(AIMessage("Yes."), thought)
        assert again.additional_kwargs == {"reasoning_details": [DETAIL, other]}


async def test_r2_no_thought_is_none() -> None:
    nothing = {"content": "Yes.", "reasoning_content": "", "reasoning": None}
    for answer in await both(said_by(nothing, [{"reasoning_content": ""}, {"content": "Yes."}])):
        assert answer.text == "Yes."
        assert get_thought(answer, goes_back=True) is None


@pytest.mark.parametrize("content", DATA["contents"].values(), ids=DATA["contents"])
def test_r2_reasoning_blocks_of_langchain_are_thoughts_and_go_back_unchanged(
    content: list[Any],
) -> None:
    spoken = [] if content[-1] == "Yes." else [{"type": "text", "text": "Yes."}]
    answer = normalise_answer(AIMessage([*content, *spoken]), "m")
    assert answer.text == "Yes."
    thought = get_thought(answer, goes_back=True)
    assert thought is not None
    assert thought.text == HM
    kept = Thought.model_validate(thought.model_dump(mode="json"))
    again = add_thought(AIMessage("Yes."), kept)
    blocks = [one for one in content if not isinstance(one, str)]
    assert again.content == [*blocks, {"type": "text", "text": "Yes."}]
    # Hidden thoughts are sent back to the model, too.
    hidden = [{"type": "redacted_thinking", "data": "x"}]
    secret = get_thought(normalise_answer(AIMessage([*hidden, *spoken]), "m"), goes_back=True)
    assert secret is not None
    assert add_thought(AIMessage(""), secret).content == hidden


def test_r2_openais_responses_api_is_given_its_reasoning_items_again() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    about = {"output_version": "responses/v1", "model_provider": "openai"}
    answer = normalise_answer(AIMessage([item], response_metadata=about), "m")
    thought = get_thought(answer, goes_back=True)
    assert thought is not None
    call = {"name": "look", "args": {}, "id": "c1", "type": "tool_call"}
    sent = _construct_responses_api_input([add_thought(AIMessage("", tool_calls=[call]), thought)])
    assert [one["type"] for one in sent] == ["reasoning", "function_call"]
    assert sent[0]["encrypted_content"] == "x"


DEEP: Any = "x"
for _ in range(500):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "odd",
    [
        *(None, 7, [], {}, [None], {"text": None}, {"thinking": [7]}, [[[]]], "\ud800", True),
        *(DEEP, {"thinking": DEEP}, {"x": 2**70}, {"x": float("nan")}, [{"type": "summary_text"}]),
    ],
)
def test_r2_odd_thoughts_do_no_harm(odd: object) -> None:
    fields = {"reasoning_content": odd, "reasoning": odd}
    blocks: list[str | dict[Any, Any]] = [
        {"type": "thinking", "thinking": odd},
        {"type": "text", "text": "Yes."},
    ]
    for message in (
        AIMessage("Yes.", additional_kwargs=fields),
        AIMessage(blocks, additional_kwargs=fields),
    ):
        answer = count_usage(normalise_answer(message, "m"), [HumanMessage("Hi.")])
        assert answer.text == "Yes."
        thought = get_thought(answer, goes_back=True)
        if thought is not None:
            json.dumps(thought.model_dump(mode="json")).encode()


def test_r2_what_is_thought_counts_as_written_where_the_server_counts_nothing() -> None:
    told = [
        count_usage(normalise_answer(AIMessage("Yes.", additional_kwargs=extra), "m"), [])
        for extra in ({}, {"reasoning_content": HM})
    ]
    plain, thinking = (one.usage_metadata["output_tokens"] for one in told if one.usage_metadata)
    assert thinking > plain


# Thoughts are sent back to the server for the rest of the turn.


TOOLS = {"name": "Ann", "tools": ["look"]}


def look(place: str) -> str:
    """Look somewhere."""
    return f"Nothing in {place}."


def loop(model: ScriptedChatModel | None) -> Result:
    given = {
        "task": "Plan.",
        "speakers": [TOOLS, {"name": "Bob"}],
        "end_chat": {"max_iterations": 1},
    }
    return converse(load_conversation(given), model=model, store="memory:", tools=[tool(look)])


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_r2_a_field_goes_back_by_its_name_with_the_calls_of_the_turn(
    field: Literal["reasoning_content", "reasoning"], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ScriptedToolCall(name="look", args={"place": "it"}, id="c1")
    script: list[Line] = [
        Reply(text="I look.", reasoning=HM, reasoning_field=field, tool_calls=(call,)),
        Reply(text="Nothing.", reasoning="Nothing there.", reasoning_field=field),
        "Fine.",
    ]
    with ScriptedServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        result = loop(None)
        prompts = [one.body["messages"] for one in server.calls]
    called = next(one for one in prompts[1] if one.get("tool_calls"))
    assert (called["content"], called[field]) == ("I look.", HM)
    assert HM not in str(prompts[2])
    assert "there" not in str(prompts[2])
    texts = [thought.text for one in result.messages if (thought := fields_of(one).thought)]
    assert texts == [HM, "Nothing there."]


async def test_r2_parts_of_the_content_go_back_as_parts() -> None:
    bodies: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        choice = {"index": 0, "message": {"content": "Fine."}, "finish_reason": "stop"}
        return httpx2.Response(200, json={"choices": [choice]})

    first = normalise_answer(await said_by(**WAYS["parts"]).ainvoke("Hi."), "m")
    thought = get_thought(first, goes_back=True)
    assert thought is not None
    call: Any = {"name": "look", "args": {}, "id": "c1", "type": "tool_call"}
    sent = add_thought(AIMessage("Yes.", tool_calls=[call]), thought)
    await connected(answer).ainvoke([HumanMessage("Hi."), sent])
    assert bodies[0]["messages"][1]["content"] == [PART, {"type": "text", "text": "Yes."}]
    # OpenAI's API does not understand the thoughts of other clients.
    foreign = AIMessage([{"type": "reasoning", "id": "rs"}, {"type": "text", "text": "Yes."}])
    await connected(answer).ainvoke([HumanMessage("Hi."), foreign])
    assert "rs" not in str(bodies[1])


def test_r2_blocks_go_back_to_the_users_own_model_unchanged() -> None:
    block = {"type": "thinking", "thinking": HM, "signature": "s"}

    class Blocks(ScriptedChatModel):
        async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
            found = await super()._agenerate(*args, **kwargs)
            message = found.generations[0].message
            spoken = [{"type": "text", "text": message.text}] if message.text else []
            message.content = [block, *spoken]
            return found

    call = ScriptedToolCall(name="look", args={"place": "it"}, id="c1")
    model = Blocks(script=[Reply(tool_calls=(call,)), "Nothing.", "Fine."], disable_streaming=True)
    result = loop(model)
    sent = [one.messages for one in model.calls]
    assert next(one for one in sent[1] if one.type == "ai").content == [block]
    assert HM not in str(sent[2])
    assert [text for _, text in result.transcript] == ["Nothing.", "Fine."]


# Streams.


async def listened(chunks: list[AIMessageChunk], **options: Any) -> tuple[str, str]:
    """Return the thought and the text that are streamed for a message in these pieces."""
    told: dict[str, dict[str, str]] = {}

    def tell(what: str, text: str, answer: str) -> None:
        told.setdefault(answer, {}).setdefault(what, "")
        told[answer][what] += text

    tokens = Tokens(tell, lambda: HeardText(None, "Ann"), **options)

    class Chunks(ScriptedChatModel):
        async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
            for one in chunks:
                yield ChatGenerationChunk(message=one)

    await Chunks(script=[]).ainvoke("Hi.", config={"callbacks": [tokens]})
    last = list(told.values())[-1] if told else {}
    return last.get("thought", ""), last.get("token", "")


@settings(max_examples=60, deadline=None)
@given(
    text=st.sampled_from(
        [
            f"<think>{HM}</think>Yes, `<think>` it is.",
            f"{HM}</think>\n\nYes, `<think>` it is.",
            f" <thinking>{HM}</thinking> Yes, `<think>` it is.",
            f"<reasoning>{HM}</reasoning>Yes, `<think>` it is.",
            f"<seed:think>{HM}</seed:think>Yes, `<think>` it is.</s>",
            f"◁think▷{HM}◁/think▷Yes, `<think>` it is.<|im_end|>\n",
            f"<think>{HM}</think>Yes, `<think>` it is.<|eot_id|><|eot_id|>",
            f"<|channel|>analysis<|message|>{HM}<|end|>"
            "<|start|>assistant<|channel|>final<|message|>Yes, `<think>` it is.<|return|>",
            f"{HM}<|end|><|start|>assistant<|channel|>final<|message|>Yes, `<think>` it is.",
        ]
    ),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    is_unopened=st.booleans(),
)
async def test_r2_any_chunking_tells_the_same(
    text: str, sizes: list[int], is_unopened: bool
) -> None:
    chunks: list[AIMessageChunk] = []
    rest = text
    while rest:
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(AIMessageChunk(content=rest[:size]))
        rest = rest[size:]
    assert await listened(chunks, is_unopened=is_unopened) == (HM, "Yes, `<think>` it is.")


async def test_r2_a_field_is_told_before_the_tokens() -> None:
    words = [
        AIMessageChunk(content="", additional_kwargs={"reasoning": one}) for one in ("Hm, ", HM)
    ]
    assert await listened([*words, AIMessageChunk(content="Yes.")]) == (f"Hm, {HM}", "Yes.")


async def test_r2_blocks_are_told_before_the_tokens() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "Hm, ", "index": 0},
        {"type": "thinking", "thinking": "let me see.", "index": 0},
        {"type": "thinking", "signature": "s", "index": 0},
        {"type": "text", "text": "Yes", "index": 1},
        {"type": "text", "text": ".", "index": 1},
    ]
    assert await listened([AIMessageChunk(content=[block]) for block in blocks]) == (HM, "Yes.")


# The families of models.


def test_r26_a_thought_of_an_older_log_goes_back_by_the_rule_of_the_model_that_answers() -> None:
    call = ToolCall(name="look", args={}, id="c1", type="tool_call")
    unknown = Thought(text=HM, given=Reasoning(fields={"reasoning_content": HM}))
    of_claude = Thought(
        text=HM,
        given=Reasoning(
            blocks=({"type": "thinking", "thinking": HM},), metadata={"model_provider": "anthropic"}
        ),
    )
    deepseek = family_of(connected(_never).model_copy(update={"model_name": "deepseek-v4-pro"}))

    def sent(thought: Thought, family: Family) -> BaseMessage:
        asked = AIMessage("", tool_calls=[call], additional_kwargs={THOUGHT: thought})
        result = ToolMessage("Nothing.", tool_call_id="c1")
        return prepare_prompt([HumanMessage("Hi."), asked, result], family)[1]

    assert sent(unknown, deepseek).additional_kwargs == {"reasoning_content": HM}
    assert sent(of_claude, deepseek).content == ""
    assert HM not in str(sent(of_claude, deepseek))
    assert HM in str(sent(of_claude, Family("anthropic claude-sonnet-4-5")).content)


def _never(request: httpx2.Request) -> httpx2.Response:
    raise AssertionError("no request is sent")
