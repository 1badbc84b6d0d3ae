"""Batches in Python: cells, resumed runs, failures, scores, limits, people."""

import asyncio
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.runnables import RunnableLambda

from duologue.graphs import (
    Batch,
    BatchError,
    BatchLimits,
    BatchRun,
    ModelUnavailableError,
    Price,
    Result,
    Session,
    SpecError,
    alist_batches,
    alist_sessions,
    arun_batch,
    list_batches,
    list_sessions,
    run_batch,
)
from duologue.nodes.testing import Call, Line, Prompt, Reply, ScriptedChatModel
from support.stores import CellRow, CellsWanted, SessionLease, open_store
from support.tables import each_row

ROLES = ["Cook", "Teacher", "Nurse", "Owner"]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "s.db")


def batch(**fields: Any) -> Batch:
    given: dict[str, Any] = {
        "conversation": {
            "kind": "role_play",
            "task": "Plan a garden",
            "assistant_role": "Gardener",
            "specify_task": False,
            "max_iterations": 2,
        },
        "vary": {"user_role": ROLES},
    }
    return Batch(**(given | fields))


class Player:
    """A model for all sessions: each user sends one instruction, then the done token."""

    def __init__(
        self, broken: Callable[[str], Exception | None] = lambda who: None, delay: float = 0
    ) -> None:
        self.calls = list[str]()
        self.model = ScriptedChatModel(self._says)
        self._broken = broken
        self._delay = delay
        """Delay of the gardener's answers in seconds."""

    def _says(self, prompt: Prompt, call: Call) -> Line:
        who = call.speaker or ""
        system = prompt[0]["content"]
        user = next(role for role in ROLES if role in system)
        error = self._broken(user)
        if error is not None:
            raise error
        self.calls.append(user)
        if who == "Gardener":
            return Reply(text="Solution: Dug.\nNext request.", delay=self._delay)
        said = sum(one["role"] == "assistant" for one in prompt)
        return "<CAMEL_TASK_DONE>" if said else "Instruction: Dig.\nInput: None"


async def rows_of(store: str, name: str = "b") -> dict[str, CellRow]:
    """Return the rows by the role that varies."""
    async with open_store(store) as opened:
        found = [row async for row in opened.batches.each(CellsWanted(batch=name))]
    return {str(row.varied["user_role"]): row for row in found}


async def test_each_cell_is_a_session_of_its_own_with_its_values_filled_in(store: str) -> None:
    player = Player()
    status = await arun_batch(batch(), name="b", store=store, model=player.model)
    assert (status.cells, status.finished, status.left) == (4, 4, 0)
    assert status.reasons == {"done_token": 4}
    assert (status.calls, status.stopped) == (12, None)
    for role, row in (await rows_of(store)).items():
        result = await Session(row.session, store=store).astate()
        assert result.conversation.names == (role, "Gardener")
        assert (row.calls, row.messages, row.rounds, row.reason) == (3, 3, 1, "done_token")
        assert row.session.startswith("b-")
    assert await BatchRun("b", store=store).astatus() == status
    assert [one.batch for one in await alist_batches(store=store)] == ["b"]


async def test_a_batch_that_is_run_again_makes_no_call_and_one_that_grew_only_new_ones(
    store: str,
) -> None:
    await arun_batch(batch(), name="b", store=store, model=Player().model)
    again = Player()
    await arun_batch(batch(), name="b", store=store, model=again.model)
    assert again.calls == []
    grown = batch(trials=2, vary={"user_role": ROLES[1:]})
    status = await arun_batch(grown, name="b", store=store, model=again.model)
    assert sorted(set(again.calls)) == sorted(ROLES[1:])
    assert (status.cells, len(again.calls)) == (6, 9)
    rows = await BatchRun("b", store=store).arows()
    # Cook's session has ended and is no longer in the batch; the others have new numbers.
    numbers = [row["number"] for row in rows if row["user_role"] != "Cook"]
    assert sorted(numbers) == [*range(1, 7)]


