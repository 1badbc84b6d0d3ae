"""R2: the thoughts of an answer, in the forms of servers and LangChain's clients."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatResult

from duologue.graphs import Conversation, Result, Speaker, converse
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.both_ways import RUNS, run_whole
from support.faulty_server import Sent
from support.log import fields_of
from support.replies_in_bytes import Server, chunk, json_of, stream_of, use_server

HM = "Hm, let me see."
DATA = tomllib.loads(Path(__file__).with_name("thoughts.toml").read_text("utf-8"))
TAGGED = {"content": f"<think>{HM}</think>Yes.", "reasoning_content": None}
WAYS: dict[str, dict[str, Any]] = {
    **DATA["ways"],
    "null": {"whole": TAGGED | {"reasoning": 7}, "pieces": [TAGGED | {"reasoning": [7]}]},
}
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"place": "it"}'},
}


def look(place: str) -> str:
    """Look somewhere."""
    return f"Nothing in {place}."


TALK = Conversation(
    "Plan.", [Speaker("Ann", tools=[look]), Speaker("Bob")], end_chat={"max_iterations": 1}
)


def send(whole: dict[str, Any], pieces: Sequence[dict[str, Any]], *, streams: bool) -> Sent:
    """Return the response with a message, or a stream of these pieces of it."""
    if streams:
        return stream_of(*map(chunk, pieces), chunk({}, "stop"))
    return json_of({"choices": [{"index": 0, "message": whole, "finish_reason": "stop"}]})


def ask_server(reply: Sent, *, streams: bool) -> tuple[Result, Server]:
    """Run the conversation with a server that sends this reply, then sound ones."""
    with Server(reply) as server, use_server(server):
        return RUNS[streams](TALK, "scripted"), server


both_ways = pytest.mark.parametrize("streams", [False, True])


@both_ways
@pytest.mark.parametrize("way", WAYS)
def test_r2_our_client_keeps_what_a_server_says_of_a_thought(way: str, streams: bool) -> None:
    reply = send(**WAYS[way], streams=streams)
    result, _ = ask_server(reply, streams=streams)
    assert result.transcript == [("Ann", "Yes."), ("Bob", "Fine.")]
    assert [one.thought.text for one in map(fields_of, result.messages) if one.thought] == [HM]


@both_ways
def test_r2_no_thought_is_none(streams: bool) -> None:
    nothing = {"content": "Yes.", "reasoning_content": "", "reasoning": None}
    reply = send(nothing, [{"reasoning_content": ""}, {"content": "Yes."}], streams=streams)
    result, _ = ask_server(reply, streams=streams)
    assert result.transcript == [("Ann", "Yes."), ("Bob", "Fine.")]
    assert not [one for one in map(fields_of, result.messages) if one.thought]


PART = {"type": "thinking", "thinking": [{"type": "text", "text": HM}]}
DETAIL = {"type": "reasoning.text", "index": 0, "format": "f", "text": HM, "signature": "s"}
OTHER = {"type": "reasoning.encrypted", "index": 1, "data": "x"}
HEAD = {name: DETAIL[name] for name in ("type", "index", "format")}
DETAILS = [
    *([HEAD | one] for one in ({"text": "Hm, "}, {"text": "let me see."}, {"signature": "s"})),
    [OTHER],
]
BACK: dict[str, dict[str, Any]] = {
    "parts": WAYS["parts"] | {"back": {"content": [PART, {"type": "text", "text": "Yes."}]}},
    "gateway": {
        "whole": {"content": "Yes.", "reasoning_details": [DETAIL, OTHER]},
        "pieces": [*({"reasoning_details": one} for one in DETAILS), {"content": "Yes."}],
        "back": {"content": "Yes.", "reasoning_details": [DETAIL, OTHER]},
    },
}


@both_ways
@pytest.mark.parametrize("way", BACK)
def test_r2_what_a_server_gives_goes_back_whole_with_the_call(way: str, streams: bool) -> None:
    whole = BACK[way]["whole"] | {"tool_calls": [CALL]}
    pieces = [*BACK[way]["pieces"], {"tool_calls": [CALL | {"index": 0}]}]
    reply = send(whole, pieces, streams=streams)
    result, server = ask_server(reply, streams=streams)
    (called,) = (one for one in server.asked[1]["messages"] if one.get("tool_calls"))
    assert {name: called.get(name) for name in BACK[way]["back"]} == BACK[way]["back"]
    assert HM not in str(server.asked[2])
    assert [one.thought.text for one in map(fields_of, result.messages) if one.thought] == [HM]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_r2_a_field_goes_back_by_its_name_with_the_calls_of_the_turn(
    field: Literal["reasoning_content", "reasoning"],
) -> None:
    call = ScriptedToolCall(name="look", args={"place": "it"}, id="c1")
    script: list[Line] = [
        Reply(text="I look.", reasoning=HM, reasoning_field=field, tool_calls=(call,)),
        Reply(text="Nothing.", reasoning="Nothing there.", reasoning_field=field),
        "Fine.",
    ]
    with ScriptedServer(script) as server, use_server(server):
        result = run_whole(TALK, "scripted")
        prompts = [one.body["messages"] for one in server.calls]
    called = next(one for one in prompts[1] if one.get("tool_calls"))
    assert (called["content"], called[field]) == ("I look.", HM)
    assert HM not in str(prompts[2])
    assert "there" not in str(prompts[2])
    texts = [thought.text for one in result.messages if (thought := fields_of(one).thought)]
    assert texts == [HM, "Nothing there."]


HIDDEN = [{"type": "redacted_thinking", "data": "x"}]


@pytest.mark.parametrize("content", [*DATA["contents"].values(), HIDDEN])
def test_r2_blocks_of_langchain_are_thoughts_and_go_back_unchanged(content: list[Any]) -> None:
    class Blocks(ScriptedChatModel):
        async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
            found = await super()._agenerate(*args, **kwargs)
            message = found.generations[0].message
            spoken = [{"type": "text", "text": message.text}] if message.text else []
            message.content = [*content, *spoken]
            return found

    call = ScriptedToolCall(name="look", args={"place": "it"}, id="c1")
    script: list[Line] = [Reply(tool_calls=(call,)), "Nothing.", "Fine."]
    model = Blocks(script=script, disable_streaming=True)
    result = run_whole(TALK, model)
    sent = [one.messages for one in model.calls]
    blocks = [one for one in content if not isinstance(one, str)]
    called = next(one for one in sent[1] if one.type == "ai")
    text = "".join(one for one in content if isinstance(one, str))
    assert called.content == [*blocks, *([{"type": "text", "text": text}] if text else [])]
    assert HM not in str(sent[2])
    assert [said for _, said in result.transcript][-2:] == [f"{text}Nothing.", f"{text}Fine."]
    thoughts = [one.thought.text for one in map(fields_of, result.messages) if one.thought]
    assert thoughts == ([""] if content == HIDDEN else [HM] * 3)


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
    answers = [
        AIMessage("Yes.", additional_kwargs=fields),
        AIMessage(blocks, additional_kwargs=fields),
    ]
    talk = TALK.replace(speakers=[Speaker("Ann"), Speaker("Bob")])
    result = converse(talk, model=FakeMessagesListChatModel(responses=[*answers]), store="memory:")
    assert [text for _, text in result.transcript] == ["Yes.", "Yes."]
    json.dumps(result.session.dump(), allow_nan=False).encode()


def test_r2_what_is_thought_counts_as_written_where_the_server_counts_nothing() -> None:
    def count(**fields: str) -> int:
        answer = AIMessage("Yes.", additional_kwargs=fields)
        model = FakeMessagesListChatModel(responses=[answer])
        talk = TALK.replace(speakers=[Speaker("Ann"), Speaker("Bob")])
        outcome = converse(talk, model=model, store="memory:").outcome
        assert outcome is not None
        assert outcome.total.estimated_calls == 2
        return outcome.total.output_tokens

    assert count(reasoning_content=HM) > count()
