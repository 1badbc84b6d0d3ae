"""Costs of an utterance and of a session in counts, which are the same on every machine."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler

from benchmarks.peers import Mark
from benchmarks.server import WORDS, said_in
from benchmarks.sizes import bytes_per_round
from benchmarks.talks import plain, role_play_of, talk
from duologue.graphs import aconverse
from duologue.nodes.testing import ScriptedChatModel

MOST = {
    "model calls": 1,
    "graph steps": 1,
    "own modules": 69,
    "decide": 1,
    "bytes a round": 5_000,
}
"""Limits for an utterance, and for the bytes of a round of two at 400 messages. Slightly above the
current values.
"""

MOST_FRAMES = {
    "two": {WORDS: 680, 600: 690},
    "two with a format": {WORDS: 780, 600: 810},
}
"""Limits for an utterance, by the kind of conversation and the number of words in a message. About
20 frames of each utterance come after the end, when the older checkpoints are deleted.
"""

SET_UP = 2.6
"""Frames of a session without those of its messages, in frames of a message."""

FEW, MANY = 20, 40
"""Lengths of the two conversations whose difference is counted."""
FEW_LONG, MANY_LONG = 6, 12
"""The same with long messages."""


def model(count: int, words: int = WORDS, *, formed: bool = False) -> ScriptedChatModel:
    """Return a model with so many different messages."""
    forms = ("instruction", "solution") if formed else ("", "")
    return ScriptedChatModel([said_in(n, words, forms[n % 2]) for n in range(count)])


@contextmanager
def counted() -> Iterator[Counter[tuple[str, str]]]:
    """Count the frames of duologue's code by module and name, without those of the scripted model.

    A frame is counted each time it is entered: when a function, a comprehension or a class body is
    called, and when a generator or a coroutine continues. Newer versions of Python have no frames
    for comprehensions, so they count less.
    """
    frames = Counter[tuple[str, str]]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        ours = module.startswith("duologue.") and not module.startswith("duologue.nodes.testing")
        if event == "call" and ours:
            frames[module, frame.f_code.co_name] += 1

    sys.setprofile(note)
    try:
        yield frames
    finally:
        sys.setprofile(None)


async def frames_of(
    messages: int, kind: str = "two", words: int = WORDS, store: Path | str = "memory:"
) -> Counter[tuple[str, str]]:
    """Count the frames of a session of so many messages."""
    formed = kind == "two with a format"
    conversation = role_play_of(messages, formed=True) if formed else talk(messages)
    said = model(messages, words, formed=formed)
    with counted() as frames:
        result = await aconverse(conversation, store=store, model=said)
    assert len(said.calls) == len(result.transcript) == messages * MOST["model calls"]
    return frames


@pytest.mark.part(1)
@pytest.mark.parametrize("words", [WORDS, 600])
@pytest.mark.parametrize("kind", MOST_FRAMES)
async def test_an_utterance_takes_few_frames(
    kind: str, words: int, capsys: pytest.CaptureFixture[str]
) -> None:
    await frames_of(2, kind, words)  # creates the cached objects
    fewer, more = (FEW, MANY) if words == WORDS else (FEW_LONG, MANY_LONG)
    few, many = await frames_of(fewer, kind, words), await frames_of(more, kind, words)
    found = (many - few).total() / (more - fewer)
    with capsys.disabled():
        print(f"\nan utterance of {words} words, {kind}: {found} frames")  # noqa: T201
    assert 0 < found <= MOST_FRAMES[kind][words], (many - few).most_common(20)


@pytest.mark.exhaustive
async def test_an_utterance_uses_few_modules() -> None:
    await frames_of(2)
    more = await frames_of(MANY) - await frames_of(FEW)
    found = {
        "own modules": len({module for module, _ in more}),
        "decide": sum(n for (_, name), n in more.items() if name == "decide") / (MANY - FEW),
    }
    assert all(0 < count <= MOST[name] for name, count in found.items()), found


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", MOST_FRAMES)
async def test_a_session_is_set_up_in_few_frames(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await frames_of(2, kind)
    ten, more = await frames_of(10, kind), await frames_of(FEW, kind)
    message = (more.total() - ten.total()) / (FEW - 10)
    found = ten.total() / message - 10
    with capsys.disabled():
        print(f"\nset-up of a session, {kind}: {found:.2f} messages")  # noqa: T201
    assert 0 < found <= SET_UP, ten.most_common(20)


@pytest.mark.exhaustive
async def test_a_session_in_a_file_is_set_up_in_few_frames(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    await frames_of(2, store=path)
    ten, more = await frames_of(10, store=path), await frames_of(FEW, store=path)
    found = ten.total() / ((more.total() - ten.total()) / (FEW - 10)) - 10
    assert 0 < found <= SET_UP, ten.most_common(20)


async def test_a_session_in_memory_looks_at_no_other_session(tmp_path: Path) -> None:
    lines = 0

    def note(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        nonlocal lines
        lines += event == "line"
        module = frame.f_globals.get("__name__", "")
        return note if module.endswith((".in_memory", ".memory")) else None

    async def run() -> int:
        nonlocal lines
        lines = 0
        sys.settrace(note)
        try:
            await aconverse(talk(2), store=f"memory:{tmp_path.name}", model=model(2))
        finally:
            sys.settrace(None)
        return lines

    found = [await run() for _ in range(5)]
    assert found[1] == found[4] > 0


@pytest.mark.exhaustive
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
    """A callback that counts the steps of the graph."""

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


@pytest.mark.exhaustive
async def test_a_late_round_adds_few_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(count: int, mark: Mark, store: Path) -> None:
        await plain(count, mark, store, model(count))

    found = await bytes_per_round(run, 400, tmp_path / "kept.db")
    with capsys.disabled():
        print(f"\na round at 400 messages: {found} bytes")  # noqa: T201
    assert found <= MOST["bytes a round"]
