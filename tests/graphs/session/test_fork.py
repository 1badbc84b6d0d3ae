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
    EndChatMode,
    Reason,
    Session,
    SessionError,
    SpecError,
    build_graph,
    converse,
    list_sessions,
)
from duologue.graphs.prompts import prompts
from duologue.nodes.testing import Line, Reply, ScriptedChatModel
from duologue.tools import Hook, Turn
from support.cases import thorough
from support.fork_help import (
    NO,
    YES,
    calls_in,
    calls_in_log,
    go_on,
    ids,
    killed_before_checkpoint,
    plain,
    run,
    timeless,
    told,
)
from support.fork_talks import TALKS
from support.log import KINDS, kind_of, place_name, place_of, without_ids
from support.stores import EACH_STORE, open_store, store_address
from support.tables import check_rows, read_rows


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


@pytest.fixture(params=EACH_STORE)
def any_store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


FORKED_ELSEWHERE = {
    *(
        "summary",
        "inner_session",
        "memory_reset",
        "pending_answer",
        "removed",
        "earlier_end",
        "input",
    )
}
"""Kinds of messages that none of these conversations contains."""


def test_the_forked_conversations_hold_every_kind_of_line(tmp_path: Path) -> None:
    kinds = {
        kind_of(message)
        for conversation, lines in TALKS.values()
        for message in run(conversation, lines, store=f"memory:{tmp_path.name}").messages
    }
    assert kinds == {*KINDS} - FORKED_ELSEWHERE


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
    conversation, lines = TALKS[name]
    whole = run(conversation, lines, session="one", store=any_store)
    assert timeless(whole.outcome).reason is (
        Reason.TOOL_CALLED if name == "chosen" else Reason.COMPLETED
    )
    for at in ids(whole):
        new = Session("one", store=any_store).fork(at=at, into=f"at-{at}").id
        forked = Session(new, store=any_store).state()
        kept = len(forked.messages)
        assert at in ids(forked)
        assert forked.messages == whole.messages[:kept]
        # Only the messages of one step must stay together.
        before = whole.messages[: ids(whole).index(at)]
        assert calls_in(forked) <= 1 + calls_in_log(before)
        assert (forked.outcome is None) is (kept < len(whole.messages))
        # A fork continues from its messages; every third fork is run to show that.
        if ids(whole).index(at) % 3:
            continue
        ended = go_on(new, any_store, lines[calls_in(forked) :])
        assert without_ids(ended.messages) == without_ids(whole.messages)
        assert timeless(ended.outcome) == timeless(whole.outcome)
        assert ended.specified_task == whole.specified_task
    assert Session("one", store=any_store).state() == whole


@pytest.mark.exhaustive
def test_a_fork_of_a_fork_goes_on_from_any_message_too(any_store: str) -> None:
    lines = TALKS["structured"][1]
    whole = run(TALKS["structured"][0], lines, session="one", store=any_store)
    Session("one", store=any_store).fork(at="m0012", into="two")
    go_on("two", any_store, lines[calls_in(Session("two", store=any_store).state()) :])
    Session("one", store=any_store).delete()
    for at in ids(whole):
        new = Session("two", store=any_store).fork(at=at, into=f"at-{at}").id
        forked = Session(new, store=any_store).state()
        assert without_ids(forked.messages) == without_ids(whole.messages[: len(forked.messages)])
        assert at in ids(forked)[-4:]
        ended = go_on(new, any_store, lines[calls_in(forked) :])
        assert without_ids(ended.messages) == without_ids(whole.messages)
        assert timeless(ended.outcome) == timeless(whole.outcome)


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
    lines = TALKS["structured"][1]
    whole = await asyncio.to_thread(run, TALKS["structured"][0], lines, session="one", store=store)
    before = await everything(store, "one")
    for number, at in enumerate(ids(whole)):
        changes: dict[str, Any] = {
            "task": "Plan a park",
            "speakers": {"Ann": {"task": "Rest"}},
            "end_chat": {"mode": "all_task_must_complete", "max_iterations": 9},
        }
        await Session("one", store=store).afork(at=at, into=f"f{number}", **changes)
    new = (await Session("one", store=store).afork(at="m0010")).id
    rest = lines[calls_in(Session(new, store=store).state()) :]
    await asyncio.to_thread(go_on, new, store, rest)
    assert await everything(store, "one") == before


