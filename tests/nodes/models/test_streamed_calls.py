"""Tool calls run with the right arguments, in whatever pieces a server streams them (Y19)."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from duologue import chat, converse
from support.faulty_server import Body, FaultyServer, Sent

SHAPES = tomllib.loads(Path(__file__).with_name("streamed_calls.toml").read_text())["shape"]


def sent_piece(piece: dict[str, Any]) -> dict[str, Any]:
    """Return a piece in the form of OpenAI's API."""
    outer: dict[str, Any] = {key: piece[key] for key in ("index", "id") if key in piece}
    return {**outer, "function": {key: piece[key] for key in ("name", "arguments") if key in piece}}


def events_of(*deltas: dict[str, Any], finish: str) -> Sent:
    """Return a streamed reply."""
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "finish_reason": None} for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    lines = [f"data: {json.dumps({'choices': [one]})}\n\n" for one in choices]
    body = "".join([*lines, "data: [DONE]\n\n"]).encode()
    return Sent(body, headers={"Content-Type": "text/event-stream"})


@pytest.mark.parametrize("shape", SHAPES, ids=[shape["name"] for shape in SHAPES])
def test_streamed_calls_run_with_their_arguments(
    shape: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    bodies: list[Body] = []

    def look(city: str, more: dict[str, int] | None = None) -> str:
        """Look at a city."""
        ran.append(f"look {city}")
        return "Sunny"

    def look_up(city: str) -> str:
        """Look a city up."""
        ran.append(f"look_up {city}")
        return "Found"

    def clock() -> str:
        """Return the time."""
        ran.append("clock")
        return "Noon"

    def answer(_: str, body: Body) -> Sent:
        bodies.append(body)
        if any(message["role"] == "tool" for message in body["messages"]):
            return events_of({"content": "Done."}, finish="stop")
        calls = [[*map(sent_piece, event)] for event in shape["events"]]
        if "older" in shape:
            return events_of(
                *({"function_call": one["function"]} for event in calls for one in event),
                finish="function_call",
            )
        return events_of(*({"tool_calls": event} for event in calls), finish="tool_calls")

    talk = chat(
        "Weather?",
        assistant="Clerk",
        tools=[look, look_up, clock],
        end_chat={"max_iterations": 1},
    )
    with FaultyServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        result = converse(talk, model="m", store="memory:")
    assert sorted(ran) == shape["ran"]
    assert result.messages[-1].text == "Done."
    results = [one["content"] for one in bodies[-1]["messages"] if one["role"] == "tool"]
    assert len(results) == max(len(ran), 1)
    if "error" in shape:
        assert results[0].startswith(shape["error"])
