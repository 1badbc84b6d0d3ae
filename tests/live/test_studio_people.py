"""People on the real dev server, answering as Studio and the SDK do: interrupt, answer, resume."""

import asyncio
from typing import Any

import pytest
from langgraph_sdk.client import LangGraphClient

from duologue.nodes.testing.server import ScriptedServer

from .conftest import BESIDE, new_thread, run_graph

pytestmark = [pytest.mark.live, pytest.mark.exhaustive]

PROXY: dict[str, Any] = {
    "message": "Count on.",
    "code": False,
    "assistant_prompt": "You count with {user}.",
}


async def answer(
    client: LangGraphClient,
    on: str,
    graph: str,
    said: Any,  # noqa: ANN401
) -> dict[str, Any]:
    return await run_graph(client, on, None, graph, command={"resume": said})


async def asked(client: LangGraphClient, on: str) -> list[dict[str, Any]]:
    """Return the questions that the thread waits for."""
    state = await client.threads.get_state(on)
    return [dict(one) for one in state["interrupts"]]


def said(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (message["name"], message["content"])
        for message in found["messages"]
        if message["additional_kwargs"]["duologue"]["kind"] == "speech"
    ]


async def test_a5_a_person_is_asked_answers_and_it_goes_on(client: LangGraphClient) -> None:
    on = await new_thread(client)
    given = PROXY | {"human_input_mode": "terminate", "max_consecutive_auto_reply": 1}
    found = await run_graph(client, on, given, "user_proxy")
    assert said(found)[-1] == ("Assistant", "I count 1.")
    assert (await client.threads.get(on))["status"] == "interrupted"
    (question,) = await asked(client, on)
    assert question["value"]["because"] == "max_consecutive_auto_reply"
    assert question["value"]["heard"] == "I count 1."
    assert question["response_schema"]["type"] == "string"

    found = await answer(client, on, "user_proxy", "Now faster.")
    assert said(found)[-4] == ("User", "Now faster.")
    (later,) = await asked(client, on)
    assert later["id"] != question["id"]

    found = await answer(client, on, "user_proxy", " Exit ")
    assert found["outcome"]["reasons"] == ["quit"]
    assert found["outcome"]["by"] == "User"
    assert not await asked(client, on)


async def test_an_answer_that_does_not_fit_has_the_same_question_asked_again(
    client: LangGraphClient, model_server: ScriptedServer
) -> None:
    on = await new_thread(client)
    await run_graph(client, on, {"assistant_prompt": "You count with {user}."}, "chat")
    (question,) = await asked(client, on)
    before = len(model_server.calls)
    for bad, words in ((5, "must be text"), ({"text": "hi"}, "must be text"), (" ", "empty")):
        found = await answer(client, on, "chat", bad)
        assert "__error__" not in found
        assert (await client.threads.get(on))["status"] == "interrupted"
        (again,) = await asked(client, on)
        assert words in again["value"].pop("problem")
        assert again == question
    assert len(model_server.calls) == before
    found = await answer(client, on, "chat", "Good morning")
    assert said(found) == [("User", "Good morning"), ("Assistant", "I count 0.")]


# Approval

SUMS: dict[str, Any] = {
    "message": "6 * 7",
    "assistant_prompt": "You add up for {user}.",
    "tools": ["calculator"],
    "interrupt_on": {"calculator": True},
}
OTHER = {"name": "calculator", "args": {"expression": "6 * 8"}}


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        pytest.param({"type": "approve"}, "So: 42", id="approve"),
        pytest.param({"type": "edit", "edited_action": OTHER}, "48", id="edit"),
        pytest.param({"type": "reject", "message": "By heart!"}, "Reason: By heart!", id="no"),
        pytest.param({"type": "respond", "message": "43, say I."}, "So: 43, say I.", id="respond"),
    ],
)
async def test_a_person_decides_in_langchains_shape(
    decision: dict[str, Any], told: str, client: LangGraphClient
) -> None:
    """A question has the shape that user interfaces for LangChain's middleware show."""
    on = await new_thread(client)
    found = await run_graph(client, on, SUMS, "chat")
    assert (await client.threads.get(on))["status"] == "interrupted"
    (question,) = await asked(client, on)
    assert set(question["value"]) == {"action_requests", "review_configs"}
    (request,), (review,) = (
        question["value"]["action_requests"],
        question["value"]["review_configs"],
    )
    assert (request["name"], request["args"]) == ("calculator", {"expression": "6 * 7"})
    assert review["action_name"] == "calculator"
    assert review["allowed_decisions"] == ["approve", "edit", "reject", "respond"]

    await answer(client, on, "chat", {"decisions": []})
    (again,) = await asked(client, on)
    assert "0 decisions for 1 waiting call;" in again["value"].pop("problem")
    assert again == question

    found = await answer(client, on, "chat", {"decisions": [decision]})
    assert told in said(found)[-1][1]
    (later,) = await asked(client, on)
    assert later["value"]["because"] == "turn"
    found = await answer(client, on, "chat", "exit")
    assert found["outcome"]["reasons"] == ["quit"]


# Following it


async def test_g1_what_is_said_beside_a_call_is_told_as_it_comes(client: LangGraphClient) -> None:
    on = await new_thread(client)
    given = {name: field for name, field in SUMS.items() if name != "interrupt_on"}
    parts: list[dict[str, str]] = []
    async for part in client.runs.stream(on, "chat", input=given, stream_mode="custom"):
        found: Any = part.data
        if part.event == "custom" and "speech" in found:
            parts.append(found["speech"])
    assert {part["speaker"] for part in parts} == {"Assistant"}
    assert "".join(part["text"] for part in parts) == BESIDE
    assert len(parts) > 3
    # The tool never sees the text, and the person is asked after the reply is complete.
    (question,) = await asked(client, on)
    assert question["value"]["heard"] == f"{BESIDE}\n\nSo: 42"


# Taking over


async def test_a_copy_of_a_waiting_thread_goes_its_own_way(client: LangGraphClient) -> None:
    on = await new_thread(client)
    await run_graph(client, on, PROXY, "user_proxy")
    # The SDK's type says that it returns nothing.
    copied: Any = await client.threads.copy(on)  # type: ignore[func-returns-value]
    copy = str(copied["thread_id"])
    ways = {on: "Slower.", copy: "Faster."}
    for where, text in ways.items():
        found = await answer(client, where, "user_proxy", text)
        assert said(found)[-2:] == [("User", text), ("Assistant", "I count 1.")]
    for where, text in ways.items():
        values: Any = (await client.threads.get_state(where))["values"]
        texts = [message["content"] for message in values["messages"]]
        assert [one for one in texts if one in ways.values()] == [text]


async def test_a_run_is_stopped_and_a_later_one_goes_on(
    client: LangGraphClient, model_server: ScriptedServer
) -> None:
    on = await new_thread(client)
    number = len(model_server.calls)
    model_server.hold(number)
    run = await client.runs.create(on, "user_proxy", input=PROXY)
    await asyncio.to_thread(model_server.wait_for, number + 1, 60)
    await client.runs.cancel(on, run["run_id"], wait=True, action="interrupt")
    model_server.release()
    found = await client.runs.wait(on, "user_proxy", input=None, raise_error=False)
    assert isinstance(found, dict)
    assert said(found) == [("User", "Count on."), ("Assistant", "I count 0.")]
    assert len(await asked(client, on)) == 1