def test_a_fork_is_listed_and_told_apart(store: str) -> None:
    run(TALKS["structured"][0], TALKS["structured"][1], session="one", store=store)
    new = Session("one", store=store).fork(at="m0009").id
    assert re.fullmatch(r"one-fork-[0-9a-f]{12}", new)
    assert Session("one", store=store).fork(at="m0009").id != new
    rows = {row.session: row for row in list_sessions(store=store)}
    assert (rows[new].status, rows[new].reason) == ("unfinished", None)
    assert rows[new].title == "Plan a garden"
    assert rows[new].spec == rows["one"].spec
    long = Session("one", store=store).fork(at="m0009", into="x" * 128).id
    assert re.fullmatch(r"x{110}-fork-[0-9a-f]{12}", Session(long, store=store).fork().id)


def test_a_fork_that_is_at_its_end_is_finished_and_asks_no_model(store: str) -> None:
    whole = run(TALKS["structured"][0], TALKS["structured"][1], session="one", store=store)
    Session("one", store=store).fork(into="two")
    rows = {row.session: (row.status, row.reason) for row in list_sessions(store=store)}
    assert rows["two"] == rows["one"] == ("finished", "completed")
    again = go_on("two", store, [])
    assert timeless(again.outcome) == timeless(whole.outcome)
    assert run(TALKS["structured"][0], [], session="two", store=store) == again


def test_a_fork_that_new_rules_end_is_finished(store: str) -> None:
    run(TALKS["structured"][0], TALKS["structured"][1], session="one", store=store)
    # After Ben's first verdict; a round of two is not over yet.
    after_ann = place_name(16)
    whole = Session("one", store=store).state()
    assert whole.messages[16].additional_kwargs["duologue"]["verdict"]["speaker"] == "Ann"
    new = Session("one", store=store).fork(at=after_ann, end_chat={"max_iterations": 1}).id
    ended = go_on(new, store, [])
    assert ended.outcome is not None
    assert ended.outcome.reason is Reason.MAX_ITERATIONS
    assert (ended.outcome.rounds, ended.outcome.messages) == (1, 4)


def test_another_task_stands_as_it_is_given(store: str) -> None:
    conversation = plain(task_specification={"word_limit": 4})
    lines = ["Plan a very, very big garden.", "Plan a big garden.", "A1", "B1", "A2", "B2"]
    run(conversation, lines, session="one", store=store)
    # This includes the rejected rewrite, when there is no final task yet.
    for at in ("m0000", "m0001", "m0003"):
        new = Session("one", store=store).fork(at=at, task="Plan a park").id
        model = ScriptedChatModel(script=["A", "B", "A again", "B again"])
        ended = Session(new, store=store).resume(model=model)
        assert ended.specified_task == "Plan a park"
        assert ended.conversation.task == "Plan a park"
        assert len(ended.transcript) == 4
        assert all("The task: Plan a park" in call.messages[0].text for call in model.calls)
        assert ids(ended) == [place_name(number) for number in range(len(ended.messages))]
        assert list_sessions(store=store)[0].title == "Plan a park"
    kept = Session("one", store=store).fork(at="m0003", title="A garden").id
    assert Session(kept, store=store).state().specified_task == "Plan a big garden."
    assert list_sessions(store=store)[0].title == "A garden"


def test_a_task_that_is_no_longer_rewritten_stands_as_it_is_given(store: str) -> None:
    conversation = plain(task_specification={"word_limit": 4})
    lines = ["Plan a very, very big garden.", "Plan a big garden.", "A1", "B1", "A2", "B2"]
    run(conversation, lines, session="one", store=store)
    new = Session("one", store=store).fork(at="m0000", task_specification=None).id
    ended = go_on(new, store, lines[2:])
    assert ended.specified_task == "Plan a garden"
    assert [kind_of(message) for message in ended.messages[:2]] == ["draft", "instruction"]


