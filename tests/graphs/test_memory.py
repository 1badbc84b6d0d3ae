"""L2: memory as state. Dumps, loads, resets and copies of sessions, and of one speaker's memory."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from logs import without_ids

from duologue.graphs import (
    Conversation,
    Result,
    SessionError,
    SpecError,
    StoreError,
    acopy_session,
    adump_session,
    aexport_session,
    aget_session,
    aload_session,
    areset_session,
    converse,
    copy_session,
    dump_session,
    fork,
    get_session,
    list_sessions,
    load_session,
    reset_session,
)
from duologue.graphs.common.versions import Versions
from duologue.graphs.log.kinds import Kind
from duologue.graphs.log.messages import line, place_name, place_of
from duologue.graphs.rules.facts import observed
from duologue.graphs.sessions.dumps import dump as dump_format
from duologue.graphs.store.address import open_store
from duologue.nodes.prompts import speaking
from duologue.nodes.prompts.template import filled
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall

from .fork_help import (
    FUNCTIONS,
    NO,
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
from .test_fork import TALKS

LIVE = pytest.mark.live
STORES = ["memory", "sqlite", pytest.param("postgresql", marks=LIVE)]
WAYS = [
    *((name, ("memory", "sqlite")) for name in TALKS),
    ("hooked", ("sqlite", "memory")),
    pytest.param("hooked", ("sqlite", "postgresql"), marks=LIVE),
    pytest.param("hooked", ("postgresql", "sqlite"), marks=LIVE),
]
"""What is said makes no difference to a store: every talk goes one way, one goes all ways."""


def store_of(kind: str, name: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match kind:
        case "memory":
            return f"memory:{tmp_path.name}-{name}"
        case "sqlite":
            return f"sqlite:///{tmp_path / name}.db"
        case _:
            return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_of(request.param, "here", request, tmp_path)


@pytest.fixture
def here(tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}-here"


@pytest.fixture
def there(tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}-there"


def through_json(dump: dict[str, Any]) -> dict[str, Any]:
    """What is left of a dump behind JSON text."""
    again: dict[str, Any] = json.loads(json.dumps(dump, allow_nan=False))
    return again


def stopped(conversation: Conversation, lines: Sequence[Line], store: str, session: str) -> None:
    """Leave a session behind so many calls, by a model that then fails."""
    model = ScriptedChatModel(script=[*lines, Reply(error=500)])
    with pytest.raises(Exception, match="500"):
        converse(conversation, session=session, store=store, model=model, **FUNCTIONS)


def views(result: Result, *names: str) -> dict[str, list[BaseMessage]]:
    """What these speakers see, but for the ids, which move in mid-turn."""
    return {
        name: [message.model_copy(update={"id": None}) for message in result.viewpoint(name)]
        for name in names
    }


# Whole sessions


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "way"), WAYS)
def test_a_session_is_the_same_in_another_database_and_forks_from_any_message_there(
    name: str, way: tuple[str, str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    here, there = (
        store_of(kind, number, request, tmp_path)
        for kind, number in zip(way, ("1", "2"), strict=True)
    )
    conversation, lines = TALKS[name]
    whole = run(conversation, lines, session="one", store=here)
    dump = dump_session("one", store=here)
    assert load_session(through_json(dump), store=there) == "one"
    assert get_session("one", store=there) == whole
    assert dump_session("one", store=there) == dump
    rows = [list_sessions(store=store)[0] for store in (here, there)]
    assert len({(row.title, row.spec, row.status, row.reason) for row in rows}) == 1
    assert go_on("one", there, []) == whole
    for at in ids(whole)[::8]:
        kept = [
            get_session(fork("one", at=at, store=store), store=store).messages
            for store in (here, there)
        ]
        assert kept[0] == kept[1]
        assert at in [place_of(message) for message in kept[0]]
    new = fork("one", at=ids(whole)[3], store=there)
    ended = go_on(new, there, lines[calls_in(get_session(new, store=there)) :])
    assert without_ids(ended.messages) == without_ids(whole.messages)
    assert timeless(ended.outcome) == timeless(whole.outcome)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TALKS)
def test_a_session_dumped_after_any_message_goes_on_as_the_original_and_forks_from_each(
    name: str, here: str, there: str
) -> None:
    """Rejected drafts, calls of tools, questions of the judge: nothing is asked twice."""
    conversation, lines = TALKS[name]
    whole = run(conversation, lines, session="whole", store=here)
    for made in range(len(lines)):
        session = f"after-{made}"
        stopped(conversation, lines[:made], here, session)
        dump = dump_session(session, store=here)
        load_session(through_json(dump), store=there)
        assert dump_session(session, store=there) == dump
        assert get_session(session, store=there) == get_session(session, store=here)
        # Where the newest call left it: the longest, which has its past, is forked all along.
        newest = 0 if made == len(lines) - 1 else -4
        for at in ids(get_session(session, store=there))[newest:]:
            new = fork(session, at=at, store=there)
            held = get_session(new, store=there)
            assert at in ids(held)
            before = whole.messages[: ids(whole).index(at)]
            assert calls_in(held) <= 1 + calls_in_log(before)
            assert without_ids(held.messages) == without_ids(whole.messages[: len(held.messages)])
        # What it holds is what it goes on from: every third shows that it does.
        if made % 3:
            continue
        ended = go_on(session, there, lines[made:])
        assert without_ids(ended.messages) == without_ids(whole.messages)
        assert timeless(ended.outcome) == timeless(whole.outcome)
        assert ended.specified_task == whole.specified_task


@pytest.mark.parametrize("number", range(1, 8))
def test_what_was_written_before_a_kill_is_dumped(
    store: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    lines: list[Line] = ["A1", "B1", "A2", "B2"]
    with killed_before_checkpoint(monkeypatch, number):
        run(plain(), lines, session="one", store=store)
    left = get_session("one", store=store)
    load_session(through_json(dump_session("one", store=store)), into="two", store=store)
    assert get_session("two", store=store).messages == left.messages
    for session in ("one", "two"):
        ended = go_on(session, store, lines[calls_in(left) :])
        assert [text for _, text in ended.speeches] == lines


def test_a_forked_session_is_dumped_with_the_rules_of_its_past(here: str, there: str) -> None:
    conversation, lines = TALKS["structured"]
    run(conversation, lines, session="one", store=here)
    changes: dict[str, Any] = {"speakers": {"Ann": {"task": "Rest"}}, "task": "Plan a park"}
    fork("one", at="m0014", into="two", store=here, **changes)
    dump = dump_session("two", store=here)
    load_session(through_json(dump), store=there)
    assert dump_session("two", store=there) == dump
    earlier = [
        get_session(fork("two", at="m0009", into="three", store=store), store=store)
        for store in (here, there)
    ]
    both = [replace(one, messages=without_ids(one.messages)) for one in earlier]
    assert both[0] == both[1]
    # What the fork changed is told, since the rules of that time were others.
    assert told(earlier[1], "Ann") == ["Dig", filled(speaking.NEW_TASK, task="Rest")]


async def test_a_session_that_was_never_begun_is_loaded_and_begins(here: str, there: str) -> None:
    async with open_store(here) as opened, opened.lock("one") as held:
        await held.add(title="", spec=json.dumps(plain().stored()))
    dump = await adump_session("one", store=here)
    assert "steps" not in dump
    await aload_session(dump, store=there)
    ended = await asyncio.to_thread(go_on, "one", there, ["A1", "B1", "A2", "B2"])
    assert len(ended.speeches) == 4


def test_a_dump_of_an_older_version_is_brought_up_to_date(
    there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(data: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in data.items() if key != "mood"}

    older = dump_format.DUMP_VERSIONS.oldest - 1
    monkeypatch.setattr(dump_format, "DUMP_VERSIONS", Versions(older, (step,)))
    assert load_session(SESSION | {"version": older, "mood": "good"}, store=there) == "one"


def test_a_dump_holds_nothing_but_plain_values(here: str) -> None:
    conversation, lines = TALKS["structured"]
    run(conversation, lines, session="one", store=here)
    for speaker in (None, *conversation.names):
        dump = dump_session("one", speaker=speaker, store=here)
        assert through_json(dump) == dump
        assert "lc" not in json.dumps(dump).split('"')
        assert "additional_kwargs" not in json.dumps(dump)


def test_a_dump_of_a_long_session_grows_in_proportion(here: str) -> None:
    sizes = []
    for rounds in (20, 40):
        conversation = plain(end_chat={"max_iterations": rounds})
        lines = [f"Line {number}" for number in range(2 * rounds)]
        run(conversation, lines, session=f"s{rounds}", store=here)
        sizes.append(len(json.dumps(dump_session(f"s{rounds}", store=here))))
    assert sizes[1] < 2.2 * sizes[0]


def test_a_whole_session_begins_anew_when_it_is_reset(store: str) -> None:
    run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=store)
    before = list_sessions(store=store)[0]
    reset_session("one", store=store)
    (row,) = list_sessions(store=store)
    assert (row.status, row.reason) == ("unfinished", None)
    assert (row.spec, row.created_at) == (before.spec, before.created_at)
    held = get_session("one", store=store)
    assert (held.messages, held.outcome, held.conversation) == ([], None, plain())
    ended = go_on("one", store, ["C1", "D1", "C2", "D2"])
    assert [text for _, text in ended.speeches] == ["C1", "D1", "C2", "D2"]
    assert list_sessions(store=store)[0].status == "finished"


def test_a_copy_is_the_same_and_goes_its_own_way(store: str, there: str) -> None:
    stopped(plain(), ["A1", "B1"], store, "one")
    here = get_session("one", store=store)
    copies = [
        (copy_session("one", store=store), store),
        (copy_session("one", into="mine", store=store), store),
        (copy_session("one", store=store, to=there), there),
        (copy_session("one", into="other", store=store, to=there), there),
    ]
    assert re.fullmatch(r"one-copy-[0-9a-f]{6}", copies[0][0])
    assert [session for session, _ in copies[1:]] == ["mine", "one", "other"]
    for session, where in copies:
        assert get_session(session, store=where).messages == here.messages
        assert len(go_on(session, where, ["A2", "B2"]).speeches) == 4
    assert get_session("one", store=store) == here


def test_a_copy_goes_into_a_file_that_is_not_there_yet(here: str, tmp_path: Path) -> None:
    run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=here)
    copy_session("one", store=here, to=tmp_path / "new.db")
    load_session(dump_session("one", store=here), store=tmp_path / "newer.db")
    for name in ("new.db", "newer.db"):
        assert get_session("one", store=tmp_path / name) == get_session("one", store=here)


# One speaker's memory


# In the hooked one what is said depends on what is heard.
@pytest.mark.parametrize("name", ["structured", "moderated"])
def test_a_reset_memory_changes_nothing_but_what_that_speaker_sees(name: str, here: str) -> None:
    """After any call, in mid-turn too: the same speeches, verdicts and end; nothing counts anew."""
    conversation, lines = TALKS[name]
    whole = run(conversation, lines, session="whole", store=here)
    for made in range(len(lines) + 1):
        # Each moment for one of them: the next is the other's.
        for speaker in conversation.names[made % 2 :: 2]:
            session = f"{speaker}-{made}"
            if made < len(lines):
                stopped(conversation, lines[:made], here, session)
            else:
                copy_session("whole", into=session, store=here)
            before = get_session(session, store=here)
            reset_session(session, speaker=speaker, store=here)
            _changes_its_own_view_only(conversation, before, speaker, here)
            # What it remembers at its end, loaded in the middle.
            memory = dump_session("whole", speaker=speaker, store=here)
            if was_reset(get_session(session, store=here)):
                load_session(memory, into=session, store=here)
                _changes_its_own_view_only(conversation, before, speaker, here)
            ended = go_on(session, here, lines[made:])
            assert ended.speeches == whole.speeches
            assert ids(ended) == [place_name(number) for number in range(len(ended.messages))]
            assert gist(ended) == gist(whole)


def was_reset(result: Result) -> bool:
    """Whether a memory was reset in it."""
    return any(line(message).kind is Kind.FORGOTTEN for message in result.messages)


def gist(result: Result) -> dict[str, Any]:
    """How it ended, but for what prompts of another length use, and ids that have moved."""
    ended = result.outcome
    assert ended is not None
    found = ended.model_dump(exclude={"usage", "message", "seconds"})
    return found | {"calls": ended.total.calls, "written": ended.total.output_tokens}


def _changes_its_own_view_only(
    conversation: Conversation, before: Result, speaker: str, store: str
) -> None:
    held = get_session(before.session, store=store)
    others = [name for name in conversation.names if name != speaker]
    assert views(held, *others) == views(before, *others)
    assert observed(conversation, held.messages) == observed(conversation, before.messages)
    assert held.outcome == before.outcome
    assert held.speeches == before.speeches
    mine = [
        message
        for message in held.messages
        if line(message).kind not in (Kind.FORGOTTEN, Kind.REMEMBERED)
    ]
    assert [(one.text, line(one)) for one in mine] == [
        (one.text, line(one)) for one in before.messages
    ]


def seen(result: Result, name: str) -> list[tuple[str, str]]:
    """A speaker's view without its system prompt."""
    return [(message.type, message.text) for message in result.viewpoint(name)[1:]]


