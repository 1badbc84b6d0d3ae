"""Reads of a session that another run continues to its end between two of their queries."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from duologue.graphs import Session, aconverse
from duologue.nodes.testing import ScriptedChatModel
from support.stores import EACH_STORE, open_store, store_address

SPEC: dict[str, Any] = {
    "task": "Sell.",
    "speakers": [{"name": "Ann"}, {"name": "Bob"}],
    "end_chat": {"max_iterations": 4},
}


@pytest.fixture(params=EACH_STORE)
def store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


async def begin(store: str) -> Callable[[], Awaitable[object]]:
    """Run a session up to its third message; return a function that continues it to its end."""
    numbers = iter(range(1, 100))

    def speak(prompt: object) -> str:
        number = next(numbers)
        if number == 4:
            raise ConnectionResetError
        return f"Message {number}."

    model = ScriptedChatModel(speak)
    with pytest.raises(ConnectionResetError):
        await aconverse(SPEC, session="garden", store=store, model=model)
    session = Session("garden", store=store)
    assert len((await session.astate()).transcript) == 3
    return lambda: session.aresume(model=model)


def run_after(
    reader: object,
    methods: list[str],
    work: Callable[[], Awaitable[object]],
    patch: pytest.MonkeyPatch,
) -> None:
    """Await `work` after the first call of one of the methods of a saver has read its result."""
    left = [work]

    def patched(method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*given: object, **named: object) -> object:
            found = await method(*given, **named)
            while left:
                await left.pop()()
            return found

        async def iterate(*given: object, **named: object) -> AsyncIterator[object]:
            found = [one async for one in method(*given, **named)]
            while left:
                await left.pop()()
            for one in found:
                yield one

        return iterate if method.__name__ == "alist" else call

    for name in methods:
        patch.setattr(reader, name, patched(getattr(reader, name)))


@pytest.mark.exhaustive
async def test_a_fork_contains_no_message_of_a_later_step(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_the_end = await begin(store)
    async with open_store(store) as opened:
        run_after(
            opened.checkpointer, ["alist", "aget_delta_channel_history"], to_the_end, monkeypatch
        )
        await Session("garden", store=store).afork("m0005", into="fork")
    origin = (await Session("garden", store=store).astate()).transcript
    fork = await Session("fork", store=store).astate()
    assert len(origin) == 8
    assert [*fork.transcript] == [*origin[:5]]
    assert fork.outcome is None


async def test_a_dump_has_one_message_in_each_step(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_the_end = await begin(store)
    async with open_store(store) as opened:
        run_after(
            opened.checkpointer, ["alist", "aget_delta_channel_history"], to_the_end, monkeypatch
        )
        dump = await Session("garden", store=store).adump()
    assert max(len(step.get("messages", ())) for step in dump["steps"]) == 1


async def test_a_session_that_goes_on_and_ends_meanwhile_is_read_again(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_the_end = await begin(store)
    async with open_store(store) as opened:
        run_after(opened.checkpointer, ["aget_tuple"], to_the_end, monkeypatch)
        found = await Session("garden", store=store).astate()
    assert found.stop_reason == "max_iterations"
    assert len(found.transcript) == 8