async def test_another_conversation_under_the_same_name_is_refused_and_nothing_is_lost(
    store: str,
) -> None:
    before = await arun_batch(batch(), name="b", store=store, model=Player().model)
    other = batch(conversation=batch().conversation | {"task": "Plan a house"})  # type: ignore[operator]
    with pytest.raises(
        BatchError, match=r"'b' .* a different conversation: conversation.task differs;"
    ):
        await arun_batch(other, name="b", store=store, model=Player().model)
    assert await BatchRun("b", store=store).astatus() == before


async def test_a_batch_of_another_version_is_refused_and_nothing_is_lost(store: str) -> None:
    before = await arun_batch(batch(), name="b", store=store, model=Player().model)
    change = "UPDATE duologue_batches SET spec = json_set(spec, '$.version', ?)"
    for version, error in ((1, "written by a development version"), (99, "not 99; upgrade")):
        async with open_store(store) as opened:
            await opened.write(change, version)
        with pytest.raises(BatchError, match=f"'b' .*{error}.*; choose another name, or delete"):
            await arun_batch(batch(), name="b", store=store, model=Player().model)
        assert await BatchRun("b", store=store).astatus() == before


async def test_a_cell_that_fails_is_a_row_with_its_error_and_is_tried_again_when_asked(
    store: str,
) -> None:
    player = Player(lambda who: ValueError("no nurses") if who == "Nurse" else None)
    status = await arun_batch(batch(), name="b", store=store, model=player.model)
    assert (status.finished, status.failed) == (3, 1)
    row = (await rows_of(store))["Nurse"]
    assert (row.status, row.error) == ("failed", "ValueError: no nurses")
    again = Player()
    await arun_batch(batch(), name="b", store=store, model=again.model)
    assert again.calls == []
    status = await arun_batch(batch(), name="b", store=store, model=again.model, retry_failed=True)
    assert (status.finished, set(again.calls)) == (4, {"Nurse"})
    row = (await rows_of(store))["Nurse"]
    assert (row.status, row.error) == ("finished", None)


@pytest.mark.parametrize(("concurrency", "most"), [(1, 10), (15, 30)])
async def test_sessions_that_fail_alike_in_a_row_stop_the_batch(
    concurrency: int, most: int, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"store": f"memory:{tmp_path.name}", "concurrency": concurrency}
    player = Player(lambda who: ValueError("on fire"))
    said = "sessions in a row failed with the same error: ValueError: on fire"
    with pytest.raises(BatchError, match=said):
        await arun_batch(batch(trials=10), name="b", model=player.model, **options)
    status = await BatchRun("b", store=options["store"]).astatus()
    assert 10 <= status.failed <= most
    assert said in (status.stopped or "")


async def test_sessions_that_fail_each_for_another_reason_stop_nothing(tmp_path: Path) -> None:
    numbers = count()
    player = Player(lambda who: ValueError(f"fire {next(numbers)}"))
    store = f"memory:{tmp_path.name}"
    status = await arun_batch(batch(trials=3), name="b", model=player.model, store=store)
    assert (status.failed, status.stopped) == (12, None)


async def test_a_session_that_failed_goes_on_where_it_was(store: str) -> None:
    left = {"Nurse": 2}

    def broken(who: str) -> Exception | None:
        if who not in left:
            return None
        left[who] -= 1
        return ValueError("gone") if left[who] < 0 else None

    player = Player(broken)
    status = await arun_batch(batch(), name="b", store=store, model=player.model)
    row = (await rows_of(store))["Nurse"]
    # The usage of a failed cell is known, too.
    assert (row.status, row.calls, row.messages, status.calls) == ("failed", 2, 2, 11)
    again = Player()
    await arun_batch(batch(), name="b", store=store, model=again.model, retry_failed=True)
    assert again.calls == ["Nurse"]


async def test_a_model_that_cannot_be_had_stops_the_batch_with_one_sentence(store: str) -> None:
    error = ModelUnavailableError("the model x rejected the key")
    player = Player(lambda who: error if who == "Teacher" else None)
    with pytest.raises(ModelUnavailableError, match="rejected the key"):
        await arun_batch(
            batch(), name="b", store=store, model=player.model, concurrency=1, shuffle=False
        )
    status = await BatchRun("b", store=store).astatus()
    assert (status.stopped, status.failed, status.left) == ("the model x rejected the key", 0, 3)
    status = await arun_batch(batch(), name="b", store=store, model=Player().model)
    assert (status.finished, status.stopped) == (4, None)


