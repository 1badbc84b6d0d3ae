"""Tests of speakers that speak while they call tools (G1, G2, G3)."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import product
from typing import Any, NamedTuple, cast
from uuid import uuid4

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import BaseTool, StructuredTool, tool
from pydantic import BaseModel, Field, SecretStr

from duologue.graphs import (
    Conversation,
    Result,
    Session,
    SpecError,
    aconverse,
    astream,
    build_graph,
    load_conversation,
    stream,
)
from duologue.graphs.events import (
    Event,
    MessageSaid,
    MessageStarted,
    MessageToken,
    ReplyRejected,
    ToolCallFinished,
    ToolCallRequested,
)
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from duologue.tools import Hook
from support.faulty_server import Sent
from support.log import fields_of, kind_of
from support.models import ChatModel
from support.replies_in_bytes import Server, chunk, events, say
from support.results import outcome_of
from support.shape_help import tokens_by_message
from support.tables import each_row

from ..models.test_listeners import PLACES, TEXTS, pieces, placed

TO_USER = "to_user"
LONG = 30
"""Seconds after which a hanging test is stopped."""

# The real path: model, stream, log, and the next request.


class Looks(BaseModel):
    """Arguments as a pydantic model."""

    path: str
    deep: dict[str, Any] = Field(default_factory=dict)


@tool
def look(path: str, deep: dict[str, Any] | None = None) -> str:
    """Looks into a file."""
    return f"in {path}"


def talk(*tools: str, ann: dict[str, Any] | None = None, **fields: object) -> Conversation:
    speaker = {"name": "Ann", "tools": tools or ("look",), "speaks_with_tool_calls": True}
    given: dict[str, object] = {
        "task": "Look.",
        "speakers": [speaker | (ann or {}), {"name": "Bob"}],
        "end_chat": {"max_iterations": 1},
    }
    return load_conversation(given | fields)


def call(
    args: dict[str, Any] | str, call_id: str = "c1", *, name: str = "look", cut: int | None = None
) -> ScriptedToolCall:
    made = ScriptedToolCall(name=name, args=args, id=call_id)
    chunks = None if cut is None else pieces(made.arguments, cut)
    return made.model_copy(update={"chunks": chunks})


def calls(*made: ScriptedToolCall, text: str = "", **fields: Any) -> Reply:
    return Reply(text=text, tool_calls=made, **fields)


class Ran(NamedTuple):
    events: list[Event]
    result: Result

    @property
    def told(self) -> list[str]:
        """The joined tokens of each message, without those before its newest start."""
        return tokens_by_message(self.events)

    @property
    def said(self) -> list[str]:
        ends = (MessageSaid, ReplyRejected)
        return [event.text for event in self.events if isinstance(event, ends)]

    @property
    def kinds(self) -> list[str]:
        """The names of the events, with the tokens of a message as one."""
        names: list[str] = [event.event for event in self.events]
        return [
            name
            for before, name in zip(["", *names], names, strict=False)
            if name != "token" or before != "token"
        ][1:-1]

    @property
    def calling(self) -> AIMessage:
        """The first message that calls tools."""
        return next(
            cast("AIMessage", one) for one in self.result.messages if kind_of(one) == "tool_calls"
        )

    @property
    def own(self) -> list[AIMessage]:
        """The messages that call tools, as Ann sees them."""
        view = self.result.viewpoint("Ann")
        return [one for one in view if isinstance(one, AIMessage) and one.tool_calls]


def run(
    script: Sequence[Line] | BaseChatModel,
    conversation: Conversation | None = None,
    **options: Any,
) -> Ran:
    model = script if isinstance(script, BaseChatModel) else ScriptedChatModel(script=script)
    given: dict[str, Any] = {
        "store": f"memory:{uuid4().hex}",
        "model": model,
        "tools": [look],
    } | options
    events = list(stream(conversation or talk(), session="s", **given))
    return Ran(events, Session("s", store=given["store"]).state())


def replayed(server: ScriptedServer, number: int) -> list[dict[str, Any]]:
    """Return the messages of a request's body that call tools."""
    messages: list[dict[str, Any]] = server.calls[number].body["messages"]
    return [one for one in messages if one.get("tool_calls")]


PATH_TEXTS = [name for name in TEXTS if name not in ("empty", "long")]