def test_a_reset_speaker_keeps_what_it_has_not_answered(store: str) -> None:
    stopped(plain(end_chat={"max_iterations": 3}), ["A1", "B1", "A2", "B2"], store, "one")
    for name in ("Ann", "Ben"):
        reset_session("one", speaker=name, store=store)
    held = get_session("one", store=store)
    assert seen(held, "Ann") == [("human", "B2")]
    assert seen(held, "Ben") == []
    ended = go_on("one", store, ["A3", "B3"])
    assert seen(ended, "Ann") == [("human", "B2"), ("ai", "A3"), ("human", "B3")]
    assert seen(ended, "Ben") == [("human", "A3"), ("ai", "B3")]


def test_a_reflection_that_was_kept_is_forgotten_with_its_turn(here: str) -> None:
    ben = {"name": "Ben", "stops_chat": True, "keep_reflection": True}
    conversation = plain(
        speakers=[{"name": "Ann"}, ben], end_chat={"mode": "all_task_must_complete"}
    )
    stopped(conversation, ["A1", "B1", NO, "A2"], here, "one")
    assert "water" in str(get_session("one", store=here).viewpoint("Ben"))
    reset_session("one", speaker="Ben", store=here)
    assert seen(get_session("one", store=here), "Ben") == [("human", "A2")]


