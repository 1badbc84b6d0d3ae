"""The real dev server, offline, used in the way Studio does."""

import asyncio
import re
from typing import Any

import pytest
from langgraph_sdk.client import LangGraphClient

from duologue.nodes.testing.server import ScriptedServer
from support.graphs import forms_by_kind
from support.installed import shaped
from support.tables import read_rows

from .conftest import DevServer, input_schema, mcp_session, new_thread, page_blocks, run_graph

pytestmark = [pytest.mark.live, pytest.mark.exhaustive]

FORM: dict[str, Any] = {"task": "Plan a garden", "user_role": "Owner", "assistant_role": "Gardener"}


def untimed(found: dict[str, Any]) -> dict[str, Any]:
    """Return a run's values without its duration and its messages' ids."""
    messages = [message | {"id": None} for message in found["messages"]]
    return found | {"outcome": found["outcome"] | {"seconds": None}, "messages": messages}


def contents(state: dict[str, Any]) -> list[str]:
    """Return the texts of a state's messages."""
    return [message["content"] for message in state["messages"]]


async def test_the_messages_of_a_thread_are_what_was_said_and_no_more(
    client: LangGraphClient,
) -> None:
    on = await new_thread(client)
    found = await run_graph(client, on, FORM)
    # The done token is in `unspoken`.
    assert found["outcome"]["messages"] == len(found["messages"]) + 1 == 5
    assert {message["name"] for message in found["messages"]} == {"Owner", "Gardener"}
    assert "unspoken" not in found
    state: Any = await client.threads.get_state(on)
    kinds = [one["additional_kwargs"]["duologue"]["kind"] for one in state["values"]["unspoken"]]
    assert kinds[:2] == ["specified_task", "instruction"]


@pytest.mark.parametrize(("graph", "required", "others"), read_rows(__file__, "fields_of_forms"))
async def test_a_form_needs_few_fields_and_describes_each(
    graph: str, required: list[str], others: list[str], client: LangGraphClient
) -> None:
    """A10, L8."""
    schema = await input_schema(client, graph)
    assert sorted(schema.get("required", [])) == required
    assert {*others} < set(schema["properties"])
    parts = ("Speaker", "EndChat", "Guards") if graph == "group_solve" else ()
    for shape in [schema, *(schema["$defs"][name] for name in parts)]:
        for name, field in shape["properties"].items():
            assert field.get("description"), name


async def test_a_run_ends_with_an_outcome_and_is_not_run_twice(
    client: LangGraphClient, model_server: ScriptedServer
) -> None:
    before = len(model_server.calls)
    on = await new_thread(client)
    first = await run_graph(client, on, FORM)
    assert first["outcome"]["reasons"] == ["done_token"]
    assert first["outcome"]["messages"] == 5
    assert first["specified_task"] == "A better task."
    assert len(model_server.calls) - before == 6
    again = await run_graph(client, on, FORM)
    # For a run that adds nothing, the server returns the thread's whole state.
    assert {name: again[name] for name in first} == first
    assert len(model_server.calls) - before == 6


@pytest.mark.exhaustive
async def test_a_thread_of_many_rounds_is_read_and_run_again_from_a_checkpoint(
    client: LangGraphClient,
) -> None:
    given = FORM | {"task": "Go on for ever", "specify_task": False, "max_iterations": 60}
    on = await new_thread(client)
    found = await run_graph(client, on, given)
    assert found["outcome"]["messages"] == 120
    state: Any = await client.threads.get_state(on)
    assert state["values"]["messages"] == found["messages"]
    history: Any = await client.threads.get_history(on, limit=200)
    assert len(history) > 120
    (*_, place) = (one for one in history if len(one["values"]["messages"]) == 110)
    again = await run_graph(client, on, None, checkpoint=place["checkpoint"])
    assert again["messages"][:110] == found["messages"][:110]
    assert contents(again) == contents(found)
    state = await client.threads.get_state(on)
    assert state["values"]["messages"] == again["messages"]
    assert len(await client.threads.get_history(on, limit=500)) > len(history)


