"""Artifacts of tools: stored beside the log, the same everywhere, and never sent to a model."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from duologue import (
    Conversation,
    Result,
    Session,
    Speaker,
    SpecError,
    aconverse,
    aload_session,
    astream,
    build_graph,
    chat,
    converse,
    stream,
)
from duologue.graphs.events import ConversationEnded, Notice, ToolCallFinished
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook, Turn
from support.results import StoredSession
from support.tables import read_rows

DAY = date(2026, 11, 23)
PICTURE = b"\x89PNG\r\n\x1a\n\xff\x00"


class Chart(BaseModel):
    """A pydantic object, which is stored as a dict."""

    title: str
    day: date


@tool(response_format="content_and_artifact")
def draw(kind: str) -> tuple[str, object]:
    """Draw something."""
    drawn: dict[str, object] = {
        "plain": {"rows": [1, 2.5, None, True], "name": "é"},
        "bytes": PICTURE,
        "object": Chart(title="Rain", day=DAY),
        "documents": [Document("Bees dance.", metadata={"page": 3})],
        "nothing": None,
        "deep": _nested(120),
        "odd": {"a": object()},
        "large": 2**70,
    }
    return f"A {kind} picture.", drawn[kind]


KEPT: dict[str, Any] = {
    "plain": {"rows": [1, 2.5, None, True], "name": "é"},
    "bytes": PICTURE,
    "object": {"title": "Rain", "day": DAY},
    "documents": [
        {"id": None, "metadata": {"page": 3}, "page_content": "Bees dance.", "type": "Document"}
    ],
    "nothing": None,
}


def _nested(levels: int) -> object:
    return [] if levels == 1 else [_nested(levels - 1)]


@tool
def ask() -> str:
    """Ask a person."""
    return f"They say {interrupt('Who?')}."


def gives(kind: str, call_id: str = "c1") -> ScriptedToolCall:
    return ScriptedToolCall(name="draw", args={"kind": kind}, id=call_id)


def talk(*tools: BaseTool, **fields: Any) -> Conversation:
    return Conversation(
        "Draw.",
        [Speaker("Ann", tools=tools or (draw,), **fields), Speaker("Bob")],
        end_chat={"max_iterations": 1},
    )


async def drawn(kinds: Sequence[str], conversation: Conversation | None = None) -> Result:
    """Run a conversation in which Ann draws pictures of some kinds with one message."""
    calls = [gives(kind, f"c{number}") for number, kind in enumerate(kinds)]
    model = ScriptedChatModel([Reply(tool_calls=calls), "There.", "Nice."])
    return await aconverse(conversation or talk(), model=model, store="memory:")


def artifacts(result: StoredSession) -> list[Any]:
    return [one.artifact for one in result.messages if isinstance(one, ToolMessage)]


async def test_an_artifact_is_on_the_message_of_its_result_as_plain_data() -> None:
    result = await drawn([*KEPT])
    assert artifacts(result) == [*KEPT.values()]
    assert result.outcome is not None
    assert result.outcome.warnings == ()


@pytest.mark.parametrize(
    ("kind", "why"),
    read_rows(__file__, "an_artifact_that_cannot_be_stored_is_reported_and_the_call_succeeds"),
)
async def test_an_artifact_that_cannot_be_stored_is_reported_and_the_call_succeeds(
    kind: str, why: str
) -> None:
    model = ScriptedChatModel([Reply(tool_calls=[gives(kind)]), "There.", "Nice."])
    events = [one async for one in astream(talk(), model=model, store="memory:")]
    (notice,) = [one.text for one in events if isinstance(one, Notice)]
    assert notice.startswith("The artifact of draw was not stored: ")
    assert why in notice
    (ended,) = [one for one in events if isinstance(one, ConversationEnded)]
    assert ended.warnings == (notice.removesuffix("."),)
    (told,) = [one for one in events if isinstance(one, ToolCallFinished)]
    assert (told.text, told.failed, told.artifact) == (f"A {kind} picture.", False, None)


async def test_no_prompt_contains_an_artifact(tmp_path: Path) -> None:
    prompts: list[Prompt] = []

    def answer(prompt: Prompt) -> Line:
        prompts.append(prompt)
        is_first = len(prompts) == 1
        return Reply(tool_calls=[gives("plain")]) if is_first else "There."

    result = await aconverse(talk(), model=ScriptedChatModel(answer), store="memory:")
    assert len(prompts) == 3
    assert "A plain picture." in json.dumps(prompts)
    assert "rows" not in json.dumps(prompts)
    seen = [*result.viewpoint("Ann"), *result.memory("Ann"), *result.session.prompt("Ann")]
    assert [one.artifact for one in seen if isinstance(one, ToolMessage)] == [None, None, None]
    assert "rows" not in json.dumps(result.trajectory())


async def test_events_bring_the_artifact_and_their_json_leaves_it_out() -> None:
    model = ScriptedChatModel([Reply(tool_calls=[gives("bytes")]), "There.", "Nice."])
    run = astream(talk(), model=model, store="memory:")
    (told,) = [one async for one in run if isinstance(one, ToolCallFinished)]
    assert told.artifact == PICTURE
    assert "artifact" not in json.loads(told.model_dump_json())


async def test_it_survives_a_question_and_its_tool_does_not_run_again(tmp_path: Path) -> None:
    """The record of a finished call contains its artifact or its failure, as after a kill."""
    runs: list[str] = []

    @tool(response_format="content_and_artifact")
    def once() -> tuple[str, bytes]:
        """Draw once."""
        runs.append("once")
        return "Drawn.", PICTURE

    @tool
    def fail() -> str:
        """Fail."""
        raise OSError("no ink")

    tools, store = [once, ask, fail], tmp_path / "sessions.db"
    conversation = talk(*tools)
    made = [ScriptedToolCall(name=one.name, args={}, id=one.name) for one in tools]
    first = ScriptedChatModel([Reply(tool_calls=made)])
    waiting = await aconverse(conversation, model=first, session="one", store=store)
    assert waiting.pending
    rest = ScriptedChatModel(["There.", "Nice."])
    session = Session("one", store=store)
    result = await session.aanswer("Bob", model=rest, tools=tools)
    assert artifacts(result) == [PICTURE, None, None]
    assert [one.status for one in _results(result.messages)] == ["success", "success", "error"]
    assert runs == ["once"]
    assert artifacts(await session.astate()) == [PICTURE, None, None]


async def test_it_survives_forks_dumps_and_copies_without_a_change(tmp_path: Path) -> None:
    calls = [gives(kind, kind) for kind in KEPT]
    model = ScriptedChatModel([Reply(tool_calls=calls), "There.", "Nice."])
    result = await aconverse(talk(), model=model, session="one", store=tmp_path / "sessions.db")
    fork = await result.session.afork(at=result.messages[-2])
    assert artifacts(await fork.astate()) == [*KEPT.values()]
    copy = await result.session.acopy(to=tmp_path / "other.db")
    assert artifacts(await copy.astate()) == [*KEPT.values()]
    dump = json.loads(json.dumps(await result.session.adump()))
    loaded = await aload_session(dump, into="two", store=tmp_path / "other.db")
    assert artifacts(await loaded.astate()) == [*KEPT.values()]
    written = {one["call_id"]: one for one in messages_of(dump) if "call_id" in one}
    assert written["plain"]["artifact"] == KEPT["plain"]
    assert not {"artifact", "packed_artifact"} & written["nothing"].keys()
    assert "artifact" not in written["bytes"]


def messages_of(dump: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for step in dump["steps"] for one in step.get("messages", ())]


@pytest.mark.parametrize("packed", ["%%%", "kwE=", "AAAA"])
async def test_a_dump_with_a_damaged_artifact_is_refused_by_one_error(packed: str) -> None:
    dump = await (await drawn(["bytes"])).session.adump()
    (written,) = [one for one in messages_of(dump) if "packed_artifact" in one]
    written["packed_artifact"] = packed
    with pytest.raises(
        SpecError, match=r"messages\.0\.packed_artifact: can't be read: .*remove it"
    ):
        await aload_session(dump, into="two", store="memory:")


async def test_a_hook_sees_it_and_the_result_that_it_returns_brings_its_own() -> None:
    seen: list[object] = []

    def shorten(turn: Turn, call: ToolCall, result: ToolMessage) -> ToolMessage | None:
        seen.append(result.artifact)
        if call["args"]["kind"] == "plain":
            return result.model_copy(update={"content": "Short."})
        if call["args"]["kind"] == "bytes":
            return ToolMessage("Other.", tool_call_id=call["id"], artifact={1, 2})
        return None

    conversation = talk(draw, hooks=[Hook(after_tool=shorten)])
    result = await drawn(["plain", "bytes", "nothing", "large"], conversation)
    plain = KEPT["plain"]
    assert seen == [plain, PICTURE, None, None]
    # The log also contains each result as the tool returned it.
    assert artifacts(result) == [plain, PICTURE, None, None, plain, {1, 2}, None, None]
    assert result.outcome is not None
    (warning,) = result.outcome.warnings
    assert warning.startswith("The artifact of draw was not stored: ")


async def test_a_hooks_own_result_keeps_its_artifact() -> None:
    def instead(turn: Turn, call: ToolCall) -> ToolMessage:
        return ToolMessage("Known.", tool_call_id=call["id"], artifact=Chart(title="a", day=DAY))

    result = await drawn(["plain"], talk(draw, hooks=[Hook(before_tool=instead)]))
    assert artifacts(result) == [{"title": "a", "day": DAY}]


async def test_pages_and_exports_show_its_type_and_size_alone() -> None:
    result = await drawn(["plain", "bytes", "large"])
    shown = [await result.session.aexport("html"), result._repr_html_()]
    shown.append(await result.session.aexport("markdown"))
    for page in shown:
        assert "Artifact: dict, 28 bytes" in page
        assert "Artifact: bytes, 10 bytes" in page
        assert "The artifact of draw was not stored" in page
        assert "rows" not in page


@pytest.mark.parametrize("name", ["ainvoke", "invoke"])
async def test_a_graph_with_langgraphs_own_saver_keeps_it_in_its_state(name: str) -> None:
    model = ScriptedChatModel(
        [Reply(tool_calls=[gives("object"), gives("bytes", "c2")]), "There.", "Nice."]
    )
    graph = build_graph(model=model, tools=[draw], checkpointer=InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "one"}}
    if name == "invoke":
        await asyncio.to_thread(graph.invoke, {"conversation": talk().stored()}, config)
    else:
        await graph.ainvoke({"conversation": talk().stored()}, config)
    messages = graph.get_state(config).values["messages"]
    found = [one.artifact for one in messages if isinstance(one, ToolMessage)]
    assert found == [KEPT["object"], PICTURE]


async def test_artifacts_of_an_agents_own_tools_are_stored_likewise() -> None:
    calls = [gives(kind, kind) for kind in ("bytes", "object")]
    model = ScriptedChatModel([Reply(tool_calls=calls), "There.", "Nice."])
    agent = create_agent(model, [draw])
    conversation = Conversation(
        "Draw.", [Speaker("Ann", replies=[agent]), Speaker("Bob")], end_chat={"max_iterations": 1}
    )
    result = await aconverse(conversation, model=model, store="memory:")
    assert artifacts(result) == [PICTURE, KEPT["object"]]


# Results that are not text


@tool
def see() -> list[dict[str, Any]]:
    """Look at a picture."""
    text = {"type": "text", "text": "A bee."}
    return [text, {"type": "image", "base64": "aGk=", "mime_type": "image/png"}]


@tool
def look() -> list[dict[str, Any]]:
    """Look at a picture on the web."""
    return [{"type": "image_url", "image_url": {"url": "https://example.org/bee.png"}}]


async def test_a_picture_in_a_result_is_replaced_by_its_type() -> None:
    calls = [ScriptedToolCall(name=name, args={}, id=name) for name in ("see", "look")]
    model = ScriptedChatModel([Reply(tool_calls=calls), "There.", "Nice."])
    result = await aconverse(talk(see, look), model=model, store="memory:")
    told = [one.text for one in result.messages if isinstance(one, ToolMessage)]
    assert told == ["A bee.\n[image/png, not shown]", "[image_url, not shown]"]


def update() -> Command[Any]:
    """Change the state, with no message: LangGraph's own error would ask for a message in it."""
    return Command(update={"outcome": {}})