OVER = ("scripted", "http")
IN_PART = {(name, PLACES[at % 3], OVER[at % 2]) for at, name in enumerate(PATH_TEXTS)}
"""Each text has one place and one way; each place occurs with each way."""


@pytest.mark.part(4)
@pytest.mark.parametrize(
    ("name", "place", "over"),
    [
        pytest.param(*one, marks=() if one in IN_PART else pytest.mark.exhaustive)
        for one in product(PATH_TEXTS, PLACES, OVER)
    ],
)
def test_the_words_reach_all_and_the_tool_does_not_see_them(
    name: str, place: str, over: str
) -> None:
    """G1: they are streamed as tokens, logged, heard by others, and restored for their model."""
    text = TEXTS[name]
    args = placed(text, {"path": "a.txt", "deep": {TO_USER: "no"}}, place)
    script: list[Line] = [calls(call(args, cut=1), text="Well."), "It is fine.", "Thanks."]
    with ScriptedServer(script) as server:
        model: BaseChatModel = ScriptedChatModel(script=script)
        if over == "http":
            key = SecretStr("any")
            model = ChatModel(base_url=server.url, api_key=key, model="scripted", stream_usage=True)
        found = run(model)
        sent = replayed(server, 1) if over == "http" else []
    said = f"Well.\n\n{text}"
    assert found.said == found.told == [said, "It is fine.", "Thanks."]
    assert found.calling.text == said
    assert [one["args"] for one in found.calling.tool_calls] == [
        {"path": "a.txt", "deep": {TO_USER: "no"}}
    ]
    (answered,) = [one for one in found.events if isinstance(one, ToolCallFinished)]
    assert (answered.text, answered.failed) == ("in a.txt", False)
    (bob,) = [one for one in found.result.viewpoint("Bob") if isinstance(one, HumanMessage)][-1:]
    assert bob.text.startswith(said.strip())
    (own,) = found.own
    again = own.tool_calls[0]["args"]
    assert (own.text, again, next(iter(again))) == ("Well.", args, TO_USER)
    if over == "http":
        (written,) = sent
        assert written["content"] == "Well."
        assert json.loads(written["tool_calls"][0]["function"]["arguments"]) == args
    assert outcome_of(found.result).total.output_tokens == sum(
        one.usage_metadata["output_tokens"]
        for reply in script
        if (one := ScriptedChatModel(script=[reply]).invoke("")).usage_metadata
    )


def test_what_happens_is_told_in_order() -> None:
    """G2: each message has a start and an end, and its words come before the call."""
    found = run([calls(call({TO_USER: "Hm.", "path": "a"})), "Fine.", "Ok."])
    assert found.kinds == [
        *("message_start", "token", "message", "tool_call", "tool_result"),
        *("message_start", "token", "message", "message_start", "token", "message"),
    ]
    said = [one for one in found.events if isinstance(one, MessageSaid)]
    assert [one.has_tool_calls for one in said] == [True, False, False]
    assert found.result.transcript == [("Ann", "Hm."), ("Ann", "Fine."), ("Bob", "Ok.")]
    assert [one.arguments for one in found.events if isinstance(one, ToolCallRequested)] == [
        {"path": "a"}
    ]


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("args", "text", "said"),
    [
        pytest.param([{TO_USER: "A."}, {TO_USER: "B."}], "", "A.\n\nB.", id="G1-two"),
        pytest.param([{}, {TO_USER: "B."}], "", "B.", id="G1-the-second"),
        pytest.param([{TO_USER: " "}, {TO_USER: "B."}], "C.", "C.\n\nB.", id="G1-blank"),
        pytest.param([{TO_USER: None}, {TO_USER: "B."}], " \n", "B.", id="G1-null"),
        pytest.param([{TO_USER: 5}, {TO_USER: ["B."]}], "C. ", "C. ", id="G1-no-text"),
        pytest.param([{TO_USER: " A. "}], " C.\n", " C.\n\n A. ", id="G1-spaces"),
        pytest.param([{TO_USER: ""}], "", "", id="G1-nothing"),
    ],
)
def test_what_is_said_is_the_content_then_the_texts(
    args: list[dict[str, Any]], text: str, said: str
) -> None:
    """G1: the texts follow in the order of the calls, after a blank line; non-text is dropped."""
    made = [call({"path": "a"} | one, f"c{n}", cut=1) for n, one in enumerate(args)]
    found = run([calls(*made, text=text), "Fine.", "Ok."])
    assert found.calling.text == said
    assert found.said[:-2] == found.told[:-2] == ([said] if said else [])
    assert all(one["args"] == {"path": "a"} for one in found.calling.tool_calls)


