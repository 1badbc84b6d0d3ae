"""Rules for sessions: effects of a known id, concurrent runs, listing and deletion."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duologue import (
    Conversation,
    DuologueError,
    Session,
    SessionError,
    StoreError,
    aconverse,
    alist_sessions,
    astream,
    converse,
    list_sessions,
    role_play,
)
from duologue.graphs.events import MessageSaid
from duologue.nodes.testing import Prompt, ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from duologue.tools import Hook, Turn
from support.log import without_ids
from support.stores import EACH_STORE, open_store, store_address
from support.tables import read_rows

GARDEN = role_play("Plan a garden", "Owner", "Gardener", specify_task=False, max_iterations=2)


def speak(prompt: Prompt) -> str:
    turn = sum(message["role"] == "assistant" for message in prompt)
    if "You are Owner" in prompt[0]["content"]:
        return f"Instruction: dig bed {turn}.\nInput: None"
    return f"Solution: bed {turn} is dug.\nNext request."


def model() -> ScriptedChatModel:
    return ScriptedChatModel(script=speak)


def breaks_after(calls: int) -> ScriptedChatModel:
    """Return a model that answers so often, and then fails."""
    made = 0

    def script(prompt: Prompt) -> str:
        nonlocal made
        made += 1
        if made > calls:
            raise ValueError("broken")
        return speak(prompt)

    return ScriptedChatModel(script=script)


@pytest.fixture(params=EACH_STORE)
def store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


def half(store: str, session: str = "garden", calls: int = 3) -> None:
    """Leave a session unfinished after so many calls."""
    with pytest.raises(ValueError, match="broken"):
        converse(GARDEN, session=session, store=store, model=breaks_after(calls))


def test_an_unfinished_session_of_the_same_conversation_goes_on(store: str) -> None:
    half(store)
    # L2: sessions of one store are isolated, whatever happens between their runs.
    whole = converse(GARDEN, session="whole", store=store, model=model())
    assert len(Session("garden", store=store).state().transcript) == 3
    rest = model()
    result = converse(GARDEN, session="garden", store=store, model=rest)
    assert len(rest.calls) == 1
    assert without_ids(result.messages) == without_ids(whole.messages)
    assert Session("whole", store=store).state() == whole


def test_a_finished_session_gives_its_result_without_a_call(store: str) -> None:
    first = converse(GARDEN, session="garden", store=store, model=model())
    again, resumed = model(), model()
    assert converse(GARDEN, session="garden", store=store, model=again) == first
    assert first.session.resume(model=resumed) == first
    assert (again.calls, resumed.calls) == ([], [])


@pytest.mark.parametrize("calls", [3, 4])
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"task": "Plan a park"}, "task"),
        ({"end_chat": GARDEN.end_chat.model_copy(update={"max_iterations": 3})}, "max_iterations"),
    ],
)
def test_another_conversation_is_refused_naming_the_first_field_that_differs(
    store: str, calls: int, changes: dict[str, Any], field: str
) -> None:
    garden = Session("garden", store=store)
    if calls == 4:
        converse(GARDEN, session="garden", store=store, model=model())
    else:
        half(store, calls=calls)
    before = garden.state()
    other, asked = GARDEN.model_copy(update=changes), model()
    with pytest.raises(SessionError, match=rf"'garden'.*\b{field} differs"):
        converse(other, session="garden", store=store, model=asked)
    assert asked.calls == []
    assert garden.state() == before


def test_reset_starts_a_session_anew(store: str) -> None:
    converse(GARDEN, session="garden", store=store, model=model())
    other = GARDEN.model_copy(update={"task": "Plan a park"})
    asked = model()
    result = converse(other, session="garden", store=store, model=asked, reset=True)
    assert len(asked.calls) == 4
    assert result.conversation == other
    assert len(result.transcript) == 4
    assert [(row.title, row.status) for row in list_sessions(store=store)] == [
        ("Plan a park", "finished")
    ]


def test_reset_of_a_session_that_is_not_there_just_starts_it(store: str) -> None:
    assert converse(GARDEN, session="new", store=store, model=model(), reset=True).outcome


@pytest.mark.parametrize("session", ["", ".", "..", "a b", "a/b", "ä", "a\n", "x" * 129])
def test_an_odd_id_is_refused_before_a_model_is_asked(session: str, store: str) -> None:
    asked = model()
    with pytest.raises(SessionError, match=re.escape(repr(session))):
        converse(GARDEN, session=session, store=store, model=asked)
    assert asked.calls == []


@pytest.mark.part(4)
@pytest.mark.parametrize("session", ["-", "...", "A.b_c-1", "x" * 128])
def test_any_id_of_the_allowed_signs_works(session: str, store: str) -> None:
    assert converse(GARDEN, session=session, store=store, model=model()).session.id == session


KNOWN: list[Callable[[Session], object]] = [
    Session.resume,
    Session.state,
    Session.delete,
    Session.stop,
    Session.dump,
    Session.reset,
    Session.copy,
    Session.fork,
    lambda session: session.set_memory("Owner", ["Hi."]),
]
"""Operations that need an existing session."""


def test_an_unknown_session_is_one_clear_error(store: str) -> None:
    converse(GARDEN, session="garden", store=store, model=model())
    for act in KNOWN:
        with pytest.raises(SessionError, match="no session 'nobody'"):
            act(Session("nobody", store=store))


def test_a_mistyped_store_is_named_and_not_made(tmp_path: Path) -> None:
    typo = tmp_path / "typo" / "sessions.db"
    for act in KNOWN:
        with pytest.raises(StoreError, match=rf"{typo} can't be used: there is no such file"):
            act(Session("garden", store=typo))
    with pytest.raises(StoreError, match=rf"{typo} can't be used: there is no such file"):
        list_sessions(store=typo)
    assert not typo.parent.exists()


def test_the_store_of_the_settings_may_be_empty_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list_sessions() == []
    monkeypatch.setenv("DUOLOGUE_STORE", str(tmp_path / "mine.db"))
    assert list_sessions() == []
    for act in KNOWN:
        with pytest.raises(SessionError, match="no session 'nobody'"):
            act(Session("nobody"))


def test_without_an_id_a_readable_one_is_made_up(store: str) -> None:
    first = converse(GARDEN, store=store, model=model()).session.id
    second = converse(GARDEN, store=store, model=model()).session.id
    assert re.fullmatch(r"plan-a-garden-[0-9a-f]{12}", first)
    assert first != second


@pytest.mark.usefixtures("impatient")
def test_a_session_that_runs_is_busy_for_other_runs_and_for_deletion(store: str) -> None:
    asked, session = model(), Session("garden", store=store)
    hooked = GARDEN.replace(speakers={"Owner": {"hooks": ["look"]}})
    looked: list[Turn] = []

    async def look(turn: Turn) -> None:
        looked.append(turn)
        for run in (
            lambda: aconverse(hooked, session="garden", store=store, model=asked, hooks=hooks),
            lambda: aconverse(
                hooked, session="garden", store=store, model=asked, hooks=hooks, reset=True
            ),
            lambda: session.aresume(model=asked, hooks=hooks),
            session.adelete,
        ):
            with pytest.raises(SessionError, match="'garden' is busy"):
                await run()
        assert asked.calls == []
        # Reading is allowed at the same time.
        assert [row.status for row in await alist_sessions(store=store)] == ["unfinished"]
        assert (await session.astate()).outcome is None

    hooks = {"look": Hook(before_speaker=look)}
    converse(GARDEN, session="garden", store=store, model=model())
    # A reset keeps its lease from the deletion on.
    result = converse(hooked, session="garden", store=store, model=model(), hooks=hooks, reset=True)
    assert result.outcome is not None
    assert len(looked) == 2


def test_what_does_not_run_can_not_be_asked_to_stop(store: str) -> None:
    garden = Session("garden", store=store)
    half(store)
    with pytest.raises(SessionError, match=r"'garden' is not running; there is nothing to stop\."):
        garden.stop()
    garden.resume(model=model())
    with pytest.raises(SessionError, match=r"'garden' has ended already\."):
        garden.stop()
    with pytest.raises(SessionError, match=r"'\.\./x' is not a valid session id"):
        Session("../x", store=store).stop()
    assert not list_sessions(store=store)[0].stop_requested


@pytest.mark.process
@pytest.mark.live
def test_a_session_that_another_process_runs_is_busy(
    start_child: Callable[..., Any], tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    with ScriptedServer(speak, hold=[1]) as server:
        child = start_child(
            environment={"OPENAI_BASE_URL": server.url, "DUOLOGUE_MODEL": "scripted"},
            conversation=GARDEN.model_dump(mode="json"),
            session="garden",
            store=store,
        )
        server.wait_for(2, timeout=60)
        asked = model()
        with pytest.raises(SessionError, match="'garden' is busy"):
            Session("garden", store=store).resume(model=asked)
        server.release()
        child.result()
    assert Session("garden", store=store).resume(model=asked).outcome is not None
    assert asked.calls == []


async def test_two_sessions_at_once_do_not_see_each_other(store: str) -> None:
    park = role_play("Plan a park", "Owner", "Gardener", specify_task=False, max_iterations=4)
    asked, other = model(), model()
    garden, parked = await asyncio.gather(
        aconverse(GARDEN, session="garden", store=store, model=asked),
        aconverse(park, session="park", store=store, model=other),
    )
    assert (len(garden.transcript), len(parked.transcript)) == (4, 8)
    assert not any("park" in str(call.prompt) for call in asked.calls)
    assert not any("garden" in str(call.prompt) for call in other.calls)
    assert garden.messages == (await Session("garden", store=store).astate()).messages
    assert parked.messages == (await Session("park", store=store).astate()).messages


def test_sessions_are_listed_newest_first_and_gone_when_deleted(store: str) -> None:
    one = converse(GARDEN, session="one", store=store, model=model()).session
    half(store, session="half")
    rows = [(row.session, row.title, row.status, row.reason) for row in list_sessions(store=store)]
    assert rows == [
        ("half", "Plan a garden", "unfinished", None),
        ("one", "Plan a garden", "finished", "max_iterations"),
    ]
    one.delete()
    assert [row.session for row in list_sessions(store=store)] == ["half"]
    assert len(Session("half", store=store).state().transcript) == 3
    # No data remains from which the session could continue.
    assert len(converse(GARDEN, session="one", store=store, model=model()).transcript) == 4


async def test_a_session_listed_but_never_begun_begins(store: str) -> None:
    garden = Session("garden", store=store)
    async with open_store(store) as opened, opened.lock("garden") as held:
        spec = GARDEN.model_dump_json(exclude_defaults=True)
        await held.add(title="Plan a garden", spec=spec)
    assert (await garden.astate()).messages == []
    asked = model()
    assert (await garden.aresume(model=asked)).outcome is not None
    assert len(asked.calls) == 4


async def test_a_finished_session_whose_deletion_was_killed_half_way_begins_anew(
    store: str,
) -> None:
    await aconverse(GARDEN, session="garden", store=store, model=model())
    async with open_store(store) as opened, opened.lock("garden") as held:
        await held.checkpointer.adelete_thread("garden")
    asked = model()
    result = await aconverse(GARDEN, session="garden", store=store, model=asked)
    assert result.outcome is not None
    assert len(asked.calls) == 4


@pytest.mark.parametrize(
    ("version", "error"),
    read_rows(__file__, "a_session_of_another_version_is_refused_and_kept"),
)
async def test_a_session_of_another_version_is_refused_and_kept(
    version: int, error: str, store: str
) -> None:
    garden = Session("garden", store=store)
    async with open_store(store) as opened, opened.lock("garden") as held:
        spec = json.dumps(GARDEN.model_dump(mode="json") | {"version": version, "mood": "good"})
        row = await held.add(title="Plan a garden", spec=spec)
    for act in (Session.aresume, Session.astate):
        with pytest.raises(StoreError, match=error):
            await act(garden)
    assert [*await alist_sessions(store=store)] == [row]
    await garden.adelete()
    assert [*await alist_sessions(store=store)] == []


async def test_a_missing_model_leaves_no_session_behind(store: str) -> None:
    with pytest.raises(DuologueError):
        await aconverse(GARDEN, session="garden", store=store, model="nobody")
    assert await alist_sessions(store=store) == []


async def test_a_reader_who_leaves_early_can_come_back(store: str) -> None:
    events = astream(GARDEN, session="garden", store=store, model=model())
    async for event in events:
        if isinstance(event, MessageSaid):
            break
    await events.aclose()
    rest = model()
    result = await Session("garden", store=store).aresume(model=rest)
    assert len(result.transcript) == 4
    assert len(rest.calls) in (2, 3)


async def test_the_sync_functions_work_inside_a_running_event_loop(store: str) -> None:
    result = converse(GARDEN, session="garden", store=store, model=model())
    assert result.session.state() == result


async def test_the_sync_functions_work_from_several_threads(store: str) -> None:
    def one(number: int) -> int:
        session = f"garden{number}"
        return len(converse(GARDEN, session=session, store=store, model=model()).transcript)

    assert await asyncio.gather(*(asyncio.to_thread(one, n) for n in range(4))) == [4] * 4
    assert len(list_sessions(store=store)) == 4


@pytest.mark.exhaustive
def test_the_file_grows_in_proportion_to_the_conversation(tmp_path: Path) -> None:
    sizes = []
    for rounds in (50, 100):
        path = tmp_path / f"{rounds}.db"
        long = role_play("Plan", "Owner", "Gardener", specify_task=False, max_iterations=rounds)
        result = converse(long, session="long", store=path, model=model())
        assert len(result.transcript) == 2 * rounds
        sizes.append(sum(one.stat().st_size for one in (path, *tmp_path.glob(f"{rounds}.db-*"))))
    assert sizes[1] < 3 * sizes[0]


def test_a_conversation_is_stored_as_it_was_given(store: str) -> None:
    converse(GARDEN, session="garden", store=store, model=model())
    row = list_sessions(store=store)[0]
    assert Conversation.model_validate_json(row.spec) == GARDEN


def test_an_unknown_option_is_refused_and_the_known_ones_are_named() -> None:
    options: dict[str, Any] = {"modle": "embedded"}
    with pytest.raises(TypeError, match=r"no option 'modle'; did you mean 'model', 'models'"):
        converse({"task": "Plan", "speakers": [{"name": "A"}, {"name": "B"}]}, **options)
