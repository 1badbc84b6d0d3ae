"""A served conversation on the real dev server: by its SDK, as Studio and an MCP client see it."""

from typing import Any

import pytest
from langgraph_sdk.client import LangGraphClient

from duologue.graphs import role_play
from duologue.nodes.testing.server import ScriptedServer

from .conftest import mcp_session, new_thread

pytestmark = [pytest.mark.live, pytest.mark.exhaustive]

GARDEN = role_play("Plan a kitchen garden", "Cook", "Gardener", specify_task=False)


async def run(client: LangGraphClient, given: Any, on: str | None = None, **how: Any) -> Any:  # noqa: ANN401
    on = on or await new_thread(client)
    return await client.runs.wait(on, "garden", input=given, raise_error=False, **how)


def tasks(server: ScriptedServer, since: int) -> set[str]:
    """Return the tasks of the system prompts since a call."""
    systems = [call.body["messages"][0]["content"] for call in server.calls[since:]]
    return {text.partition("common task: ")[2].partition("\n")[0] for text in systems}


@pytest.mark.parametrize("given", [None, {}, {"messages": []}])
async def test_it_is_run_without_an_input(
    given: Any,  # noqa: ANN401
    client: LangGraphClient,
    model_server: ScriptedServer,
) -> None:
    before = len(model_server.calls)
    found = await run(client, given)
    assert found["outcome"]["reasons"] == ["done_token"]
    assert tasks(model_server, before) == {"Plan a kitchen garden"}


async def test_each_message_is_a_task(
    client: LangGraphClient, model_server: ScriptedServer
) -> None:
    on = await new_thread(client)
    for task in ("Plan a balcony", "Plan a roof"):
        before = len(model_server.calls)
        message = {"role": "user", "content": task}
        found = await run(client, {"messages": [message]}, on)
        assert found["outcome"]["reasons"] == ["done_token"]
        assert tasks(model_server, before) == {task}


async def test_nothing_that_a_client_sends_changes_it(
    client: LangGraphClient, model_server: ScriptedServer
) -> None:
    before = len(model_server.calls)
    other = GARDEN.replace(model="big", sandbox="host", max_tool_rounds=1)
    refused = await run(client, {"conversation": other.stored()})
    assert "conversation: this graph always runs the same" in refused["__error__"]["message"]
    assert len(model_server.calls) == before
    context = {"model": "big", "temperature": 2, "user_prompt": "You rest."}
    on = await new_thread(client)
    hello: Any = {"messages": "Plan a balcony", "spec": other.stored(), "model": "big"}
    await run(client, hello, on, context=context)
    await client.threads.update_state(on, {"spec": other.stored()}, as_node="task_specification")
    await run(client, {"messages": "Plan a roof"}, on, context=context)
    update: Any = {"update": {"spec": other.stored(), "conversation": other.stored()}}
    await run(client, None, on, command=update)
    models = [call.body["model"] for call in model_server.calls[before:]]
    assert models
    assert set(models) == {"scripted"}
    assert {call.body["temperature"] for call in model_server.calls[before:]} == {0.2}


async def test_its_tools_use_the_servers_store_and_the_runs_context(
    client: LangGraphClient,
) -> None:
    on = await new_thread(client)
    for user in ("Zoe", "Max"):
        found: Any = await client.runs.wait(on, "notes", input={}, context={"user": user})
    kept = await client.store.get_item(["Zoe"], "fact")
    assert kept["value"] == {"text": "bees"}
    state: Any = await client.threads.get_state(on)
    (result,) = [one for one in state["values"]["messages"] if one["type"] == "tool"]
    assert result["content"] == "Noted for Zoe."
    # The server writes bytes in base64.
    assert result["artifact"] == {"fact": "bees", "data": "/w=="}
    assert found["messages"] == state["values"]["messages"]


async def test_studio_shows_its_own_schema(client: LangGraphClient) -> None:
    (assistant,) = await client.assistants.search(graph_id="garden")
    schemas: Any = await client.assistants.get_schemas(assistant["assistant_id"])
    assert (assistant["name"], assistant["description"]) == ("garden", "Plans gardens.")
    shown = schemas["input_schema"]
    assert [*shown["properties"]] == ["messages"]
    assert shown["description"] == "Plan a garden. A conversation of Cook and Gardener."
    assert schemas["context_schema"]["properties"] == {}


async def test_an_mcp_client_calls_it_with_a_message(
    client: LangGraphClient, model_server: ScriptedServer
) -> None:
    before = len(model_server.calls)
    async with mcp_session(client) as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        called = await session.call_tool("garden", {"messages": "Plan a balcony"})
    assert tools["garden"].description == "Plans gardens."
    assert [*tools["garden"].inputSchema["properties"]] == ["messages"]
    assert not called.isError
    assert "step 1 is done." in str(called.content)
    assert tasks(model_server, before) == {"Plan a balcony"}
