"""Forks (U4) from every message, with the same rules or others, also after a kill."""

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from duologue import (
    Reason,
    Result,
    Session,
    SessionError,
    SpecError,
    build_graph,
    converse,
    list_sessions,
)
from duologue.nodes.testing import Line, Reply, ScriptedChatModel
from duologue.tools import Hook, Turn
from support.cases import thorough
from support.fork_help import (
    assert_same,
    calls_in,
    calls_in_log,
    finish,
    go_on,
    ids,
    killed_before_checkpoint,
    plain,
    run,
    texts,
    timeless,
    told,
)
from support.fork_talks import TALKS, run_talk
from support.log import KINDS, fields_of, kind_of, place_name, place_of, without_ids
from support.results import outcome_of
from support.stores import EACH_STORE, open_store, store_address
from support.tables import check_rows, read_rows


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


@pytest.fixture(params=EACH_STORE)
def any_store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


FORKED_ELSEWHERE = {"summary", "inner_session", "memory_reset", "pending_answer"} | {
    *("removed", "earlier_end", "input")
}
"""Kinds of messages that none of these conversations contains."""

LINES: list[Line] = ["A1", "B1", "A2", "B2"]
NEWS = "From now on, your task is: Rest"
"""The announcement of a new task."""


def in_order(result: Result) -> list[str]:
    """Return the ids that the messages of a log must have."""
    return [place_name(number) for number in range(len(result.messages))]


def kinds(result: Result) -> list[str]:
    """Return the kinds of the messages, without announcements of a new task."""
    return [kind_of(message) for message in result.messages if message.text != NEWS]


def test_the_forked_conversations_hold_every_kind_of_line(tmp_path: Path) -> None:
    found = (run(*talk, store=f"memory:{tmp_path.name}") for talk in TALKS.values())
    assert {kind for result in found for kind in kinds(result)} == {*KINDS} - FORKED_ELSEWHERE


# Messages do not matter to a store, so one store runs all talks and each other store one.
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("any_store", "name"),
    [
        *(("sqlite", name) for name in TALKS),
        ("memory", "structured"),
        pytest.param("postgresql", "structured", marks=pytest.mark.live),
    ],
    indirect=["any_store"],
)
def test_a_fork_from_any_message_goes_on_as_the_original_did(any_store: str, name: str) -> None:
    whole, lines = run_talk(name, any_store)
    assert whole.stop_reason == ("tool_called" if name == "chosen" else "completed")
    for place, at in enumerate(ids(whole)):
        new = whole.session.fork(at=at, into=f"at-{at}")
        forked = new.state()
        kept = len(forked.messages)
        assert at in ids(forked)
        assert forked.messages == whole.messages[:kept]
        # Only the messages of one step must stay together.
        assert calls_in(forked) <= 1 + calls_in_log(whole.messages[:place])
        assert (forked.outcome is None) is (kept < len(whole.messages))
        # A fork continues from its messages; every third fork is run to show that.
        if place % 3 == 0:
            ended = finish(new, lines)
            assert_same(ended, whole)
            assert ended.specified_task == whole.specified_task
    assert whole.session.state() == whole


@pytest.mark.exhaustive
def test_a_fork_of_a_fork_goes_on_from_any_message_too(any_store: str) -> None:
    whole, lines = run_talk("structured", any_store)
    two = whole.session.fork(at="m0012", into="two")
    finish(two, lines)
    whole.session.delete()
    for at in ids(whole):
        new = two.fork(at=at, into=f"at-{at}")
        forked = new.state()
        assert without_ids(forked.messages) == without_ids(whole.messages[: len(forked.messages)])
        assert at in ids(forked)[-4:]
        assert_same(finish(new, lines), whole)


async def everything(target: str, session: str) -> list[Any]:
    """Return all data of a session in a store."""
    async with open_store(target) as store:
        config: Any = {"configurable": {"thread_id": session}}
        state = await build_graph(checkpointer=store.checkpointer).aget_state(config)
        found = [one async for one in store.checkpointer.alist(config)]
        held: list[Any] = [await store.get(session), state.values, found]
    if target.startswith("sqlite:///"):
        with closing(sqlite3.connect(target.removeprefix("sqlite:///"))) as connection:
            for table in ("checkpoints", "writes", "duologue_sessions"):
                column = "session" if table.startswith("duologue") else "thread_id"
                query = f"SELECT * FROM {table} WHERE {column} = ?"  # noqa: S608 - names from the list above
                held.append(connection.execute(query, [session]).fetchall())
    return held


