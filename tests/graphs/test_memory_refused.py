"""Dumps and memories that can't be had, loaded or replaced, each refused in one sentence."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage

from duologue.graphs import (
    Session,
    SessionError,
    SpecError,
    StoreError,
    aload_session,
    list_sessions,
    load_session,
)
from duologue.graphs.store.address import open_store
from support.logs import without_ids
from support.stores import EACH_STORE, store_address

from .fork_help import (
    go_on,
    plain,
    run,
)
from .memory_help import MEMORY, MESSAGE, SESSION, SPEC, seen, stopped


@pytest.fixture
def here(tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}-here"


@pytest.fixture
def there(tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}-there"


@pytest.fixture(params=EACH_STORE)
def store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


# What bad input gets


def test_what_can_not_be_done_is_named(here: str, there: str) -> None:
    run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=here)
    run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=there)
    whole = Session("one", store=here).dump()
    memory = Session("one", store=here).dump(speaker="Ann")
    stranger = "nobody in session 'one' is called 'Eve'; there are 'Ann', 'Ben'"
    missing = "into: is missing: name the session whose speaker is to remember it"
    cases: list[tuple[Callable[[], object], type[Exception], str]] = [
        (
            lambda: Session("nobody", store=here).dump(),
            SessionError,
            "There is no session 'nobody'",
        ),
        (
            lambda: Session("../x", store=here).dump(),
            SessionError,
            "'../x' can't be a session's id",
        ),
        (lambda: Session("one", store=here).dump(speaker="Eve"), SpecError, stranger),
        (
            lambda: Session("nobody", store=here).reset(),
            SessionError,
            "There is no session 'nobody'",
        ),
        (lambda: Session("one", store=here).reset(speaker="Eve"), SpecError, stranger),
        (
            lambda: load_session(whole, store=there).id,
            SessionError,
            "Session 'one' exists already in",
        ),
        (
            lambda: load_session(whole, into="a b", store=there).id,
            SessionError,
            "'a b' can't be a session's id",
        ),
        (
            lambda: load_session(whole, into="two", speaker="Ann", store=there).id,
            SpecError,
            "speaker: a whole session is loaded for all its speakers: leave it out",
        ),
        (lambda: load_session(memory, store=there).id, SpecError, missing),
        (
            lambda: load_session(memory, into="one", speaker="Eve", store=there).id,
            SpecError,
            stranger,
        ),
        (lambda: Session("one", store=here).copy(speaker="Ann").id, SpecError, missing),
        (
            lambda: Session("one", store=here).copy(into="one").id,
            SessionError,
            "Session 'one' exists already in",
        ),
        (
            lambda: Session("one", store=here).copy(into="x", speaker="Ann").id,
            SessionError,
            "There is no session 'x'",
        ),
    ]
    for act, error, said in cases:
        with pytest.raises(error, match=f"^{re.escape(said)}"):
            act()
    assert len(list_sessions(store=there)) == 1


async def test_a_running_session_is_read_but_not_changed(store: str) -> None:
    await asyncio.to_thread(stopped, plain(), ["A1"], store, "one")
    memory = await Session("one", store=store).adump(speaker="Ann")
    async with open_store(store) as opened, opened.lock("one"):
        busy = "'one' is busy: another run holds it"
        for act in (
            Session("one", store=store).areset(),
            Session("one", store=store).areset(speaker="Ann"),
            aload_session(memory, into="one", store=store),
            Session("one", store=store).acopy(into="one", speaker="Ann"),
        ):
            with pytest.raises(SessionError, match=busy):
                await act
        await Session("one", store=store).acopy(into="two")
        assert await Session("one", store=store).aexport(format="jsonl")
    one, two = [await Session(session, store=store).astate() for session in ("one", "two")]
    assert without_ids(one.messages) == without_ids(two.messages)


async def test_a_session_that_has_not_begun_has_no_memory_to_replace(here: str) -> None:
    await asyncio.to_thread(run, plain(), ["A", "B", "C", "D"], session="one", store=here)
    memory = await Session("one", store=here).adump(speaker="Ann")
    await Session("one", store=here).areset()
    with pytest.raises(SessionError, match="'one' has not begun: nobody in it has a memory"):
        await aload_session(memory, into="one", store=here)
    await Session("one", store=here).areset(speaker="Ann")
    assert len((await asyncio.to_thread(go_on, "one", here, ["A", "B", "C", "D"])).transcript) == 4


def test_a_mistyped_store_is_named_and_not_made(here: str, tmp_path: Path) -> None:
    run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=here)
    memory = Session("one", store=here).dump(speaker="Ann")
    typo = tmp_path / "typo.db"
    for act in (
        lambda: Session("one", store=typo).dump(),
        lambda: Session("one", store=typo).reset(),
        lambda: Session("one", store=typo).copy().id,
        lambda: load_session(memory, into="one", store=typo).id,
    ):
        with pytest.raises(StoreError, match=r"typo\.db can't be used: there is no such file"):
            act()
    assert not typo.exists()


BAD: list[tuple[object, str]] = [
    ([], "format: is missing: this is not a dump of a session or a memory"),
    ({}, "format: is missing: this is not a dump of a session or a memory"),
    (
        SESSION | {"format": "autogen.state"},
        "format: 'autogen.state' is not a duologue dump; there are 'duologue.session', "
        "'duologue.memory'",
    ),
    (SESSION | {"format": 3}, "format: 3 is not a duologue dump"),
    (
        SESSION | {"version": 7, "mood": "good"},
        "version: 7 is newer than this release understands (6); upgrade duologue",
    ),
    (MEMORY | {"version": 8}, "version: 8 is newer than this release understands (6)"),
    (
        SESSION | {"version": 4},
        "version: 4 was written by a development version before 0.1.0",
    ),
    (MEMORY | {"version": 1}, "version: 1 was written by a development version before 0.1.0"),
    (
        SESSION | {"spec": SPEC | {"version": 5}},
        "spec: version: 5 was written by a development version before 0.1.0",
    ),
    (MEMORY | {"version": "1"}, "version: must be a whole number from 1 on, not '1'"),
    ({"format": "duologue.memory"}, "version: is missing"),
    (
        SESSION | {"spec": SPEC | {"version": 99}},
        "spec: version: 99 is newer than this release understands",
    ),
    (SESSION | {"spec": SPEC | {"speakers": []}}, "spec.speakers: needs at least 2"),
    (SESSION | {"spec": None}, "spec: "),
    (SESSION | {"stps": []}, "stps: there is no such field; did you mean 'steps'?"),
    (SESSION | {"steps": 3}, "steps: "),
    (SESSION | {"steps": [{"messages": [{}]}]}, "steps.0.messages.0.text: is missing"),
    (
        SESSION | {"steps": [{"messages": [MESSAGE | {"line": {"kind": "sung"}}]}]},
        "steps.0.messages.0.line.kind: ",
    ),
    (
        SESSION | {"steps": [{"messages": [MESSAGE, MESSAGE | {"id": "m0002"}]}]},
        "steps.0.messages.1.id: must be 'm0001', the next one, not 'm0002'",
    ),
    (
        SESSION | {"steps": [{"position": {"speaker": "Eve"}}]},
        "steps.0.position: nobody is called 'Eve'",
    ),
    (SESSION | {"steps": [{"position": {"phase": "flown"}}]}, "steps.0.position.phase: "),
    (MEMORY | {"lines": [{"speaker": "Ann"}]}, "lines.0.text: is missing"),
    (
        MEMORY | {"lines": [{"speaker": "Ben", "text": "x", "call_id": "a"}]},
        "lines.0.speaker: must be 'Ann', who alone remembers calls of tools, not 'Ben'",
    ),
]


@pytest.mark.part(8)
@pytest.mark.parametrize(("data", "said"), BAD, ids=[said for _, said in BAD])
def test_what_is_no_dump_of_ours_is_refused_naming_the_field_and_the_file(
    data: object, said: str, here: str, tmp_path: Path
) -> None:
    run(plain(), ["A1", "B1", "A2", "B2"], session="now", store=here)
    file = tmp_path / "memory.json"
    file.write_text(json.dumps(data))
    into = "now" if isinstance(data, dict) and "memory" in str(data.get("format")) else None
    with pytest.raises(SpecError, match=f"^{re.escape(f'{file}: {said}')}"):
        load_session(file, into=into, store=here)
    if isinstance(data, dict):
        with pytest.raises(SpecError, match=f"^{re.escape(said)}"):
            load_session(data, into=into, store=here)
    assert len(list_sessions(store=here)) == 1


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, here: str) -> None:
    for name, held, said in [
        ("gone.json", None, "can't be read: No such file or directory"),
        ("cut.json", b'{"format"', "is not valid JSON: "),
        ("bytes.json", b"\xff\xfe", "is not UTF-8 text"),
        ("deep.json", b"[" * 100_000, "is nested too deep to be read"),
        ("dump.toml", b"", "a dump is read from a .json file"),
    ]:
        if held is not None:
            (tmp_path / name).write_bytes(held)
        with pytest.raises(SpecError, match=f"^{re.escape(f'{tmp_path / name}: {said}')}"):
            load_session(tmp_path / name, store=here)


def test_a_memory_may_be_written_by_hand(here: str) -> None:
    stopped(plain(), ["A1"], here, "one")
    lines = [{"text": "We met in Rome."}, {"speaker": "Ben", "text": "Ciao."}, {"text": "…"}]
    load_session(
        {**MEMORY, "speaker": "Ben", "lines": lines},
        into="one",
        store=here,
    )
    view = Session("one", store=here).state().viewpoint("Ben")
    assert [one.text for one in view[1:]] == ["We met in Rome.", "Ciao.", "…\n\nA1"]
    assert isinstance(view[-1], HumanMessage)


def test_a_memory_that_is_loaded_back_changes_nothing(store: str) -> None:
    """L2: what is not answered yet is in the dump, and is kept anyway."""
    conversation = plain(end_chat={"max_iterations": 2})
    run(conversation, ["a1", "b1", "a2", "b2"], session="s", store=store)
    before = Session("s", store=store).state()
    for name in conversation.names:
        dump = Session("s", store=store).dump(speaker=name)
        load_session(dump, into="s", store=store)
        after = Session("s", store=store).state()
        assert seen(after, name) == seen(before, name)
        assert Session("s", store=store).dump(speaker=name)["lines"] == dump["lines"]
