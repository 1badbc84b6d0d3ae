"""An agent at an A2A endpoint: its requests, the forms of its answers, and its errors."""

import json
from typing import Any

import pytest

from duologue import Scenario, SpecError, simulate
from duologue.graphs.scenarios import SimulationResult
from duologue.nodes.testing import ScriptedChatModel
from support.faulty_server import Body, FaultyServer, Sent


def play(url: str, *says: str) -> SimulationResult:
    model = ScriptedChatModel([*says, "###STOP###"])
    return simulate(Scenario("Get a refund."), f"a2a:{url}", model=model, store="memory:")


def text(words: str) -> dict[str, Any]:
    return {"parts": [{"kind": "text", "text": words}]}


def test_an_endpoint_replies_with_tasks_and_messages_in_one_context() -> None:
    asked: list[Body] = []
    ids = {"id": "t1", "contextId": "c1"}
    question = {"kind": "data", "data": {"id": "x", "value": "Sure?"}}
    answers: list[dict[str, Any]] = [
        ids | {"status": {"state": "input-required"}, "artifacts": [{"parts": [question]}]},
        ids | {"status": {"state": "completed"}, "artifacts": [text("Refunded."), text("Bye.")]},
        {"kind": "message", "contextId": "c1", **text("You are welcome.")},
        ids | {"status": {"state": "completed", "message": text("Nothing else.")}},
    ]

    def answer(_: str, body: Body) -> Sent:
        asked.append(body)
        result = answers[len(asked) - 1]
        return Sent(json.dumps({"jsonrpc": "2.0", "id": body["id"], "result": result}).encode())

    with FaultyServer(answer) as server:
        result = play(f"{server.url}/a2a", "Refund it.", "Yes.", "Thanks a lot, and now?", "So?")
    said = [words for name, words in result.transcript if name == "Agent"]
    assert said == ["Sure?", "Refunded.\nBye.", "You are welcome.", "Nothing else."]
    messages = [one["params"]["message"] for one in asked]
    assert [one["parts"][0]["text"] for one in messages][:2] == ["Refund it.", "Yes."]
    assert [one.get("contextId") for one in messages] == [None, "c1", "c1", "c1"]
    # Only a task that requires input continues.
    assert [one.get("taskId") for one in messages] == [None, "t1", None, None]
    assert {one["method"] for one in asked} == {"message/send"}


@pytest.mark.part(1)
@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (Sent(b"no such path", status=404), "it answered 404 no such path"),
        (Sent(b'{"error": {"message": "busy"}}'), 'it answered 200 {"error": {"message": "busy"}}'),
        (
            Sent(
                json.dumps(
                    {"result": {"status": {"state": "failed", "message": text("!")}}}
                ).encode()
            ),
            "its task is failed: !",
        ),
    ],
)
def test_an_endpoint_that_does_not_reply_is_one_error(sent: Sent, words: str) -> None:
    with FaultyServer(lambda path, body: sent) as server:
        url = f"{server.url}/a2a"
        with pytest.raises(SpecError) as caught:
            play(url, "Refund it.")
    said = f"agent: the A2A endpoint {url} does not reply: {words}; check its address and its log"
    assert said in str(caught.value)
    with pytest.raises(SpecError, match="does not reply: ConnectError"):
        play(url, "Refund it.")