def test_of_a_broken_call_only_what_was_told_is_said() -> None:
    """G1: streamed words stay; the call stays broken, and the model gets the reason."""
    early = call('{"to_user": "Let me see", "path": oops}', cut=4)
    late = call('{"path": oops, "to_user": "Never."}', "c2", cut=4)
    good = call({TO_USER: "Now.", "path": "b"}, "c3")
    found = run([calls(early, late, good), "Fine.", "Ok."])
    assert found.said[0] == found.told[0] == found.calling.text == "Let me see\n\nNow."
    assert len(found.calling.invalid_tool_calls) == 2
    assert [one["args"] for one in found.calling.tool_calls] == [{"path": "b"}]
    # Without streaming, no words were heard.
    plain = ScriptedChatModel(script=[calls(early), "Fine.", "Ok."], disable_streaming=True)
    assert run(plain).said == ["Fine.", "Ok."]


class Reordered(ScriptedChatModel):
    """A model whose server sends the parts of an answer in another order."""

    order: Callable[[list[Any]], list[Any]]

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        parts = [part async for part in super()._astream(*args, **kwargs)]
        for part in self.order(parts):
            yield part


def test_calls_that_arrive_side_by_side_are_told_in_their_order() -> None:
    """G1: the second call's words wait until the first call is complete."""

    def order(parts: list[Any]) -> list[Any]:
        chunks = [(one, one.message.tool_call_chunks) for one in parts]
        first = [one for one, made in chunks if made and made[0]["index"] == 0]
        rest = [one for one in parts if one not in first]
        return [*first[:1], *rest[:-1], *first[1:], rest[-1]]

    one, two = (call({"path": "a", TO_USER: text}, text, cut=14) for text in ("A.", "B."))
    found = run(Reordered(script=[calls(one, two), "Fine.", "Ok."], order=order))
    assert found.said[0] == found.told[0] == "A.\n\nB."
    assert found.kinds.count("message_start") == 3


def test_an_argument_that_comes_twice_is_said_as_it_was_heard() -> None:
    """G1: no streamed words are taken back."""
    found = run([calls(call('{"to_user": "A.", "path": "a", "to_user": "B."}')), "Fine.", "Ok."])
    assert found.said[0] == found.told[0] == "A."


@pytest.mark.parametrize("late", ["Later.", "\n", " Later. "])
def test_content_that_comes_behind_the_words_stands_behind_them(late: str) -> None:
    """G2: the tokens equal the message, in any order of the server's parts."""

    def order(parts: list[Any]) -> list[Any]:
        text = [one for one in parts if one.message.content]
        rest = [one for one in parts if not one.message.content]
        return [*text[:1], *rest[:-1], *text[1:], *rest[-1:]]

    made = (call({TO_USER: "Now.", "path": "a"}), call({TO_USER: "And.", "path": "b"}, "c2"))
    reply = calls(*made, text=f"First.{late}", chunks=("First.", late))
    found = run(Reordered(script=[reply, "Fine.", "Ok."], order=order))
    wanted = "\n\n".join(filter(None, ["First.", "Now.", "And.", late.strip()]))
    assert found.said[0] == found.told[0] == wanted
    (own,) = found.own
    assert own.text == "\n\n".join(filter(None, ["First.", late.strip()]))


@pytest.mark.parametrize("first", ["Well then, I see.", "Something else is said."])
def test_words_spoken_before_a_break_are_not_told_twice(first: str) -> None:
    """G2: over HTTP, when the first try is interrupted in the middle of its answer.

    A repeated text is not streamed twice; a different text starts again.
    """
    reply = calls(call({TO_USER: "Let me see that.", "path": "a"}, cut=3), text="Well then, I see.")
    with ScriptedServer([Reply(text=first, error="drop"), reply, "Fine.", "Ok."]) as server:
        key = SecretStr("any")
        found = run(ChatModel(base_url=server.url, api_key=key, model="scripted", max_retries=2))
    assert found.said[0] == "Well then, I see.\n\nLet me see that."
    starts = [one.speaker for one in found.events if isinstance(one, MessageStarted)]
    assert starts == ["Ann"] * (2 if first == reply.text else 3) + ["Bob"]
    assert found.told == found.said


