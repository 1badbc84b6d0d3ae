"""An interrupted session resumes from its id, and repeats no answered call.

Everything here happens in one process, whose writing ends at some moment as a kill would end it;
`test_kill.py` kills a process for each real part.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from drawn.player import Player
from drawn.talks import talks
from duologue import (
    Conversation,
    DuologueError,
    Result,
    Session,
    aconverse,
    alist_sessions,
    converse,
)
from duologue.nodes.testing import Line, Prompt, ScriptedChatModel
from support.breaking import Breakage
from support.cases import drawn_cases

from .broken_talks import CALLS, SCRIPTS, SPECS, World, told

REASONS = dict.fromkeys(SPECS, "max_iterations") | {
    **dict.fromkeys(("structured", "two_questions", "moderated"), "completed"),
    "chosen": "tool_called",
}
POINTS = [(name, number) for name, calls in CALLS.items() for number in range(calls)]


class Scene:
    """A conversation that is interrupted and resumed, and the record of its requests."""

    def __init__(self, name: str, store: Path | str, durability: str = "sync") -> None:
        self.world = World()
        self.prompts: list[Prompt] = []
        self.before_call: dict[int, Callable[[], object]] = {}
        """Functions to call in a model call, before its answer, by the call's number."""
        self._name = name
        self._store = store
        self._durability: Any = durability

    async def starts(self, breakage: Breakage) -> dict[str, Any]:
        """Run it from the beginning."""
        with self._under_way(breakage) as options:
            return told(
                await aconverse(SPECS[self._name], session="garden", store=self._store, **options)
            )

    async def goes_on(self, breakage: Breakage) -> dict[str, Any]:
        """Resume the session by its id; if it is not even listed yet, it has made no request."""
        if not await alist_sessions(store=self._store):
            assert self.prompts == []
            return await self.starts(breakage)
        with self._under_way(breakage) as options:
            return told(await Session("garden", store=self._store).aresume(**options))

    @contextmanager
    def _under_way(self, breakage: Breakage) -> Iterator[dict[str, Any]]:
        model = ScriptedChatModel(script=self._answer)
        with breakage.under_way():
            yield {
                "model": model,
                "durability": self._durability,
                **self.world.options,
            }

    def _answer(self, prompt: Prompt) -> Line:
        self.prompts.append(prompt)
        self.before_call.get(len(self.prompts) - 1, lambda: None)()
        return SCRIPTS[self._name](prompt)


class Undisturbed(NamedTuple):
    """The requests, tool calls and result of an uninterrupted run."""

    prompts: list[Prompt]
    ran: list[str]
    asked: list[str]
    result: dict[str, Any]
    writes: int


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Undisturbed]:
    found = {}
    for name in SPECS:
        at, breakage = Scene(name, tmp_path_factory.mktemp(name) / "s.db"), Breakage()
        result = asyncio.run(at.starts(breakage))
        world = at.world
        found[name] = Undisturbed(at.prompts, world.ran, world.asked, result, breakage.writes)
    return found