def test_a_speaker_goes_on_by_another_prompt_and_model(store: str) -> None:
    run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=store)
    session = Session("one", store=store)
    new = session.fork(
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
    whole = run(conversation, ["A1", "B1", "A2", "B2"], session="one", store=store)
    new = Session("one", store=store).fork(at="m0002", speakers={"Ann": {"task": "Rest"}}).id
    assert Session(new, store=store).state().messages == whole.messages[:3]
    model = ScriptedChatModel(script=["A", "B"])
    Session(new, store=store).resume(model=model)
    assert "Your own task: Rest" in model.calls[0].messages[0].text


@pytest.mark.part(1)
@thorough
def test_a_new_task_of_a_speakers_own_is_told_after_opening_answers(
    thorough: bool, store: str
) -> None:
    """A speaker's new task is announced after opening answers, but before the current turn."""
    lines = TALKS["structured"][1]
    whole = run(TALKS["structured"][0], lines, session="one", store=store)
    news = prompts.fill_template(prompts.NEW_TASK, task="Rest")
    for at in ids(whole)[: -1 : 1 if thorough else 4]:
        new = Session("one", store=store).fork(at=at, speakers={"Ann": {"task": "Rest"}}).id
        forked = Session(new, store=store).state()
        ended = go_on(new, store, lines[calls_in(forked) :])
        stands = at != "m0000"
        assert told(ended, "Ann") == (["Dig", news] if stands else ["Rest"])
        assert told(ended, "Ben") == ["Plant"]
        assert len(ended.messages) == len(whole.messages) + stands
        assert ids(ended) == [place_name(number) for number in range(len(ended.messages))]
        assert ended.transcript == whole.transcript
        assert [kind_of(one) for one in ended.messages if one.text != news] == [
            kind_of(one) for one in whole.messages
        ]


@pytest.mark.part(1)
@thorough
def test_a_new_task_is_told_in_front_of_what_waits_for_hooks(thorough: bool, store: str) -> None:
    """L7: a new task is announced before messages that wait for hooks."""
    conversation, lines = TALKS["hooked"]
    whole = run(conversation, lines, session="one", store=store)
    news = prompts.fill_template(prompts.NEW_TASK, task="Rest")
    for at in ids(whole)[: -1 : 1 if thorough else 4]:
        new = Session("one", store=store).fork(at=at, speakers={"Ben": {"task": "Rest"}}).id
        forked = Session(new, store=store).state()
        ended = go_on(new, store, lines[calls_in(forked) :])
        assert "Rest" in told(ended, "Ben")[-1]
        assert ids(ended) == [place_name(number) for number in range(len(ended.messages))]
        by_ann = [
            [text for name, text in one.transcript if name == "Ann"] for one in (whole, ended)
        ]
        assert by_ann[0] == by_ann[1]
        assert [kind_of(one) for one in ended.messages if one.text != news] == [
            kind_of(one) for one in whole.messages
        ]


def test_a_new_task_is_told_in_a_two_question_verdict(store: str) -> None:
    conversation, lines = TALKS["two_questions"]
    whole = run(conversation, lines, session="one", store=store)
    first = next(message for message in whole.messages if kind_of(message) == "reflection")
    new = (
        Session("one", store=store).fork(at=place_of(first), speakers={"Ben": {"task": "Rest"}}).id
    )
    forked = Session(new, store=store).state()
    assert [kind_of(message) for message in forked.messages[-3:]] == [
        "instruction",
        "judge_question",
        "reflection",
    ]
    assert go_on(new, store, lines[calls_in(forked) :]).transcript == whole.transcript


def test_a_fork_before_a_forks_beginning_goes_on_by_the_forks_rules(store: str) -> None:
    lines = TALKS["structured"][1]
    run(TALKS["structured"][0], lines, session="one", store=store)
    changes: dict[str, Any] = {"speakers": {"Ann": {"task": "Rest"}}, "task": "Plan a park"}
    Session("one", store=store).fork(at="m0014", into="two", **changes)
    new = Session("two", store=store).fork(at="m0009").id
    forked = Session(new, store=store).state()
    assert told(forked, "Ann") == ["Dig", prompts.fill_template(prompts.NEW_TASK, task="Rest")]
    assert forked.specified_task == "Plan a park"
    # An announced change is not announced again.
    again = Session(Session("two", store=store).fork().id, store=store).state()
    assert told(again, "Ann") == told(forked, "Ann")


MODES = list(EndChatMode)
ENDS: dict[EndChatMode, list[Line]] = {
    EndChatMode.MAX_ITERATIONS_ONLY: ["A2", "B2"],
    EndChatMode.END_CHAT_AFTER_FIRST_COMPLETION: [],
    EndChatMode.ONE_LAST_CHAT_AFTER_FIRST_COMPLETION: ["A2"],
    EndChatMode.ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION: ["A2", "B2"],
    EndChatMode.ALL_TASK_MUST_COMPLETE: ["A2", YES],
}
"""Messages after Ben completes its task in the first round of two."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("before", MODES[1:])
def test_a_fork_after_a_completion_owes_what_the_new_mode_promises(
    before: EndChatMode, mode: EndChatMode, tmp_path: Path
) -> None:
    store = f"memory:{tmp_path.name}"
    stoppers = [
        {"name": "Ann", "checks_completion": True},
        {"name": "Ben", "checks_completion": True},
    ]
    conversation = plain(speakers=stoppers, end_chat={"mode": before.value, "max_iterations": 2})
    lines: list[Line] = ["A1", NO, "B1", YES, *ENDS[before]]
    run(conversation, lines, session="one", store=store)
    new = Session("one", store=store).fork(at="m0006", end_chat={"mode": mode.value}).id
    ended = go_on(new, store, ENDS[mode])
    assert ended.outcome is not None
    only_cap = mode is EndChatMode.MAX_ITERATIONS_ONLY
    assert ended.outcome.reason is (Reason.MAX_ITERATIONS if only_cap else Reason.COMPLETED)


def test_a_running_session_can_be_forked(store: str) -> None:
    forks: list[Session] = []

    async def fork(turn: Turn) -> None:
        if len(turn.messages) > 2:
            changes: Any = {"speakers": {"Ann": {"hooks": []}}}
            forks.append(await Session("one", store=store).afork(**changes))

    conversation = plain(speakers=[{"name": "Ann", "hooks": ["fork"]}, {"name": "Ben"}])
    model = ScriptedChatModel(script=["A1", "B1", "A2", "B2"])
    hooks = {"fork": Hook(before_speaker=fork)}
    whole = converse(conversation, session="one", store=store, model=model, hooks=hooks)
    assert [text for _, text in whole.transcript] == ["A1", "B1", "A2", "B2"]
    (new,) = forks
    ended = go_on(new.id, store, ["A3", "B3"])
    assert [text for _, text in ended.transcript] == ["A1", "B1", "A3", "B3"]


async def test_what_a_killed_fork_leaves_is_in_nobodys_way(store: str) -> None:
    lines: list[Line] = ["A1", "B1", "A2", "B2"]
    whole = await asyncio.to_thread(run, plain(), lines, session="one", store=store)
    await Session("one", store=store).afork(at="m0003", into="two")
    async with open_store(store) as opened:
        async with opened.lock("two") as held:
            await held._remove()
        assert [row.session for row in await opened.list()] == ["one"]
    with pytest.raises(SessionError, match="no session 'two'"):
        Session("two", store=store).resume()
    await Session("one", store=store).afork(at="m0002", into="two")
    ended = await asyncio.to_thread(go_on, "two", store, lines[2:])
    assert without_ids(ended.messages) == without_ids(whole.messages)
    # Nor does another conversation with that session id continue it.
    await Session("one", store=store).afork(at="m0003", into="three")
    async with open_store(store) as opened, opened.lock("three") as held:
        await held._remove()
    new = await asyncio.to_thread(run, plain(), lines, session="three", store=store)
    assert without_ids(new.messages) == without_ids(whole.messages)


async def test_a_fork_killed_before_its_end_was_listed_is_finished_without_a_call(
    store: str,
) -> None:
    whole = await asyncio.to_thread(run, plain(), ["A", "B", "C", "D"], session="one", store=store)
    await Session("one", store=store).afork(into="two")
    async with open_store(store) as opened, opened.lock("two") as held:
        row = await opened.get("two")
        assert row is not None
        await held._remove()
        await held.add(title=row.title, spec=row.spec)
    ended = await asyncio.to_thread(go_on, "two", store, [])
    assert timeless(ended.outcome) == timeless(whole.outcome)


def test_a_session_with_failed_calls_can_be_forked(store: str) -> None:
    model = ScriptedChatModel(script=["A1", Reply(error=500), "B1", "A2", "B2"])
    with pytest.raises(Exception, match="500"):
        converse(plain(), session="one", store=store, model=model)
    whole = Session("one", store=store).resume(model=model)
    for at in ids(whole):
        new = Session("one", store=store).fork(at=at).id
        rest = ["A1", "B1", "A2", "B2"][calls_in(Session(new, store=store).state()) :]
        assert without_ids(go_on(new, store, rest).messages) == without_ids(whole.messages)


@pytest.mark.part(3)
@pytest.mark.parametrize("number", range(3, 7))
def test_what_was_said_before_a_kill_is_in_a_fork(
    any_store: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    lines: list[Line] = ["A1", "B1", "A2", "B2"]
    with killed_before_checkpoint(monkeypatch, number):
        run(plain(), lines, session="one", store=any_store)
    left = Session("one", store=any_store).state()
    assert left.messages
    for at in (*ids(left), None):
        new = Session("one", store=any_store).fork(at=at).id
        forked = Session(new, store=any_store).state()
        assert forked.messages == left.messages[: ids(left).index(at or ids(left)[-1]) + 1]
        ended = go_on(new, any_store, lines[calls_in(forked) :])
        assert [text for _, text in ended.transcript] == lines


def test_changes_that_no_fork_can_make_are_named(store: str) -> None:
    run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=store)

    def check(changes: dict[str, Any], said: str) -> None:
        with pytest.raises(SpecError, match=f"^{re.escape(said)}"):
            Session("one", store=store).fork(**changes)

    rows = read_rows(__file__, "changes_that_no_fork_can_make")
    missing = "task: is missing, and 'Ann' has no task either; set one"
    check_rows([*((one["changes"], one["said"]) for one in rows), ({"task": None}, missing)], check)
    assert len(list_sessions(store=store)) == 1


def test_what_can_not_be_forked_or_made_is_named(store: str) -> None:
    run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=store)
    run(plain(), ["A1", "B1", "A2", "B2"], session="two", store=store)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"session": "nobody"}, "There is no session 'nobody' in "),
        ({"session": "../x"}, "'../x' is not a valid session id"),
        ({"session": "one", "into": "a b"}, "'a b' is not a valid session id"),
        ({"session": "one", "into": ""}, "'' is not a valid session id"),
        ({"session": "one", "into": "two"}, "Session 'two' already exists in "),
        ({"session": "one", "into": "one"}, "Session 'one' already exists in "),
        (
            {"session": "one", "at": "m0099"},
            "Session 'one' has no message 'm0099'; it has m0000 to m0004.",
        ),
        ({"session": "one", "at": ""}, "Session 'one' has no message ''"),
    ]
    for arguments, said in wrong:
        with pytest.raises(SessionError, match=f"^{re.escape(said)}"):
            Session(arguments.pop("session"), store=store).fork(**arguments)
    assert len(list_sessions(store=store)) == 2


@pytest.mark.usefixtures("impatient")
async def test_an_id_that_is_being_run_and_a_session_without_messages_are_refused(
    store: str,
) -> None:
    await asyncio.to_thread(run, plain(), ["A", "B", "C", "D"], session="one", store=store)
    async with open_store(store) as opened:
        async with opened.lock("two"):
            with pytest.raises(SessionError, match="'two' is busy"):
                await Session("one", store=store).afork(into="two")
        async with opened.lock("empty") as held:
            await held.add(title="", spec=json.dumps(plain().stored()))
    with pytest.raises(SessionError, match="'empty' has no message yet to fork at"):
        await Session("empty", store=store).afork()