def test_what_the_spec_tells_in_the_log_alone_is_told_again(here: str) -> None:
    conversation = Conversation.model_validate(
        {
            "speakers": [
                {"name": "Ann", "task": "Dig", "private_opening": {"lines": ["You hate beans."]}},
                {"name": "Ben", "task": "Plant"},
            ],
            "opening": {"answers": True},
            "end_chat": {"max_iterations": 2},
        }
    )
    stopped(conversation, ["I dig.", "I plant.", "B1", "A1", "B2"], here, "one")
    again = filled(speaking.TASK_AGAIN, task="Dig")
    for _ in range(2):
        reset_session("one", speaker="Ann", store=here)
        held = get_session("one", store=here)
        assert seen(held, "Ann") == [("human", f"You hate beans.\n\n{again}\n\nB2")]
    # Before its first turn it still remembers them.
    stopped(conversation, [], here, "two")
    reset_session("two", speaker="Ann", store=here)
    assert seen(get_session("two", store=here), "Ann") == [("human", "You hate beans.\n\nDig")]


CALL = Reply(tool_calls=[ScriptedToolCall(name="weather", args={"day": "Monday"}, id="a")])
PAIR: dict[str, Any] = {"speakers": [{"name": "Ann", "tools": ["weather"]}, {"name": "Ben"}]}