def test_an_undisturbed_run_asks_every_kind_of_question_once(
    undisturbed: dict[str, Undisturbed],
) -> None:
    for name, found in undisturbed.items():
        assert len(found.prompts) == CALLS[name]
        assert all(found.prompts.count(prompt) == 1 for prompt in found.prompts)
        assert found.result["outcome"]["reasons"] == [REASONS[name]]
        assert found.writes > len(found.prompts)
    lines = {
        name: [one["additional_kwargs"]["duologue"] for one in found.result["messages"]]
        for name, found in undisturbed.items()
    }
    kinds = {about["kind"] for about in lines["structured"]}
    assert kinds >= {"specified_task", "draft", "tool_calls", "tool_result", "speech", "reflection"}
    drafts = [about for about in lines["structured"] if about["kind"] == "draft"]
    assert {about.get("speaker") for about in drafts} == {None, "Owner"}
    assert [about["stage"] for about in lines["moderated"] if "stage" in about] == [
        *("private", "opening", "opening", "opening"),
        *("last_words", "last_words", "last_words"),
    ]
    assert sum(about["kind"] == "speaker_choice" for about in lines["moderated"]) == 2
    assert [about["kind"] for about in lines["hooked"]] == [
        *("instruction", "hook_version", "unheard_reply", "tool_calls"),
        *("unheard_result", "tool_result", "unheard_reply", "speech", "speech"),
        *("hook_version", "unheard_reply", "speech", "speech"),
    ]
    assert undisturbed["hooked"].result["messages"][5]["content"] == "<call_1: a hole of 6.>"
    chosen = undisturbed["chosen"].result["messages"]
    assert [message["name"] for message in chosen if message["type"] == "ai"] == [
        *("Ann", "Ann", "Cat", "Ben"),
    ]
    assert len(undisturbed["side_by_side"].ran) == 3
    assert len(undisturbed["people"].asked) == 3
    assert sum(about["kind"] == "summary" for about in lines["summed_up"]) == 2


SHORT = (("side_by_side", True),)
"""The conversations that the quick run interrupts at every write, too."""


@pytest.mark.parametrize(
    ("name", "done"),
    [
        pytest.param(
            *(name, done),
            id=f"{name}-{'behind' if done else 'before'}",
            marks=() if (name, done) in SHORT else pytest.mark.exhaustive,
        )
        for name in SPECS
        for done in (False, True)
    ],
)
async def test_broken_off_at_any_write_it_repeats_only_what_is_not_written(
    name: str, done: bool, tmp_path: Path, undisturbed: dict[str, Undisturbed]
) -> None:
    """L7: this covers every state of the file, also between an answer and its hooks."""
    whole = undisturbed[name]
    repeated = Counter[str]()
    for number in range(whole.writes):
        store = tmp_path / f"{number}.db"
        at = Scene(name, store)
        with suppress(DuologueError):
            await at.starts(Breakage(number, done=done))
            # The outcome was written; only its older checkpoints were not deleted, or the session's
            # lease was not released.
            assert number >= whole.writes - 2
        before, results = len(at.prompts), results_in(store)
        assert await at.goes_on(Breakage()) == whole.result, number
        assert at.prompts[:before] == whole.prompts[:before], number
        rest = whole.prompts[before:], whole.prompts[max(0, before - 1) :]
        assert at.prompts[before:] in rest, number
        repeated["model"] += len(at.prompts) - len(whole.prompts)
        # Each call of the uninterrupted run has a stored result, and no call with a result runs
        # again.
        assert all(any(call in result for result in results_in(store)) for call in whole.ran)
        ran = Counter(at.world.ran) - Counter(whole.ran)
        assert not [call for call in ran if any(call in result for result in results)], number
        repeated += ran
        asked = Counter(at.world.asked) - Counter(whole.asked)
        assert asked.total() <= 1
        repeated["person"] += asked.total()
    # For each answer there is one moment at which it has arrived but no part of it is stored.
    assert repeated["model"] == (0 if done else len(whole.prompts))
    assert repeated["person"] == (0 if done else len(whole.asked))
    # The results of parallel calls are written one after the other.
    side_by_side = {f"call_{place}": place for place in (1, 2, 3)}
    if name == "side_by_side":
        assert all(repeated[call] <= place - done for call, place in side_by_side.items())


def results_in(store: Path) -> list[str]:
    """Return the results of tasks, such as tool calls, that a store contains."""
    with closing(sqlite3.connect(store)) as connection:
        # LangGraph's tables are created when a session is first leased.
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if "writes" not in tables:
            return []
        # A session that has ended keeps one checkpoint, with its whole log and without writes.
        found = connection.execute(
            "SELECT value FROM writes WHERE channel = '__return__' UNION ALL "
            "SELECT checkpoint FROM checkpoints WHERE CAST(metadata AS TEXT) LIKE '%past%'"
        )
        return [value.decode(errors="replace") for (value,) in found]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SPECS)