def leave() -> Command[Any]:
    """Go to a node of the parent graph."""
    return Command(graph=Command.PARENT, goto="__end__")


async def both() -> list[Any]:
    """Return a command among other values."""
    return ["a", Command(goto="__end__")]


@pytest.mark.parametrize("function", [update, leave, both])
async def test_a_command_is_refused_by_one_sentence_and_changes_nothing(
    function: Callable[..., Any],
) -> None:
    call = ScriptedToolCall(name=function.__name__, args={}, id="c1")
    model = ScriptedChatModel([Reply(tool_calls=[call]), "There.", "Nice."])
    result = await aconverse(talk(tool(function)), model=model, store="memory:")
    (told,) = [one.text for one in result.messages if isinstance(one, ToolMessage)]
    refusal = "it returned a Command, but a tool can't change a conversation; return text"
    assert told == f"{function.__name__} failed: {refusal}"
    assert result.stop_reason == "max_iterations"


# Bytes in the results of tools.


PNG = b"\x89PNG\r\n\x1a\n" + bytes(30)
JPEG = b"\xff\xd8\xff" + bytes(30)
WAV = b"RIFF1234WAVEfmt "


class Shot(BaseModel):
    """A picture with its number."""

    picture: bytes
    number: int = 1


@dataclass
class Pair:
    """A picture with its title."""

    picture: bytes
    title: str


