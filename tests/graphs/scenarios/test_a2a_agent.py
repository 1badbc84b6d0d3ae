"""An agent at an A2A endpoint: its requests, the forms of its answers, and its errors."""

import json
from typing import Any

import pytest

from duologue import AgentError, Scenario, simulate
from duologue.graphs.scenarios import SimulationResult
from duologue.nodes.testing import ScriptedChatModel
from support.faulty_server import Body, FaultyServer, Sent
from support.tables import each_row


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
        (Sent(b'{"result": {"status": {"state": "failed"}}}'), "its task is failed: no reason"),
    ],
)
def test_an_endpoint_that_does_not_reply_is_one_error(sent: Sent, words: str) -> None:
    with FaultyServer(lambda path, body: sent) as server:
        url = f"{server.url}/a2a"
        with pytest.raises(AgentError) as caught:
            play(url, "Refund it.")
    said = f"agent: the A2A endpoint {url} does not reply: {words}; check its address and its log"
    assert said in str(caught.value)
    with pytest.raises(AgentError, match="does not reply: ConnectError"):
        play(url, "Refund it.")


@pytest.mark.parametrize("refused", [None, -32601, -32009])
@each_row("a2a_answers", "results", "reply")
def test_each_form_of_answer_of_both_versions_is_read(
    results: list[dict[str, Any]], reply: str, refused: int | None
) -> None:
    """An endpoint of version 1.0 may refuse requests of version 0.3."""
    asked: list[Body] = []
    left = iter(results)

    def answer(_: str, body: Body) -> Sent:
        if refused is not None and body["method"] in ("message/send", "tasks/get"):
            error = {"code": refused, "message": "no"}
            return Sent(json.dumps({"id": body["id"], "error": error}).encode())
        asked.append(body)
        return Sent(json.dumps({"id": body["id"], "result": next(left)}).encode())

    with FaultyServer(answer) as server:
        result = play(f"{server.url}/", "Refund it.")
    assert f"2. Agent: {reply}" in result.report()
    assert (result.at_fault == "agent") == (reply == "(no reply)")
    sends, gets = ("message/send", "tasks/get") if refused is None else ("SendMessage", "GetTask")
    assert [one["method"] for one in asked] == [sends] + [gets] * (len(results) - 1)
    assert all(one["params"]["id"] == "t1" for one in asked[1:])
    role = "user" if refused is None else "ROLE_USER"
    assert asked[0]["params"]["message"]["role"] == role


@pytest.mark.parametrize("result", [{}, {"kind": "task"}, {"answer": "Refunded."}])
def test_an_answer_of_an_unknown_form_is_an_error_and_no_blank_reply(result: Any) -> None:  # noqa: ANN401
    sent = Sent(json.dumps({"result": result}).encode())
    with (
        FaultyServer(lambda path, body: sent) as server,
        pytest.raises(AgentError, match="does not reply: it answered 200"),
    ):
        play(f"{server.url}/", "Refund it.")


def test_an_assistant_of_a_langgraph_server_is_found_by_its_name() -> None:
    uuid = "7d3dc0a4-6a5c-4b3f-9d0c-0a8c0a6f6c11"
    paths: list[str] = []

    def answer(path: str, body: Body) -> Sent:
        paths.append(path)
        if path == "/assistants/search":
            return Sent(json.dumps([{"assistant_id": uuid}]).encode())
        if path != f"/a2a/{uuid}":
            return Sent(b"{}", status=404)
        return Sent(
            json.dumps({"id": body["id"], "result": {"message": text("Refunded.")}}).encode()
        )

    with FaultyServer(answer) as server:
        result = play(f"{server.url.removesuffix('/v1')}/a2a/shop", "Refund it.", "Again.")
    assert [text for name, text in result.transcript if name == "Agent"] == ["Refunded."] * 2
    assert paths == ["/a2a/shop", "/assistants/search", f"/a2a/{uuid}", f"/a2a/{uuid}"]