async def test_a_budget_pauses_what_runs_and_a_larger_one_goes_on(store: str) -> None:
    async def run(most: float) -> tuple[Player, Any]:
        player = Player()
        fields = {
            "conversation": batch().conversation | {"prices": {"m": Price(input=0, output=1e6)}},  # type: ignore[operator]
            "limits": BatchLimits(max_cost=most),
        }
        models = {"m": player.model}
        found = await arun_batch(
            batch(**fields | {"vary": {"user_role": ROLES, "model": ["m"]}}),
            name="b",
            store=store,
            models=models,
            concurrency=2,
        )
        return player, found

    first, status = await run(30)
    assert status.stopped is not None
    assert "max_cost" in status.stopped
    assert status.cost >= 30
    assert status.left > 0
    assert (len(first.calls), status.calls) == (status.calls, len(first.calls))
    again, status = await run(30)
    assert (again.calls, status.stopped is None) == ([], False)
    last, status = await run(10_000)
    assert (status.finished, len(first.calls) + len(last.calls)) == (4, 12)


async def test_what_was_broken_off_is_told_and_counts_for_the_budget_when_it_goes_on(
    store: str,
) -> None:
    def until_all_gardeners_are_asked(who: str) -> None:
        # The gardener is called after its user's answer is stored.
        if len(player.calls) == 7:
            running.cancel()

    player = Player(until_all_gardeners_are_asked, delay=3600)
    running = asyncio.create_task(arun_batch(batch(), name="b", store=store, model=player.model))
    with pytest.raises(asyncio.CancelledError):
        await running
    status = await BatchRun("b", store=store).astatus()
    assert (status.is_running, dict(status.rows()), status.calls) == (False, {"interrupted": 4}, 4)
    again = Player()
    spent = batch(limits=BatchLimits(max_tokens=1))
    status = await arun_batch(spent, name="b", store=store, model=again.model)
    assert (again.calls, dict(status.rows())) == ([], {"paused": 4})
    assert (status.stopped, status.calls) == ("limits.max_tokens of 1 is used up", 4)
    status = await arun_batch(batch(), name="b", store=store, model=again.model)
    assert (status.finished, status.calls, len(again.calls)) == (4, 12, 8)


async def test_a_batch_that_is_cancelled_counts_answers_that_are_not_stored_yet(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, have_answered = list[str](), asyncio.Event()
    read = SessionLease.stop_requested

    async def read_late(held: SessionLease, session: str) -> bool:
        """Cancel the batch after all users have answered, so that it stops during the read."""
        answered.append(session)
        if len(answered) == 4:
            running.cancel()
            have_answered.set()
        await have_answered.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        return await read(held, session)

    monkeypatch.setattr(SessionLease, "stop_requested", read_late)
    player = Player()
    running = asyncio.create_task(arun_batch(batch(), name="b", store=store, model=player.model))
    with pytest.raises(asyncio.CancelledError):
        await running
    again = Player()
    spent = batch(limits=BatchLimits(max_tokens=1))
    status = await arun_batch(spent, name="b", store=store, model=again.model)
    assert (len(player.calls), status.calls, again.calls) == (4, 4, [])
    status = await arun_batch(batch(), name="b", store=store, model=again.model)
    assert (status.finished, status.calls, len(again.calls)) == (4, 12, 8)


async def test_scores_are_kept_and_one_that_is_added_later_costs_no_call(store: str) -> None:
    def long(result: Result) -> bool:
        return len(result.transcript) > 2

    def of_role(result: Result, values: Any) -> int:  # noqa: ANN401
        return len(values["user_role"])

    await arun_batch(batch(score=long), name="b", store=store, model=Player().model)
    assert {row.scores["long"] for row in (await rows_of(store)).values()} == {1.0}
    # This needs no model, and no model is available here.
    await arun_batch(
        batch(score=["long", "of_role"]),
        name="b",
        store=store,
        model="none.gguf",
        scores={"long": long, "of_role": of_role},
    )
    rows = await rows_of(store)
    assert {role: row.scores["of_role"] for role, row in rows.items()} == {
        role: len(role) for role in ROLES
    }


async def test_a_cell_that_waits_for_a_person_goes_on_once_it_is_answered(store: str) -> None:
    people = batch(conversation=batch().conversation | {"people": ["Gardener"]})  # type: ignore[operator]
    player = Player()
    status = await arun_batch(people, name="b", store=store, model=player.model)
    assert (status.of("waiting"), status.left, len(player.calls)) == (4, 4, 4)
    row = (await rows_of(store))["Cook"]
    await Session(row.session, store=store).aanswer("Dug.", model=player.model)
    status = await arun_batch(people, name="b", store=store, model=player.model)
    assert (status.finished, status.of("waiting"), len(player.calls)) == (1, 3, 5)


async def test_one_driver_runs_no_more_sessions_at_once_than_asked_for(store: str) -> None:
    at_once, most, refused = 0, 0, list[str]()
    speakers = [{"name": name, "replies": [{"kind": "function", "name": "slow"}]} for name in "AB"]
    greetings = Batch(
        conversation={"task": "Greet.", "speakers": speakers, "end_chat": {"max_iterations": 1}},
        trials=9,
    )

    async def slow(turn: object) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if not refused:
            refused.append("")
            assert (await BatchRun("b", store=store).astatus()).is_running
            with pytest.raises(BatchError, match="running already"):
                await run()
        await asyncio.sleep(0.01)
        at_once -= 1
        return "Hello."

    async def run() -> Any:  # noqa: ANN401
        options: dict[str, Any] = {"functions": {"slow": slow}, "concurrency": 3}
        return await arun_batch(greetings, name="b", store=store, **options)

    assert ((await run()).finished, most) == (9, 3)


def test_a_batch_that_ray_should_run_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        SpecError, match=r"^ray: needs more packages; run `pip install '\.\[ray\]'` or "
    ):
        run_batch(batch(), name="b", model=Player().model, ray="auto", store=store)