def test_a_loaded_memory_stands_before_what_is_not_answered_yet(store: str) -> None:
    """Own lines as its own, others' as heard, calls of tools with their results."""
    run(plain(**PAIR), ["A1", "B1", CALL, "Sun.", "B2"], session="past", store=store)
    stopped(plain(**PAIR), [CALL, "X1", "Y1"], store, "now")
    memory = dump_session("past", speaker="Ann", store=store)
    assert load_session(through_json(memory), into="now", store=store) == "now"
    held = get_session("now", store=store)
    remembered = [
        ("human", speaking.BEGIN),
        ("ai", "A1"),
        ("human", "B1"),
        ("ai", ""),
        ("tool", "Monday: sun"),
        ("ai", "Sun."),
    ]
    assert seen(held, "Ann") == [*remembered, ("human", "B2\n\nY1")]
    # Loaded once more, it is there once.
    load_session(memory, into="now", store=store)
    assert seen(get_session("now", store=store), "Ann") == seen(held, "Ann")
    again = dump_session("now", speaker="Ann", store=store)
    said_now = [one["text"] for one in again["lines"]]
    assert said_now == [*(one["text"] for one in memory["lines"]), "Y1"]
    model = ScriptedChatModel(script=["X2", "Y2"])
    ended = converse(plain(**PAIR), session="now", store=store, model=model, **FUNCTIONS)
    assert [(one.type, one.text) for one in model.calls[0].messages[1:]] == seen(held, "Ann")
    assert [text for _, text in ended.speeches] == ["X1", "Y1", "X2", "Y2"]
    assert len([one for one in ended.viewpoint("Ann") if isinstance(one, ToolMessage)]) == 1
    # A result is found by the id of its call, in the whole log.
    calls = [one.tool_call_id for one in ended.messages if isinstance(one, ToolMessage)]
    assert len(calls) == len({*calls}) == 3


