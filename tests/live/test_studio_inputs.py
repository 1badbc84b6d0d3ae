"""Inputs on the real dev server: messages in every form, refused inputs, and removed messages."""

import asyncio
from typing import Any

import httpx
import pytest
from langgraph_sdk.client import LangGraphClient

from .conftest import new_thread, run_graph, text_of

pytestmark = [pytest.mark.live, pytest.mark.exhaustive]

COUNTS: dict[str, Any] = {"assistant_prompt": "You count with {user}."}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/bee.png"}}
OTHER: dict[str, Any] = {"assistant_prompt": "You plan with {user}."}


class Thread:
    """A thread of the graph ``chat``."""

    def __init__(self, client: LangGraphClient, thread: str) -> None:
        self._client, self._thread = client, thread

    @classmethod
    async def new(cls, client: LangGraphClient) -> "Thread":
        return cls(client, await new_thread(client))

    async def run(self, given: Any = None, **how: Any) -> dict[str, Any]:  # noqa: ANN401
        return await run_graph(self._client, self._thread, given, "chat", **how)

    async def refuse(self, given: Any) -> str:  # noqa: ANN401
        found = await self.run(given)
        return str(found["__error__"]["message"])

    async def texts(self) -> list[str]:
        state: Any = await self._client.threads.get_state(self._thread)
        return [text_of(one) for one in state["values"]["messages"]]

    async def state(self) -> Any:  # noqa: ANN401
        return await self._client.threads.get_state(self._thread)

    async def write(self, values: dict[str, Any]) -> None:
        await self._client.threads.update_state(self._thread, values)


FORMS: list[Any] = [
    ["hi"],
    "hi",
    [["user", "hi"]],
    {"role": "user", "content": "hi"},
    [{"role": "user", "content": "hi"}],
    [{"type": "human", "content": [{"type": "text", "text": "hi"}]}],
]


async def test_each_form_of_a_message_is_read_as_langgraph_reads_it(
    client: LangGraphClient,
) -> None:
    await asyncio.gather(*(_says(client, form) for form in FORMS))


async def _says(client: LangGraphClient, form: Any) -> None:  # noqa: ANN401
    on = await Thread.new(client)
    said: list[str] = []
    for number in range(2):
        await on.run({"messages": form} | COUNTS)
        said += ["hi", f"I count {number}."]
        assert await on.texts() == said


async def test_a_message_written_to_a_state_is_answered(client: LangGraphClient) -> None:
    on = await Thread.new(client)
    await on.run({"messages": ["One"]} | COUNTS)
    await on.write({"messages": [{"role": "user", "content": "Two"}]})
    await on.run(None)
    assert await on.texts() == ["One", "I count 0.", "Two", "I count 1."]


async def test_a_write_that_is_no_message_is_the_clients_fault(client: LangGraphClient) -> None:
    on = await Thread.new(client)
    await on.run({"messages": ["One"]} | COUNTS)
    before = await on.state()
    for bad in (None, 5, [None], [["user", "hi", "there"]], {"role": "user"}):
        with pytest.raises(httpx.HTTPStatusError) as raised:
            await on.write({"messages": bad})
        assert raised.value.response.status_code == 400
        assert raised.value.response.json()["detail"].startswith("messages")
    assert await on.state() == before


REFUSED: list[Any] = [
    {"messages": ["Other."]} | OTHER,
    {"messages": ["Other."], "conversation": {"speakers": 5}},
    {"messages": ["Other."], "max_iterations": "many"},
    {"messages": [{"role": "user", "content": [IMAGE]}], "assistant": "Cook"},
    {"messages": [None]},
    {"messages": [["user", "hi", "there"]]},
]


async def test_a_refused_input_leaves_what_a_thread_waits_for(client: LangGraphClient) -> None:
    following: list[dict[str, Any]] = [
        {"given": {"messages": ["Two"]}},
        {"command": {"resume": "Two"}},
    ]
    await asyncio.gather(*(_goes_on(client, how) for how in following))


async def _goes_on(client: LangGraphClient, how: dict[str, Any]) -> None:
    on = await Thread.new(client)
    await on.run(COUNTS)
    await on.run(command={"resume": "One"})
    before = await on.state()
    assert before["interrupts"]
    for refused in REFUSED:
        assert await on.refuse(refused)
        assert await on.state() == before
    await on.run(**how)
    assert await on.texts() == ["One", "I count 0.", "Two", "I count 1."]
    # After a message, the next message needs no interrupt.
    assert bool((await on.state())["interrupts"]) is ("command" in how)


async def test_a_refused_first_input_leaves_an_empty_thread(client: LangGraphClient) -> None:
    on = await Thread.new(client)
    assert "saw" in await on.refuse({"messages": ["One"], "tools": ["saw"]} | OTHER)
    assert not (await on.state())["values"]
    await on.run({"messages": ["One"]} | COUNTS)
    assert await on.texts() == ["One", "I count 0."]


async def test_removed_messages_are_in_messages_no_more(client: LangGraphClient) -> None:
    on = await Thread.new(client)
    first = {"type": "human", "content": "One", "id": "a"}
    gone = [{"type": "remove", "content": "", "id": "a"}]
    await on.run({"messages": [first]} | COUNTS)
    await on.write({"messages": gone})
    assert await on.texts() == ["I count 0."]
    await on.run({"messages": [first, {"role": "user", "content": "Two"}]})
    assert await on.texts() == ["I count 0.", "Two", "I count 1."]
    await on.run({"messages": [{"type": "remove", "content": "", "id": "__remove_all__"}]})
    assert await on.texts() == []
    await on.run({"messages": ["Three"]})
    assert await on.texts() == ["Three", "I count 0."]
