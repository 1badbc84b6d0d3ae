"""Bytes in the results of tools."""

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool
from pydantic import BaseModel

from duologue.graphs import Session, chat, converse, stream
from duologue.graphs.common.content import bytes_of_file, files_of
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall

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
    "a loop": (LOOP, str(LOOP), []),
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
    assert [bytes_of_file(one) for one in files_of(answer.content)] == found
    assert [bytes_of_file(one) for one in files_of(model.calls[1].messages[-1].content)] == found
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
    assert [bytes_of_file(one) for one in files_of(model.calls[0].messages[-1].content)] == [PNG]


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"a,b", "text/csv", "a,b"),
        (b"\x00\x01", "application/octet-stream", "[application/octet-stream, 2 bytes, not shown]"),
        (PNG, "application/octet-stream", "[image, 38 bytes]"),
        (WAV, "audio/wav", "[audio, 16 bytes]"),
    ],
)
def test_a_block_with_bytes_is_read_by_its_bytes(data: bytes, kind: str, text: str) -> None:
    """Servers of MCP send such blocks for the resources in a result."""
    type_ = "audio" if kind.startswith("audio") else "file"
    block = {"type": type_, "base64": b64encode(data).decode(), "mime_type": kind}
    model = ScriptedChatModel([_call(), "I see.", "Well."])
    spec = chat("Scan.", tools=[_tool([block])], end_chat={"max_iterations": 1})
    converse(spec, model=model, store=f"memory:{uuid4().hex}")
    (shown,) = _results(model.calls[1].messages)
    assert shown.text == text