async def test_deleting_a_batch_deletes_its_sessions_and_no_others(store: str) -> None:
    await arun_batch(batch(), name="b", store=store, model=Player().model)
    await arun_batch(batch(), name="b2", store=store, model=Player().model)
    await BatchRun("b", store=store).adelete()
    assert len(await alist_sessions(store=store)) == 4
    assert [one.batch for one in await alist_batches(store=store)] == ["b2"]
    with pytest.raises(BatchError, match="no batch 'b'"):
        await BatchRun("b", store=store).astatus()
    with pytest.raises(BatchError, match="no batch 'b'"):
        await BatchRun("b", store=store).adelete()


@each_row("what_is_wrong_is_said_before_any_call_and_nothing_is_stored")
def test_what_is_wrong_is_said_before_any_call_and_nothing_is_stored(
    fields: dict[str, Any] | None,
    options: dict[str, Any] | None,
    error: str | None,
    says: str,
    store: str,
) -> None:
    player = Player()
    given: dict[str, Any] = {"name": "b", "model": player.model, "store": store} | (options or {})
    with pytest.raises(TypeError if error else SpecError, match=says):
        run_batch(batch(**fields or {}), **given)
    assert player.calls == []
    # Most messages come before there is a file.
    there = store if Path(store).exists() else "memory:none"
    assert (list_batches(store=there), list_sessions(store=there)) == ([], [])


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_graph", [True, False])
async def test_an_agent_whose_server_goes_down_continues_its_session(
    is_graph: bool,
    store: str,
) -> None:
    down = iter([False, False, True, True, True])

    def answer(prompt: Prompt) -> str:
        if next(down, False):
            raise ConnectionRefusedError("no server")
        return "Yes."

    model = ScriptedChatModel(answer)
    agent: Any = create_agent(model, []) if is_graph else RunnableLambda(model.ainvoke)
    researcher = {"kind": "agent", "name": "researcher"}
    talk: dict[str, Any] = {
        "task": "Plan a garden",
        "speakers": [{"name": "Ann", "replies": [researcher]}, {"name": "Bob"}],
        "end_chat": {"max_iterations": 2},
    }
    options: dict[str, Any] = {"store": store, "agents": {"researcher": agent}, "model": model}
    one = Batch(conversation=talk, trials=3)
    status = await arun_batch(one, name="b", concurrency=1, **options)
    assert (status.finished, status.failed, status.calls) == (3, 0, 12)
    assert len(model.calls) == 12 + 3