def test_a_memory_may_become_another_speakers(here: str) -> None:
    """Its own lines become that one's; a stranger of that one's name is heard."""
    run(plain(), ["A1", "B1", "A2", "B2"], session="past", store=here)
    stopped(plain(), ["X1"], here, "now")
    load_session(
        dump_session("past", speaker="Ann", store=here), into="now", speaker="Ben", store=here
    )
    assert seen(get_session("now", store=here), "Ben") == [
        ("human", speaking.BEGIN),
        ("ai", "A1"),
        ("human", "B1"),
        ("ai", "A2"),
        ("human", "B2\n\nX1"),
    ]


def test_a_memory_is_copied_into_another_session_and_database(here: str, there: str) -> None:
    run(plain(), ["A1", "B1", "A2", "B2"], session="past", store=here)
    stopped(plain(), ["X1"], there, "now")
    assert copy_session("past", into="now", speaker="Ben", store=here, to=there) == "now"
    held = get_session("now", store=there)
    assert seen(held, "Ben")[:2] == [("human", "A1"), ("ai", "B1")]
    assert seen(held, "Ben")[-1] == ("human", "X1")
    assert seen(held, "Ann") == [("human", speaking.BEGIN), ("ai", "X1")]


def test_a_session_with_a_memory_of_strangers_is_dumped_and_loaded(here: str, there: str) -> None:
    strangers: dict[str, Any] = {"speakers": [{"name": "Ann"}, {"name": "Cid"}]}
    run(plain(**strangers), ["A1", "C1", "A2", "C2"], session="past", store=here)
    stopped(plain(), ["X1"], here, "now")
    load_session(dump_session("past", speaker="Ann", store=here), into="now", store=here)
    load_session(through_json(dump_session("now", store=here)), store=there)
    held = get_session("now", store=there)
    assert ("human", "C1") in seen(held, "Ann")
    assert seen(held, "Ann") == seen(get_session("now", store=here), "Ann")


