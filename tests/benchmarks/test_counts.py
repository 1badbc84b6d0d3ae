"""What a plain utterance takes, in counts, which are the same on every machine."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler

from benchmarks.peers import Mark
from benchmarks.server import sentence
from benchmarks.sizes import bytes_per_round
from benchmarks.talks import plain, talk
from duologue.graphs import aconverse
from duologue.nodes.testing import ScriptedChatModel

MOST = {
    "model calls": 1,
    "graph steps": 1,
    "own functions": 800,
    "own modules": 88,
    "decide": 2,
    "bytes a round": 5_000,
}
"""Of an utterance; the bytes of a round of two, at 400 messages. A little above what it takes."""

FEW, MANY = 20, 40
"""Messages of the two conversations whose difference is counted."""


def model(count: int) -> ScriptedChatModel:
    """Give a model that says so many different things."""
    return ScriptedChatModel([sentence(number) for number in range(count)])


@contextmanager
def counted() -> Iterator[Counter[tuple[str, str]]]:
    """Count the calls of functions of ours, by module and name, but for the scripted model's."""
    calls = Counter[tuple[str, str]]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        ours = module.startswith("duologue.") and not module.startswith("duologue.nodes.testing")
        # A comprehension is a function in some versions of Python.
        if event == "call" and ours and not frame.f_code.co_name.startswith("<"):
            calls[module, frame.f_code.co_name] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def calls_of(messages: int) -> Counter[tuple[str, str]]:
    said = model(messages)
    with counted() as calls:
        await aconverse(talk(messages), store="memory:", model=said)
    assert len(said.calls) == messages * MOST["model calls"]
    return calls


async def test_an_utterance_calls_few_functions(capsys: pytest.CaptureFixture[str]) -> None:
    await calls_of(2)  # what is made once
    few, many = await calls_of(FEW), await calls_of(MANY)
    more = many - few
    found = {
        "own functions": more.total() / (MANY - FEW),
        "own modules": len({module for module, _ in more}),
        "decide": sum(n for (_, name), n in more.items() if name == "decide") / (MANY - FEW),
    }
    with capsys.disabled():
        print(f"\nan utterance: {found}")  # noqa: T201
    assert all(0 < count <= MOST[name] for name, count in found.items()), found


async def test_why_reads_a_log_once() -> None:
    found = []
    for messages in (FEW, 2 * FEW, 4 * FEW):
        steps = ScriptedChatModel(
            [f"Step {number}: look at the plan and go on." for number in range(messages)]
        )
        result = await aconverse(talk(messages), store="memory:", model=steps)
        with counted() as calls:
            assert len(result.why()) == 1
        found.append(calls.total())
    assert found[2] - found[1] <= 2.1 * (found[1] - found[0])


class Steps(BaseCallbackHandler):
    """Notes the steps of the graph."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def on_chain_start(self, *given: Any, **about: Any) -> None:
        self.seen.add((about["metadata"] or {}).get("langgraph_step", 0))


async def test_an_utterance_is_one_step_of_the_graph() -> None:
    seen = []
    for messages in (FEW, MANY):
        steps = Steps()
        await aconverse(talk(messages), store="memory:", model=model(messages), callbacks=[steps])
        seen.append(len(steps.seen))
    assert seen[1] - seen[0] == (MANY - FEW) * MOST["graph steps"]


async def test_a_late_round_adds_few_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(count: int, mark: Mark, store: Path) -> None:
        await plain(count, mark, store, model(count))

    found = await bytes_per_round(run, 400, tmp_path / "kept.db")
    with capsys.disabled():
        print(f"\na round at 400 messages: {found} bytes")  # noqa: T201
    assert found <= MOST["bytes a round"]