@pytest.mark.part(1)
async def test_the_original_is_left_as_it_is(store: str) -> None:
    whole, lines = await asyncio.to_thread(run_talk, "structured", store)
    before = await everything(store, "one")
    changes: dict[str, Any] = {
        "task": "Plan a park",
        "speakers": {"Ann": {"task": "Rest"}},
        "end_chat": {"mode": "all_task_must_complete", "max_iterations": 9},
    }
    for number, at in enumerate(ids(whole)):
        await whole.session.afork(at=at, into=f"f{number}", **changes)
    await asyncio.to_thread(finish, await whole.session.afork(at="m0010"), lines)
    assert await everything(store, "one") == before


def test_a_fork_is_listed_and_told_apart(store: str) -> None:
    one = run_talk("structured", store)[0].session
    new = one.fork(at="m0009").id
    assert re.fullmatch(r"one-fork-[0-9a-f]{12}", new)
    assert one.fork(at="m0009").id != new
    rows = {row.session: row for row in list_sessions(store=store)}
    assert (rows[new].status, rows[new].reason) == ("unfinished", None)
    assert rows[new].title == "Plan a garden"
    assert rows[new].spec == rows["one"].spec
    long = one.fork(at="m0009", into="x" * 128)
    assert re.fullmatch(r"x{110}-fork-[0-9a-f]{12}", long.fork().id)


def test_a_fork_that_is_at_its_end_is_finished_and_asks_no_model(store: str) -> None:
    whole, _ = run_talk("structured", store)
    two = whole.session.fork(into="two")
    rows = {row.session: (row.status, row.reason) for row in list_sessions(store=store)}
    assert rows["two"] == rows["one"] == ("finished", "completed")
    again = go_on(two, [])
    assert timeless(again.outcome) == timeless(whole.outcome)
    assert run(TALKS["structured"][0], [], session="two", store=store) == again


def test_a_fork_that_new_rules_end_is_finished(store: str) -> None:
    whole, _ = run_talk("structured", store)
    # After Ben's first verdict; a round of two is not over yet.
    assert fields_of(whole.messages[16]).verdict.speaker == "Ann"
    ended = go_on(whole.session.fork(at=place_name(16), end_chat={"max_iterations": 1}), [])
    outcome = outcome_of(ended)
    assert (outcome.reason, outcome.rounds, outcome.messages) == (Reason.MAX_ITERATIONS, 1, 4)


def test_another_task_stands_as_it_is_given(store: str) -> None:
    conversation = plain(task_specification={"word_limit": 4})
    lines = ["Plan a very, very big garden.", "Plan a big garden.", *LINES]
    one = run(conversation, lines, session="one", store=store).session
    # This includes the rejected rewrite, when there is no final task yet.
    for at in ("m0000", "m0001", "m0003"):
        model = ScriptedChatModel(script=["A", "B", "A again", "B again"])
        ended = one.fork(at=at, task="Plan a park").resume(model=model)
        assert ended.specified_task == ended.conversation.task == "Plan a park"
        assert len(ended.transcript) == 4
        assert all("The task: Plan a park" in call.messages[0].text for call in model.calls)
        assert ids(ended) == in_order(ended)
        assert list_sessions(store=store)[0].title == "Plan a park"
    assert one.fork(at="m0003", title="A garden").state().specified_task == "Plan a big garden."
    assert list_sessions(store=store)[0].title == "A garden"
    # A task that is no longer rewritten is used as it was given first.
    ended = go_on(one.fork(at="m0000", task_specification=None), LINES)
    assert ended.specified_task == "Plan a garden"
    assert kinds(ended)[:2] == ["draft", "instruction"]


def test_a_speaker_goes_on_by_another_prompt_and_model(store: str) -> None:
    new = run(plain(), LINES, session="one", store=store).session.fork(
        at="m0002",
        speakers={"Ann": {"system_prompt": "You are a pirate."}, "Ben": {"model": "other"}},
        model="usual",
    )
    usual, other = (ScriptedChatModel(script=texts) for texts in (["A2!"], ["B2!"]))
    ended = new.resume(models={"usual": usual, "other": other})
    assert ended.transcript == [("Ann", "A1"), ("Ben", "B1"), ("Ann", "A2!"), ("Ben", "B2!")]
    assert usual.calls[0].messages[0].text.startswith("You are a pirate.")
    assert "pirate" not in other.calls[0].messages[0].text
    assert ended.conversation.speaker("Ben").checks_completion