def test_a_finished_session_stays_so_and_its_fork_goes_on_with_the_new_memory(store: str) -> None:
    whole = run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=store)
    reset_session("one", speaker="Ann", store=store)
    assert go_on("one", store, []).outcome == whole.outcome
    new = fork("one", store=store, end_chat={"max_iterations": 3})
    assert get_session(new, store=store).outcome is None
    assert seen(get_session(new, store=store), "Ann") == [("human", "B2")]
    load_session(through_json(dump_session(new, store=store)), into="again", store=store)
    for session in (new, "again"):
        ended = go_on(session, store, ["A3", "B3"])
        assert ended.outcome is not None
        assert ended.outcome.messages == 6


def test_a_memory_that_was_reset_is_dumped_whole_and_copied_so(here: str, there: str) -> None:
    stopped(plain(), ["A1", "B1"], here, "one")
    reset_session("one", speaker="Ann", store=here)
    copy_session("one", store=here, to=there)
    assert dump_session("one", store=there) == dump_session("one", store=here)
    assert seen(get_session("one", store=there), "Ann") == [("human", "B1")]


@pytest.mark.parametrize("number", range(2, 7))
def test_a_killed_sessions_memory_is_reset_without_a_loss(
    store: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    lines: list[Line] = ["A1", "B1", "A2", "B2"]
    with killed_before_checkpoint(monkeypatch, number):
        run(plain(), lines, session="one", store=store)
    left = get_session("one", store=store)
    reset_session("one", speaker="Ben", store=store)
    assert get_session("one", store=store).messages[: len(left.messages)] == left.messages
    ended = go_on("one", store, lines[calls_in(left) :])
    assert [text for _, text in ended.speeches] == lines


# What bad input gets


def test_what_can_not_be_done_is_named(here: str, there: str) -> None:
    run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=here)
    run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=there)
    whole = dump_session("one", store=here)
    memory = dump_session("one", speaker="Ann", store=here)
    stranger = "nobody in session 'one' is called 'Eve'; there are 'Ann', 'Ben'"
    missing = "into: is missing: name the session whose speaker is to remember it"
    cases: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: dump_session("nobody", store=here), SessionError, "There is no session 'nobody'"),
        (lambda: dump_session("../x", store=here), SessionError, "'../x' can't be a session's id"),
        (lambda: dump_session("one", speaker="Eve", store=here), SpecError, stranger),
        (lambda: reset_session("nobody", store=here), SessionError, "There is no session 'nobody'"),
        (lambda: reset_session("one", speaker="Eve", store=here), SpecError, stranger),
        (lambda: load_session(whole, store=there), SessionError, "Session 'one' exists already in"),
        (
            lambda: load_session(whole, into="a b", store=there),
            SessionError,
            "'a b' can't be a session's id",
        ),
        (
            lambda: load_session(whole, into="two", speaker="Ann", store=there),
            SpecError,
            "speaker: a whole session is loaded for all its speakers: leave it out",
        ),
        (lambda: load_session(memory, store=there), SpecError, missing),
        (lambda: load_session(memory, into="one", speaker="Eve", store=there), SpecError, stranger),
        (lambda: copy_session("one", speaker="Ann", store=here), SpecError, missing),
        (
            lambda: copy_session("one", into="one", store=here),
            SessionError,
            "Session 'one' exists already in",
        ),
        (
            lambda: copy_session("one", into="x", speaker="Ann", store=here),
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
    memory = await adump_session("one", speaker="Ann", store=store)
    async with open_store(store) as opened, opened.lock("one"):
        busy = "'one' is busy: another run holds it"
        for act in (
            areset_session("one", store=store),
            areset_session("one", speaker="Ann", store=store),
            aload_session(memory, into="one", store=store),
            acopy_session("one", into="one", speaker="Ann", store=store),
        ):
            with pytest.raises(SessionError, match=busy):
                await act
        await acopy_session("one", into="two", store=store)
        assert await aexport_session("one", format="jsonl", store=store)
    one, two = [await aget_session(session, store=store) for session in ("one", "two")]
    assert without_ids(one.messages) == without_ids(two.messages)


async def test_a_session_that_has_not_begun_has_no_memory_to_replace(here: str) -> None:
    await asyncio.to_thread(run, plain(), ["A", "B", "C", "D"], session="one", store=here)
    memory = await adump_session("one", speaker="Ann", store=here)
    await areset_session("one", store=here)
    with pytest.raises(SessionError, match="'one' has not begun: nobody in it has a memory"):
        await aload_session(memory, into="one", store=here)
    await areset_session("one", speaker="Ann", store=here)
    assert len((await asyncio.to_thread(go_on, "one", here, ["A", "B", "C", "D"])).speeches) == 4


def test_a_mistyped_store_is_named_and_not_made(here: str, tmp_path: Path) -> None:
    run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=here)
    memory = dump_session("one", speaker="Ann", store=here)
    typo = tmp_path / "typo.db"
    for act in (
        lambda: dump_session("one", store=typo),
        lambda: reset_session("one", store=typo),
        lambda: copy_session("one", store=typo),
        lambda: load_session(memory, into="one", store=typo),
    ):
        with pytest.raises(StoreError, match=r"typo\.db can't be used: there is no such file"):
            act()
    assert not typo.exists()