@pytest.mark.parametrize("again", ["First. Now it is.", "Other."])
def test_an_answer_that_breaks_behind_its_words_is_told_once(again: str) -> None:
    """G2: the new answer calls no tool."""
    made = {"name": "look", "arguments": '{"to_user": "Now", "pa'}
    parts = [{"content": "First. "}, {"tool_calls": [{"index": 0, "id": "c", "function": made}]}]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999\r\n\r\n"
    broken = Sent(raw=head + events(*map(chunk, parts), done=False))
    with Server(broken, say(again), say("Ok.")) as server:
        key = SecretStr("any")
        found = run(ChatModel(base_url=server.url, api_key=key, model="scripted", max_retries=2))
    assert found.said == found.told == [again, "Ok."]
    starts = [one.speaker for one in found.events if isinstance(one, MessageStarted)]
    assert starts == ["Ann", "Ann", "Bob"]


async def test_sync_and_async_tell_the_same() -> None:
    """G2: both yield the same events."""
    reply = calls(call({"path": "a", TO_USER: "One moment."}, cut=2), text="Well, well.")
    script: list[Line] = [reply, "Fine.", "Ok."]

    def options() -> dict[str, Any]:
        model = ScriptedChatModel(script=script)
        return {"tools": [look], "model": model, "session": "s", "store": f"memory:{uuid4().hex}"}

    in_async = [event async for event in astream(talk(), **options())]
    in_sync = await asyncio.to_thread(lambda: list(stream(talk(), **options())))
    assert in_sync[1:-1] == in_async[1:-1]
    assert [one.text for one in in_sync if isinstance(one, MessageSaid)] == [
        *("Well, well.\n\nOne moment.", "Fine.", "Ok."),
    ]


async def test_whoever_follows_custom_events_alone_hears_the_words_as_they_come() -> None:
    """G1, G2: a client of a server may do so; without any follower the log is the same."""
    reply = calls(call({TO_USER: "One moment.", "path": "a"}, cut=4), text="Well.")
    script: list[Line] = [reply, "Fine.", "Ok."]
    graph = build_graph(model=ScriptedChatModel(script=script), tools=[look])
    given: Any = {"conversation": talk().stored()}
    heard = [part async for part in graph.astream(given, stream_mode="custom")]
    words = [part["speech"] for part in heard if "speech" in part]
    assert {one["speaker"] for one in words} == {"Ann"}
    assert len(words) > 1
    assert "".join(one["text"] for one in words) == "\n\nOne moment."
    model = ScriptedChatModel(script=script)
    result = await aconverse(talk(), model=model, tools=[look], store="memory:")
    assert result.transcript[0] == ("Ann", "Well.\n\nOne moment.")


# G3: the words are read before the message is whole, and while the tools run.


class Slow(ScriptedChatModel):
    """A model that sends the rest of its first answer only after its earlier words were heard."""

    _heard: asyncio.Event
    _calls: int = 0

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        first, self._calls = self._calls == 0, self._calls + 1
        async for part in super()._astream(*args, **kwargs):
            if first and part.message.usage_metadata:  # type: ignore[attr-defined]
                await asyncio.wait_for(self._heard.wait(), LONG)
            yield part


async def test_the_words_are_told_while_the_message_arrives() -> None:
    """G1, G3: the end of the message waits until its words were heard."""
    reply = calls(call({TO_USER: "One moment.", "path": "a"}, cut=3))
    model = Slow(script=[reply, "Fine.", "Ok."])
    model._heard, told = asyncio.Event(), ""
    async for event in astream(talk(), model=model, tools=[look], store="memory:"):
        if isinstance(event, MessageToken):
            told += event.text
        if told == "One moment.":
            model._heard.set()
    assert told == "One moment.Fine.Ok."