LOOP: dict[str, Any] = {"number": 1}
LOOP["again"] = LOOP


def _block(data: bytes, kind: str) -> list[dict[str, str]]:
    """Return a block, as servers of MCP send it for a resource in a result."""
    type_ = "audio" if kind.startswith("audio") else "file"
    return [{"type": type_, "base64": b64encode(data).decode(), "mime_type": kind}]


OCTETS = "application/octet-stream"

RESULTS: dict[str, tuple[object, str | None, list[bytes]]] = {
    "png": (PNG, "[image, 38 bytes]", [PNG]),
    "bytearray": (bytearray(JPEG), "[image, 33 bytes]", [JPEG]),
    "memoryview": (memoryview(PNG), "[image, 38 bytes]", [PNG]),
    "gif": (b"GIF89a", "[image, 6 bytes]", [b"GIF89a"]),
    "webp": (b"RIFF1234WEBPVP8 ", "[image, 16 bytes]", [b"RIFF1234WEBPVP8 "]),
    "pdf": (b"%PDF-1.7", "[file file.pdf, 8 bytes]", [b"%PDF-1.7"]),
    "wav": (WAV, "[audio, 16 bytes]", [WAV]),
    "mp3": (b"ID3abc", "[audio, 6 bytes]", [b"ID3abc"]),
    "text": ("Grüße,\n".encode(), "Grüße,\n", []),
    "unknown": (b"\x80\x01", "[2 bytes, not shown]", []),
    "controls": (b"\x00\x01\x02", "[3 bytes, not shown]", []),
    "one byte": (b"\xff", "[1 byte, not shown]", []),
    "list": (["See", "this:", PNG], "See\nthis:\n[image, 38 bytes]", [PNG]),
    "tuple": ((PNG, b"\x80", JPEG), None, [PNG, JPEG]),
    "dict": ({"picture": PNG, "raw": b"\x80"}, None, [PNG]),
    "nested": ({"pages": [{"scan": PNG}, {"scan": JPEG}]}, None, [PNG, JPEG]),
    "blocks": ([{"type": "text", "text": "See"}, PNG], "See\n[image, 38 bytes]", [PNG]),
    "model": (Shot(picture=PNG), '{"picture": "[image, 38 bytes]", "number": 1}', [PNG]),
    "dataclass": (Pair(PNG, "Bee"), '{"picture": "[image, 38 bytes]", "title": "Bee"}', [PNG]),
    "in a text": ({"text": b"abc"}, '{"text": "abc"}', []),
    "no bytes": ({"a": [1, {"b": None}]}, '{"a": [1, {"b": null}]}', []),
    "rows": ([{"a": 1}, {"a": 2}], '[{"a": 1}, {"a": 2}]', []),
    "a loop": (LOOP, str(LOOP), []),
    "csv block": (_block(b"a,b", "text/csv"), "a,b", []),
    "block": (_block(b"\x00\x01", OCTETS), f"[{OCTETS}, 2 bytes, not shown]", []),
    "png block": (_block(PNG, OCTETS), "[image, 38 bytes]", [PNG]),
    "wav block": (_block(WAV, "audio/wav"), "[audio, 16 bytes]", [WAV]),
}
"""Results, each with the text that the model reads and the files. Not checked if None."""