SPEC = {"version": 6, "task": "Plan", "speakers": [{"name": "Ann"}, {"name": "Ben"}]}
SESSION = {"format": "duologue.session", "version": 5, "session": "one", "spec": SPEC}
MEMORY = {"format": "duologue.memory", "version": 5, "session": "one", "speaker": "Ann"}
MESSAGE = {"id": "m0000", "text": "Hi", "line": {"kind": "speech", "speaker": "Ann"}}
BAD: list[tuple[object, str]] = [
    ([], "format: is missing: this is no dump of a session or a memory"),
    ({}, "format: is missing: this is no dump of a session or a memory"),
    (
        SESSION | {"format": "autogen.state"},
        "format: 'autogen.state' is no dump of ours; there are 'duologue.session', "
        "'duologue.memory'",
    ),
    (SESSION | {"format": 3}, "format: 3 is no dump of ours"),
    (
        SESSION | {"version": 6, "mood": "good"},
        "version: 6 is newer than this release understands (5); upgrade duologue",
    ),
    (MEMORY | {"version": 7}, "version: 7 is newer than this release understands (5)"),
    (
        SESSION | {"version": 4},
        "version: 4 was written by an older development version and can't be read",
    ),
    (MEMORY | {"version": 1}, "version: 1 was written by an older development version"),
    (
        SESSION | {"spec": SPEC | {"version": 5}},
        "spec: version: 5 was written by an older development version",
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
        ("bytes.json", b"\xff\xfe", "is not text in UTF-8"),
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
    view = get_session("one", store=here).viewpoint("Ben")
    assert [one.text for one in view[1:]] == ["We met in Rome.", "Ciao.", "…\n\nA1"]
    assert isinstance(view[-1], HumanMessage)


def test_a_memory_that_is_loaded_back_changes_nothing(store: str) -> None:
    """L2: what is not answered yet is in the dump, and is kept anyway."""
    conversation = plain(end_chat={"max_iterations": 2})
    run(conversation, ["a1", "b1", "a2", "b2"], session="s", store=store)
    before = get_session("s", store=store)
    for name in conversation.names:
        dump = dump_session("s", speaker=name, store=store)
        load_session(dump, into="s", store=store)
        after = get_session("s", store=store)
        assert seen(after, name) == seen(before, name)
        assert dump_session("s", speaker=name, store=store)["lines"] == dump["lines"]