@pytest.mark.parametrize("is_async", [True, False], ids=["G3-async-tool", "G3-sync-tool"])
async def test_the_words_are_read_while_the_tool_runs(is_async: bool) -> None:
    """G3: the tool waits until a follower has read them."""
    read_it, in_thread = asyncio.Event(), threading.Event()

    async def waits(path: str) -> str:
        await asyncio.wait_for(read_it.wait(), LONG)
        return "read"

    def waits_too(path: str) -> str:
        return "read" if in_thread.wait(LONG) else "not read"

    made = StructuredTool.from_function(
        func=None if is_async else waits_too,
        coroutine=waits if is_async else None,
        name="look",
        description="Waits.",
    )
    model = ScriptedChatModel(script=[calls(call({TO_USER: "Wait.", "path": "a"})), "Ok.", "Ok."])
    answered: list[str] = []
    async for event in astream(talk(), model=model, tools=[made], store="memory:"):
        if isinstance(event, MessageToken) and event.text.endswith("."):
            assert event.text != "Wait." or not answered
            read_it.set()
            in_thread.set()
        if isinstance(event, ToolCallFinished):
            answered.append(event.text)
    assert answered == ["read"]


async def test_tools_of_one_message_run_side_by_side_and_enter_the_log_in_order() -> None:
    """G3: two tools wait for each other; the second call finishes first."""
    began = {"a": asyncio.Event(), "b": asyncio.Event()}
    over = asyncio.Event()

    async def waits(path: str) -> str:
        began[path].set()
        await asyncio.wait_for(began["b" if path == "a" else "a"].wait(), LONG)
        if path == "a":
            await asyncio.wait_for(over.wait(), LONG)
        over.set()
        return path

    made = StructuredTool.from_function(coroutine=waits, name="look", description="Waits.")
    two = (call({TO_USER: "One.", "path": "a"}), call({TO_USER: "Two.", "path": "b"}, "c2"))
    model = ScriptedChatModel(script=[calls(*two), "Ok.", "Ok."])
    found = [one async for one in astream(talk(), model=model, tools=[made], store="memory:")]
    assert [one.text for one in found if isinstance(one, ToolCallFinished)] == ["a", "b"]
    assert next(one.text for one in found if isinstance(one, MessageSaid)) == "One.\n\nTwo."


# Other readers of a message.


def test_equal_calls_are_equal_whatever_is_said_beside_them() -> None:
    """G1, Y19: the guard on calls with the same arguments ignores `to_user`."""
    same: list[Line] = [calls(call({TO_USER: f"Try {n}.", "path": "a"}, f"c{n}")) for n in range(9)]
    guarded = talk(end_chat={"max_iterations": 1, "guards": {"same_tool_calls": 3}})
    model = ScriptedChatModel(script=[*same, "Fine.", "Ok."])
    found = run(model, guarded)
    silent: list[Line] = [calls(call({"path": "a"}, f"c{n}")) for n in range(9)]
    plain = run([*silent, "Fine.", "Ok."], guarded)
    assert outcome_of(found.result).reason == outcome_of(plain.result).reason
    assert len(found.result.messages) == len(plain.result.messages)


def test_call_ids_that_come_again_hold_their_words() -> None:
    """G1: some servers number the calls of each message from the start."""
    tries = [calls(call({TO_USER: f"Try {n}.", "path": f"{n}"})) for n in range(2)]
    found = run([*tries, "Ok.", "Ok."])
    assert [one.tool_calls[0]["args"] for one in found.own] == [
        {TO_USER: "Try 0.", "path": "0"},
        {TO_USER: "Try 1.", "path": "1"},
    ]
    assert [one.text for one in found.own] == ["", ""]


@each_row("words_that_a_hook_changes_are_no_argument")
def test_words_that_a_hook_changes_are_no_argument(
    changes: str | None, said: str, args: dict[str, Any]
) -> None:
    """G1, L7: nothing is streamed before the hook; its words become the message's content."""
    seen: list[tuple[str, object]] = []

    def hook(turn: object, reply: AIMessage) -> AIMessage | None:
        seen.append((reply.text, [one["args"] for one in reply.tool_calls]))
        return AIMessage(changes) if changes and reply.tool_calls else None

    reply = calls(call({TO_USER: "A secret.", "path": "a"}))
    spec = talk(ann={"hooks": ["h"]})
    found = run([reply, "Fine.", "Ok."], spec, hooks={"h": Hook(after_speaker=hook)})
    assert seen[0] == ("A secret.", [{"path": "a"}])
    assert found.told == ["", "", "Ok."]
    assert found.said[0] == said
    (own,) = found.own
    assert own.tool_calls[0]["args"] == args
    assert own.text == (changes or "")