@pytest.mark.exhaustive
async def test_a_message_that_is_edited_at_an_earlier_checkpoint_is_read_again(
    client: LangGraphClient, model_server: ScriptedServer
) -> None:
    on = await new_thread(client)
    await run_graph(client, on, FORM | {"task": "Go on for ever", "max_iterations": 2})
    history: Any = await client.threads.get_history(on, limit=50)
    (*_, place) = (one for one in history if len(one["values"].get("messages", ())) == 3)
    newest = place["values"]["messages"][-1]
    edited = {"type": "ai", "id": newest["id"], "content": "<CAMEL_TASK_DONE>"}
    fork: Any = await client.threads.update_state(
        on, {"messages": [edited]}, checkpoint=place["checkpoint"]
    )
    before = len(model_server.calls)
    ended = await run_graph(client, on, None, checkpoint=fork["checkpoint"])
    assert ended["outcome"]["reasons"] == ["done_token"]
    # The token is in `unspoken` now, so that the last message is the output.
    assert len(contents(ended)) == 2
    state: Any = await client.threads.get_state(on)
    (token,) = (one for one in state["values"]["unspoken"] if one["id"] == newest["id"])
    assert "parsed" not in token["additional_kwargs"]["duologue"]
    assert len(model_server.calls) == before


@pytest.mark.exhaustive
async def test_an_assistant_sets_model_temperature_and_prompts(
    client: LangGraphClient, model_server: ScriptedServer
) -> None:
    context: Any = {"model": "big", "temperature": 0.7, "user_prompt": "You lead {other}."}
    made = await client.assistants.create("role_play", context=context)
    schemas = await client.assistants.get_schemas(made["assistant_id"])
    shown: Any = schemas["context_schema"]
    assert {*context, "assistant_prompt", "prompts"} == set(shown["properties"])
    assert schemas["config_schema"] is not None

    async def asked(on: str, **how: Any) -> list[tuple[str, float, bool]]:
        before = len(model_server.calls)
        given = FORM | {"specify_task": False, "max_iterations": 1, "task": "Go on for ever"}
        await run_graph(client, on, given, made["assistant_id"], **how)
        bodies = [call.body for call in model_server.calls[before:]]
        return [
            (one["model"], one["temperature"], "You lead Gardener." in str(one["messages"][0]))
            for one in bodies
        ]

    assert await asked(await new_thread(client)) == [("big", 0.7, True), ("big", 0.7, False)]
    # A run's own context has priority, also in the form of older clients of the server.
    own: Any
    for own in ({"context": {"model": "small"}}, {"config": {"configurable": {"model": "small"}}}):
        found = await asked(await new_thread(client), **own)
        assert found == [("small", 0.7, True), ("small", 0.7, False)]
    # A thread keeps the settings that it began with.
    on = await new_thread(client)
    assert await asked(on, interrupt_after=["user_agent"]) == [("big", 0.7, True)]
    await client.assistants.update(made["assistant_id"], context={"model": "small"})
    assert await asked(on) == [("big", 0.7, False)]
    await client.assistants.delete(made["assistant_id"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("model", ["/etc/passwd.gguf", "http://10.0.0.1/v1"])
async def test_no_client_names_a_file_or_an_address(model: str, client: LangGraphClient) -> None:
    for given, context in ((FORM | {"model": model}, {}), (FORM, {"model": model})):
        found = await run_graph(client, await new_thread(client), given, context=context)
        assert "a file or an address, which is not allowed here" in found["__error__"]["message"]


@pytest.mark.exhaustive
async def test_each_graph_is_a_tool_of_its_own_at_the_mcp_endpoint(
    client: LangGraphClient,
) -> None:
    async with mcp_session(client) as session:
        listed = await session.list_tools()
        called = await session.call_tool("role_play", FORM)
    assert sorted(tool.name for tool in listed.tools) == sorted(
        [*forms_by_kind(), "garden", "notes"]
    )
    found = {one["graph_id"]: one["description"] for one in await client.assistants.search()}
    for tool in listed.tools:
        assert tool.description
        assert tool.description == found[tool.name]
    assert not called.isError
    assert "the done token" in str(called.content)


@pytest.mark.exhaustive
async def test_a_cancelled_run_goes_on_without_repeating_an_answered_call(
    client: LangGraphClient, model_server: ScriptedServer
) -> None:
    reference = untimed(await run_graph(client, await new_thread(client), FORM))
    asked = [call.body for call in model_server.calls[-6:]]
    before = len(model_server.calls)
    on = await new_thread(client)
    model_server.hold(before + 3)
    started = await client.runs.create(on, "role_play", input=FORM)
    await asyncio.to_thread(model_server.wait_for, before + 4, 30)
    await client.runs.cancel(on, started["run_id"], wait=True)
    model_server.release()
    assert untimed(await run_graph(client, on, FORM)) == reference
    found = [call.body for call in model_server.calls[before:]]
    assert found == asked[:4] + asked[3:]


GROUP: dict[str, Any] = read_rows(__file__, "studio_group")


@pytest.mark.exhaustive
async def test_a_moderator_and_a_separate_judge_are_asked_there_too(
    client: LangGraphClient,
) -> None:
    spec = read_rows(__file__, "moderated")
    found = await run_graph(client, await new_thread(client), {"conversation": spec}, "group_solve")
    assert found["outcome"]["explanations"] == ["the judge found all criteria met"]
    said = [
        message["name"] for message in found["messages"] if message["content"].startswith("This")
    ]
    assert said == ["Ann", "Cy", "Ben", "Cy", "Ben", "Cy", "Ben", "Cy"]


FORMS = {"role_play": FORM, "group_solve": GROUP, "blogger": {"task": "A post on bees"}}
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("role_play", {"task": None}, "task: is missing"),
    *read_rows(__file__, "bad_forms"),
    *(
        ("role_play", {"conversation": shaped(**change)}, words)
        for change, words in (
            *read_rows(__file__, "bad_names"),
            ({"author": {"tools": ["spade"], "format": None}}, "there is no tool 'spade'; pass it"),
        )
    ),
]


@pytest.mark.parametrize(("graph", "given", "words"), BAD)
async def test_a_bad_input_is_one_error_before_a_model_is_called(
    graph: str,
    given: dict[str, Any],
    words: str,
    client: LangGraphClient,
    model_server: ScriptedServer,
) -> None:
    """A10, L1, L4, L5, L9."""
    before = len(model_server.calls)
    if "conversation" not in given:
        given = FORMS.get(graph, {}) | given
    found = await run_graph(client, await new_thread(client), given, graph)
    assert words in found["__error__"]["message"]
    assert found["__error__"]["message"].count("\n") == 0
    assert len(model_server.calls) == before


async def test_what_a_package_offers_by_entry_points_is_found_there(
    client: LangGraphClient, model_server: ScriptedServer
) -> None:
    """L1, L4, L5, L9: function, hook, schema and token budget; none of them blocks."""
    before = len(model_server.calls)
    found = await run_graph(client, await new_thread(client), {"conversation": shaped()})
    assert found["outcome"]["reasons"] == ["max_iterations"]
    said = [
        message["content"]
        for message in found["messages"]
        if message["name"] == "Author" and message["additional_kwargs"]["duologue"].get("parsed")
    ]
    assert said[0] == '{"bed": "BED 0"}'
    rain = [message["content"] for message in found["messages"] if message["name"] == "Weather"]
    assert rain[0].startswith(f"It rains on {said[0]} and rains")
    lengths = [len(call.body["messages"]) for call in model_server.calls[before:]]
    assert len(lengths) == 6
    # The prompt grows, is cut, and grows again.
    assert sorted(lengths) != lengths


@pytest.mark.exhaustive
@pytest.mark.parametrize("level", ["monty", "auto"])
async def test_a_coder_runs_its_code_and_has_the_last_word(
    level: str, client: LangGraphClient
) -> None:
    """L8: the dev server would report a blocking call as an error."""
    given = {"task": "What is 6 times 7?", "sandbox": {"level": level}}
    found = await run_graph(client, await new_thread(client), given, "coder")
    assert found["outcome"]["reasons"] == ["no_code_block"]
    said = [message["content"] for message in found["messages"] if message["name"] == "Executor"]
    assert [text for text in said if text] == [
        "Exit code: 0 (it succeeded)\nOutput:\nThe code ran and printed nothing.",
        "Exit code: 0 (it succeeded)\nOutput:\n42",
    ]


async def test_the_tools_that_duologue_brings_do_not_block(client: LangGraphClient) -> None:
    """Z6, L6, G4."""
    spec = read_rows(__file__, "uses_tools")
    found = await run_graph(client, await new_thread(client), {"conversation": spec})
    told = next(
        message["content"].split(" | ")
        for message in found["messages"]
        if message["name"] == "Ann" and message["content"]
    )
    assert [text.strip() for text in told[:3]] == ["42", "42", "There are no messages yet."]
    assert told[3].endswith(" UTC")
    assert told[4] == "The secret number is higher than 6."


async def test_the_client_on_the_page_about_studio_runs_a_role_play(
    dev_server: DevServer, capsys: pytest.CaptureFixture[str]
) -> None:
    code = page_blocks("py")[0]
    assert "http://127.0.0.1:2024" in code
    shown = code.replace("http://127.0.0.1:2024", dev_server.url)
    await asyncio.to_thread(exec, compile(shown, "studio.md", "exec"), {})
    printed = capsys.readouterr().out
    assert re.match("Cook: Instruction: .*Gardener: Solution: ", printed, re.DOTALL)
    assert printed.endswith("['Cook said the done token']\n")