def _tool(result: object) -> StructuredTool:
    def scan() -> object:
        """Scan a page."""
        return result

    return StructuredTool.from_function(scan)


def _call(name: str = "scan") -> Reply:
    return Reply(tool_calls=[ScriptedToolCall(name=name, args={}, id="a")])


def _results(messages: Any) -> list[ToolMessage]:  # noqa: ANN401
    return [one for one in messages if isinstance(one, ToolMessage)]


def _files(message: BaseMessage) -> list[bytes]:
    """Return the bytes of the files in a message."""
    blocks: list[Any] = [*message.content_blocks]
    return [b64decode(one["base64"]) for one in blocks if "base64" in one]


@pytest.mark.parametrize(("result", "text", "found"), RESULTS.values(), ids=RESULTS)
def test_bytes_reach_the_model_as_a_file_as_text_or_as_their_number(
    result: object, text: str | None, found: list[bytes]
) -> None:
    """No result shows bytes as Python writes them, and the model receives each known file."""
    model = ScriptedChatModel([_call(), "I see.", "Well."])
    spec = chat("Scan.", tools=[_tool(result)], end_chat={"max_iterations": 1})
    done = converse(spec, model=model, store=f"memory:{uuid4().hex}")
    (answer,) = _results(done.messages)
    (shown,) = _results(model.calls[1].messages)
    if text is not None:
        assert shown.text.strip() == text.strip()
    assert _files(answer) == _files(model.calls[1].messages[-1]) == found
    for written in ("b'", 'b"', "\\\\x", "memory", "bytearray"):
        assert written not in str(model.calls[1].prompt[:-1])