def test_an_endpoint_without_tool_calls_says_it_in_one_piece() -> None:
    """G1: it answers with a schema; its own prompt shows the call in the form it wrote."""
    args = {TO_USER: 'A "moment".', "path": "a"}
    script: list[Line] = [{"tool": "look", "arguments": args}, {"reply": "Fine."}, "Ok."]
    model = ScriptedChatModel(script=script)
    found = run(model, talk(ann={"tool_calling": "schema"}))
    assert found.said == ['A "moment".', "Fine.", "Ok."]
    assert found.told[0] == 'A "moment".'
    assert found.calling.tool_calls[0]["args"] == {"path": "a"}
    written = str(model.calls[1].prompt[2]["content"])
    assert json.dumps({"tool": "look", "arguments": args}) in written
    assert f"- look({TO_USER}?: text" in str(model.calls[0].prompt[0]["content"])
    forced = ScriptedChatModel(script=script)
    run(forced, talk(ann={"tool_calling": "schema", "tool_choice": "look"}))
    schema = forced.calls[0].schema
    assert schema is not None
    properties = schema["properties"]["arguments"]["properties"]
    assert [*properties] == [TO_USER, "path", "deep"]
    assert properties[TO_USER] == {"type": "string"}


def test_words_of_calls_that_are_not_run_any_more_are_said_all_the_same() -> None:
    """G1, Z7: after the last round of tools a call is dropped, but its streamed words stay."""
    made = [calls(call({TO_USER: f"Try {n}.", "path": f"{n}"}, f"c{n}")) for n in range(2)]
    found = run([*made, "Ok."], talk(max_tool_rounds=1))
    assert found.said == found.told == ["Try 0.", "Try 1.", "Ok."]


# The offered tools.


def made_tool(schema: object) -> BaseTool:
    given: Any = schema
    return StructuredTool(name="made", description="Does.", args_schema=given, func=lambda **_: 1)


OPEN = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "one",
    [look, made_tool(Looks), made_tool(OPEN), made_tool({"type": "object"})],
    ids=["function", "model", "schema", "no-arguments"],
)
def test_each_tool_is_offered_with_the_argument_in_front(one: BaseTool) -> None:
    """G1: the tools of other speakers, and everything else in them, stay the same."""
    both = [talk(one.name).speakers[0].model_dump(), {"name": "Bob", "tools": [one.name]}]
    spec = talk(speakers=both)
    model = ScriptedChatModel(script=["Fine.", "Ok."])
    run(model, spec, tools=[one])
    offered, plain = (made.tools[0]["function"] for made in model.calls)
    properties = offered["parameters"]["properties"]
    assert next(iter(properties)) == TO_USER
    assert properties.pop(TO_USER)["type"] == "string"
    assert offered["parameters"] == {"properties": {}, **plain["parameters"]}
    assert (offered["name"], offered["description"]) == (plain["name"], plain["description"])


def test_it_is_refused_where_it_can_mean_nothing() -> None:
    """G1: it is refused without tools, and if a tool has an argument of that name."""
    with pytest.raises(SpecError, match=r"speakers\.0\.speaks_with_tool_calls.*no tools"):
        talk(ann={"tools": []})

    @tool
    def tell(to_user: str) -> str:
        """Speaks."""
        return to_user

    model = ScriptedChatModel(script=[])
    with pytest.raises(
        SpecError,
        match=r"speakers\.0\.speaks_with_tool_calls: the tool 'tell' .* or rename the tool",
    ):
        run(model, talk("look", "tell"), tools=[look, tell])
    assert run(
        ["Fine.", "Ok."], talk("tell", ann={"speaks_with_tool_calls": False}), tools=[tell]
    ).result.outcome
    assert not model.calls


@pytest.mark.parametrize("cut", [1, 4, 100])
@pytest.mark.parametrize(
    "thought", ["<think>Hm. </think>", "<think>Hm.</think>\n\n", "Hm.</think> "]
)
@pytest.mark.parametrize("text", ["", "First.", "First. <think>Then?</think>"])
def test_r2_thoughts_beside_the_words_are_not_said(thought: str, text: str, cut: int) -> None:
    whole = thought + text
    made = call({TO_USER: "Now.", "path": "a"}, cut=cut)
    chunks = pieces(whole, cut)
    found = run([calls(made, text=whole, chunks=chunks), "Fine.", "Ok."])
    assert found.said[0] == found.told[0] == ("First.\n\nNow." if text else "Now.")
    assert (about := fields_of(found.calling).thought)
    assert about.text == ("Hm.\n\nThen?" if "Then" in text else "Hm.")