def test_a_new_task_of_a_speakers_own_is_in_its_system_prompt(store: str) -> None:
    conversation = plain(speakers=[{"name": "Ann", "task": "Dig"}, {"name": "Ben"}])
    whole = run(conversation, LINES, session="one", store=store)
    new = whole.session.fork(at="m0002", speakers={"Ann": {"task": "Rest"}})
    assert new.state().messages == whole.messages[:3]
    model = ScriptedChatModel(script=["A", "B"])
    new.resume(model=model)
    assert "Your own task: Rest" in model.calls[0].messages[0].text


@pytest.mark.part(2)
@pytest.mark.parametrize(("name", "who"), [("structured", "Ann"), ("hooked", "Ben")])
@thorough
def test_a_new_task_of_a_speakers_own_is_told_after_opening_answers(
    thorough: bool, name: str, who: str, store: str
) -> None:
    """L7: the announcement precedes the current turn, and messages that wait for hooks."""
    whole, lines = run_talk(name, store)
    for at in ids(whole)[: -1 : 1 if thorough else 4]:
        ended = finish(whole.session.fork(at=at, speakers={who: {"task": "Rest"}}), lines)
        is_told = name == "hooked" or at != "m0000"
        assert "Rest" in told(ended, who)[-1]
        assert (NEWS in told(ended, who)) is is_told
        assert len(ended.messages) == len(whole.messages) + is_told
        assert ids(ended) == in_order(ended)
        assert kinds(ended) == kinds(whole)
        # With hooks, the speaker repeats the announcement that it hears.
        others = [[line for line in one.transcript if line[0] != who] for one in (ended, whole)]
        assert others[0] == others[1]


def test_a_new_task_is_told_in_a_two_question_verdict(store: str) -> None:
    whole, lines = run_talk("two_questions", store)
    first = next(message for message in whole.messages if kind_of(message) == "reflection")
    new = whole.session.fork(at=place_of(first), speakers={"Ben": {"task": "Rest"}})
    found = [kind_of(message) for message in new.state().messages[-3:]]
    assert found == ["instruction", "judge_question", "reflection"]
    assert finish(new, lines).transcript == whole.transcript


def test_a_fork_before_a_forks_beginning_goes_on_by_the_forks_rules(store: str) -> None:
    whole, _ = run_talk("structured", store)
    changes: dict[str, Any] = {"speakers": {"Ann": {"task": "Rest"}}, "task": "Plan a park"}
    two = whole.session.fork(at="m0014", into="two", **changes)
    forked = two.fork(at="m0009").state()
    assert told(forked, "Ann") == ["Dig", NEWS]
    assert forked.specified_task == "Plan a park"
    # An announced change is not announced again.
    assert told(two.fork().state(), "Ann") == told(forked, "Ann")


def test_a_running_session_can_be_forked(store: str) -> None:
    forks: list[Session] = []

    async def fork(turn: Turn) -> None:
        if len(turn.messages) > 2:
            changes: Any = {"speakers": {"Ann": {"hooks": []}}}
            forks.append(await Session("one", store=store).afork(**changes))

    conversation = plain(speakers=[{"name": "Ann", "hooks": ["fork"]}, {"name": "Ben"}])
    hooks = {"fork": Hook(before_speaker=fork)}
    model = ScriptedChatModel(script=LINES)
    whole = converse(conversation, session="one", store=store, model=model, hooks=hooks)
    assert texts(whole) == LINES
    (new,) = forks
    assert texts(go_on(new, ["A3", "B3"])) == ["A1", "B1", "A3", "B3"]


async def lose_row(store: str, session: str) -> dict[str, str]:
    """Delete the row of a session, as if a kill had prevented its creation; return its data."""
    async with open_store(store) as opened, opened.lock(session) as held:
        row = await opened.get(session)
        assert row is not None
        await held._remove()
        return {"title": row.title, "spec": row.spec}