async def test_broken_off_in_each_call_it_repeats_that_call_alone(
    name: str, tmp_path: Path, undisturbed: dict[str, Undisturbed]
) -> None:
    whole = undisturbed[name]
    for number in range(CALLS[name]):
        at, breakage = Scene(name, tmp_path / f"{number}.db"), Breakage()
        at.before_call[number] = breakage.now
        with pytest.raises(DuologueError):
            await at.starts(breakage)
        assert await at.goes_on(Breakage()) == whole.result
        assert at.prompts == whole.prompts[: number + 1] + whole.prompts[number:]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "number"), POINTS)
async def test_cancelled_in_each_call_it_repeats_that_call_alone(
    name: str, number: int, tmp_path: Path, undisturbed: dict[str, Undisturbed]
) -> None:
    whole = undisturbed[name]
    at = Scene(name, tmp_path / "s.db")
    running = asyncio.create_task(at.starts(Breakage()))
    at.before_call[number] = running.cancel
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await at.goes_on(Breakage()) == whole.result
    assert at.prompts == whole.prompts[: number + 1] + whole.prompts[number:]


async def test_broken_off_in_every_call_of_one_session_it_repeats_each_once(
    tmp_path: Path, undisturbed: dict[str, Undisturbed]
) -> None:
    whole = undisturbed["two_questions"]
    at = Scene("two_questions", tmp_path / "s.db")
    # Each run repeats the call in which the previous one was interrupted, and is interrupted in the
    # next call.
    for number in range(len(whole.prompts)):
        breakage = Breakage()
        at.before_call[2 * number] = breakage.now
        with pytest.raises(DuologueError):
            await (at.goes_on if number else at.starts)(breakage)
    assert await at.goes_on(Breakage()) == whole.result
    assert at.prompts == [prompt for prompt in whole.prompts for _ in range(2)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SPECS)
async def test_with_async_durability_it_repeats_only_the_newest_calls_and_ends_alike(
    name: str, tmp_path: Path, undisturbed: dict[str, Undisturbed]
) -> None:
    """The number of repeated calls depends on how far the writer lags behind."""
    whole = undisturbed[name]
    for number in range(0, whole.writes, 3):
        at = Scene(name, tmp_path / f"{number}.db", durability="async")
        with suppress(DuologueError):
            await at.starts(Breakage(number))
        before = len(at.prompts)
        assert await at.goes_on(Breakage()) == whole.result
        again = len(at.prompts) - len(whole.prompts)
        assert 0 <= again <= before
        assert at.prompts == whole.prompts[:before] + whole.prompts[before - again :]


@drawn_cases(
    1,
    10,
    conversation=talks(shaped=True, most=3),
    seed=st.integers(0, 999),
    at=st.floats(0, 1),
    done=st.booleans(),
)
def test_any_conversation_that_is_broken_off_at_any_write_goes_on_alike(
    conversation: Conversation, seed: int, at: float, done: bool
) -> None:
    with TemporaryDirectory() as folder:
        counted, whole = Breakage(), Player(conversation, seed)
        result = played(whole, Path(folder) / "whole.db", counted)
        breakage = Breakage(round(at * (counted.writes - 1)), done=done)
        player, store = Player(conversation, seed), Path(folder) / "broken.db"
        with suppress(DuologueError):
            played(player, store, breakage)
        before = len(player.answered)
        ended = played(player, store, Breakage())
    assert told(ended) == told(result)
    assert player.answered[:before] == whole.answered[:before]
    rest = whole.answered[before:], whole.answered[max(0, before - 1) :]
    assert player.answered[before:] in (rest[:1] if done else rest)


def played(player: Player, store: Path, breakage: Breakage) -> Result:
    with breakage.under_way():
        return converse(
            player.conversation,
            session="s",
            store=store,
            model=ScriptedChatModel(script=player.answer),
            **player.registered,
        )