def _asynchronous() -> StructuredTool:
    async def scan() -> bytes:
        """Scan a page."""
        return PNG

    return StructuredTool.from_function(coroutine=scan)


def _with_artifact() -> StructuredTool:
    def scan() -> tuple[bytes, bytes]:
        """Scan a page."""
        return PNG, b"\x80"

    return StructuredTool.from_function(scan, response_format="content_and_artifact")


@pytest.mark.parametrize("make", [_asynchronous, _with_artifact])
def test_each_kind_of_tool_returns_files_in_a_stored_session(
    make: Callable[[], StructuredTool], tmp_path: Path
) -> None:
    """The file survives a stop between the tool and the reply; an artifact stays bytes."""
    store = f"sqlite:///{tmp_path / 'talks.db'}"
    tool = make()
    spec = chat("Scan.", tools=["scan"], end_chat={"max_iterations": 1})
    fails = ScriptedChatModel([_call(), RuntimeError("gone")])
    with pytest.raises(RuntimeError):
        list(stream(spec, model=fails, tools=[tool], session="s", store=store))
    model = ScriptedChatModel(["I see.", "Well."])
    result = Session("s", store=store).resume(model=model, tools=[tool])
    (answer,) = _results(result.messages)
    assert answer.artifact == (b"\x80" if make is _with_artifact else None)
    assert _files(model.calls[0].messages[-1]) == [PNG]