def test_what_a_killed_fork_leaves_is_in_nobodys_way(store: str) -> None:
    whole = run(plain(), LINES, session="one", store=store)
    two = whole.session.fork(at="m0003", into="two")
    asyncio.run(lose_row(store, "two"))
    assert [row.session for row in list_sessions(store=store)] == ["one"]
    with pytest.raises(SessionError, match="no session 'two'"):
        two.resume()
    ended = go_on(whole.session.fork(at="m0002", into="two"), LINES[2:])
    assert without_ids(ended.messages) == without_ids(whole.messages)
    # Nor does another conversation with that session id continue it.
    whole.session.fork(at="m0003", into="three")
    asyncio.run(lose_row(store, "three"))
    new = run(plain(), LINES, session="three", store=store)
    assert without_ids(new.messages) == without_ids(whole.messages)


async def test_a_fork_killed_before_its_end_was_listed_is_finished_without_a_call(
    store: str,
) -> None:
    whole = await asyncio.to_thread(run, plain(), LINES, session="one", store=store)
    two = await whole.session.afork(into="two")
    row = await lose_row(store, "two")
    async with open_store(store) as opened, opened.lock("two") as held:
        await held.add(**row)
    ended = await asyncio.to_thread(go_on, two, [])
    assert timeless(ended.outcome) == timeless(whole.outcome)


def test_a_session_with_failed_calls_can_be_forked(store: str) -> None:
    model = ScriptedChatModel(script=["A1", Reply(error=500), "B1", "A2", "B2"])
    with pytest.raises(Exception, match="500"):
        converse(plain(), session="one", store=store, model=model)
    whole = Session("one", store=store).resume(model=model)
    for at in ids(whole):
        ended = finish(whole.session.fork(at=at), LINES)
        assert without_ids(ended.messages) == without_ids(whole.messages)


@pytest.mark.part(3)
@pytest.mark.parametrize("number", range(3, 7))
def test_what_was_said_before_a_kill_is_in_a_fork(
    any_store: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with killed_before_checkpoint(monkeypatch, number):
        run(plain(), LINES, session="one", store=any_store)
    left = Session("one", store=any_store).state()
    assert left.messages
    for at in (*ids(left), None):
        new = left.session.fork(at=at)
        kept = ids(left).index(at or ids(left)[-1]) + 1
        assert new.state().messages == left.messages[:kept]
        assert texts(finish(new, LINES)) == LINES


def test_changes_that_no_fork_can_make_are_named(store: str) -> None:
    one = run(plain(), LINES, session="one", store=store).session

    def check(changes: dict[str, Any], said: str) -> None:
        with pytest.raises(SpecError, match=f"^{re.escape(said)}"):
            one.fork(**changes)

    rows = read_rows(__file__, "changes_that_no_fork_can_make")
    missing = "task: is missing, and 'Ann' has no task either; set one"
    check_rows([*((one["changes"], one["said"]) for one in rows), ({"task": None}, missing)], check)
    assert len(list_sessions(store=store)) == 1


def test_what_can_not_be_forked_or_made_is_named(store: str) -> None:
    for session in ("one", "two"):
        run(plain(), LINES, session=session, store=store)
    none = "Session 'one' has no message "
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("nobody", {}, "There is no session 'nobody' in "),
        ("../x", {}, "'../x' is not a valid session id"),
        ("one", {"into": "a b"}, "'a b' is not a valid session id"),
        ("one", {"into": ""}, "'' is not a valid session id"),
        ("one", {"into": "two"}, "Session 'two' already exists in "),
        ("one", {"into": "one"}, "Session 'one' already exists in "),
        ("one", {"at": "m0099"}, f"{none}'m0099'; it has m0000 to m0004."),
        ("one", {"at": ""}, f"{none}''"),
    ]
    for session, arguments, said in wrong:
        with pytest.raises(SessionError, match=f"^{re.escape(said)}"):
            Session(session, store=store).fork(**arguments)
    assert len(list_sessions(store=store)) == 2


@pytest.mark.usefixtures("impatient")
async def test_an_id_that_is_being_run_and_a_session_without_messages_are_refused(
    store: str,
) -> None:
    whole = await asyncio.to_thread(run, plain(), LINES, session="one", store=store)
    async with open_store(store) as opened:
        async with opened.lock("two"):
            with pytest.raises(SessionError, match="'two' is busy"):
                await whole.session.afork(into="two")
        async with opened.lock("empty") as held:
            await held.add(title="", spec=json.dumps(plain().stored()))
    with pytest.raises(SessionError, match="'empty' has no message yet to fork at"):
        await Session("empty", store=store).afork()
