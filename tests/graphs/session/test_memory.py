"""L2: memory as state. Dumps, loads, resets and copies of sessions, and of one speaker's memory."""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, ToolMessage

from duologue import (
    Conversation,
    Result,
    Session,
    aload_session,
    converse,
    list_sessions,
    load_session,
)
from duologue.graphs.prompts import prompts
from duologue.graphs.rules.log_counter import facts_of
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from support.cases import thorough
from support.fork_help import (
    FUNCTIONS,
    NO,
    calls_in,
    calls_in_log,
    go_on,
    ids,
    killed_before_checkpoint,
    plain,
    run,
    seen,
    stopped,
    through_json,
    timeless,
    told,
)
from support.fork_talks import TALKS
from support.log import fields_of, kind_of, place_name, place_of, without_ids
from support.stores import EACH_STORE, open_store, store_address

LIVE = pytest.mark.live
WAYS = [
    *((name, ("memory", "sqlite")) for name in TALKS),
    ("hooked", ("sqlite", "memory")),
    pytest.param("hooked", ("sqlite", "postgresql"), marks=LIVE),
    pytest.param("hooked", ("postgresql", "sqlite"), marks=LIVE),
]
"""Messages do not matter to a store: every talk takes one route, and one talk takes all routes."""


@pytest.fixture(params=EACH_STORE)
def store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


@pytest.fixture
def here(tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}-here"


@pytest.fixture
def there(tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}-there"


def views(result: Result, *names: str) -> dict[str, list[BaseMessage]]:
    """Return the views of these speakers without ids, which change in the middle of a turn."""
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
        store_address(kind, request, number) for kind, number in zip(way, ("1", "2"), strict=True)
    )
    conversation, lines = TALKS[name]
    whole = run(conversation, lines, session="one", store=here)
    dump = Session("one", store=here).dump()
    assert load_session(through_json(dump), store=there).id == "one"
    assert Session("one", store=there).state() == whole
    assert Session("one", store=there).dump() == dump
    rows = [list_sessions(store=store)[0] for store in (here, there)]
    assert len({(row.title, row.spec, row.status, row.reason) for row in rows}) == 1
    assert go_on("one", there, []) == whole
    for at in ids(whole)[::8]:
        kept = [
            Session(Session("one", store=store).fork(at=at).id, store=store).state().messages
            for store in (here, there)
        ]
        assert kept[0] == kept[1]
        assert at in [place_of(message) for message in kept[0]]
    new = Session("one", store=there).fork(at=ids(whole)[3]).id
    ended = go_on(new, there, lines[calls_in(Session(new, store=there).state()) :])
    assert without_ids(ended.messages) == without_ids(whole.messages)
    assert timeless(ended.outcome) == timeless(whole.outcome)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TALKS)
def test_a_session_dumped_after_any_message_goes_on_as_the_original_and_forks_from_each(
    name: str, here: str, there: str
) -> None:
    """A loaded dump continues like the original and can be forked, without repeated calls."""
    conversation, lines = TALKS[name]
    whole = run(conversation, lines, session="whole", store=here)
    for made in range(len(lines)):
        session = f"after-{made}"
        stopped(conversation, lines[:made], here, session)
        dump = Session(session, store=here).dump()
        load_session(through_json(dump), store=there)
        assert Session(session, store=there).dump() == dump
        assert Session(session, store=there).state() == Session(session, store=here).state()
        # Only the messages of the newest call; the longest session, with its past, is forked
        # everywhere.
        newest = 0 if made == len(lines) - 1 else -4
        for at in ids(Session(session, store=there).state())[newest:]:
            new = Session(session, store=there).fork(at=at).id
            held = Session(new, store=there).state()
            assert at in ids(held)
            before = whole.messages[: ids(whole).index(at)]
            assert calls_in(held) <= 1 + calls_in_log(before)
            assert without_ids(held.messages) == without_ids(whole.messages[: len(held.messages)])
        # A fork continues from its messages; every third fork is run to show that.
        if made % 3:
            continue
        ended = go_on(session, there, lines[made:])
        assert without_ids(ended.messages) == without_ids(whole.messages)
        assert timeless(ended.outcome) == timeless(whole.outcome)
        assert ended.specified_task == whole.specified_task


@pytest.mark.part(3)
@pytest.mark.parametrize("number", range(1, 8))
def test_what_was_written_before_a_kill_is_dumped(
    store: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    lines: list[Line] = ["A1", "B1", "A2", "B2"]
    with killed_before_checkpoint(monkeypatch, number):
        run(plain(), lines, session="one", store=store)
    left = Session("one", store=store).state()
    load_session(through_json(Session("one", store=store).dump()), into="two", store=store)
    assert Session("two", store=store).state().messages == left.messages
    for session in ("one", "two"):
        ended = go_on(session, store, lines[calls_in(left) :])
        assert [text for _, text in ended.transcript] == lines


def test_a_forked_session_is_dumped_with_the_rules_of_its_past(here: str, there: str) -> None:
    conversation, lines = TALKS["structured"]
    run(conversation, lines, session="one", store=here)
    changes: dict[str, Any] = {"speakers": {"Ann": {"task": "Rest"}}, "task": "Plan a park"}
    Session("one", store=here).fork(at="m0014", into="two", **changes)
    dump = Session("two", store=here).dump()
    load_session(through_json(dump), store=there)
    assert Session("two", store=there).dump() == dump
    earlier = [
        Session(Session("two", store=store).fork(at="m0009", into="three").id, store=store).state()
        for store in (here, there)
    ]
    both = [replace(one, messages=without_ids(one.messages)) for one in earlier]
    assert both[0] == both[1]
    # The change of the fork is announced, because earlier messages followed other rules.
    assert told(earlier[1], "Ann") == ["Dig", prompts.fill_template(prompts.NEW_TASK, task="Rest")]


async def test_a_session_that_was_never_begun_is_loaded_and_begins(here: str, there: str) -> None:
    async with open_store(here) as opened, opened.lock("one") as held:
        await held.add(title="", spec=json.dumps(plain().stored()))
    dump = await Session("one", store=here).adump()
    assert "steps" not in dump
    await aload_session(dump, store=there)
    ended = await asyncio.to_thread(go_on, "one", there, ["A1", "B1", "A2", "B2"])
    assert len(ended.transcript) == 4


def test_a_dump_holds_nothing_but_plain_values(here: str) -> None:
    conversation, lines = TALKS["structured"]
    run(conversation, lines, session="one", store=here)
    dump = Session("one", store=here).dump()
    assert through_json(dump) == dump
    assert "lc" not in json.dumps(dump).split('"')
    assert "additional_kwargs" not in json.dumps(dump)


@pytest.mark.exhaustive
def test_a_dump_of_a_long_session_grows_in_proportion(here: str) -> None:
    sizes = []
    for rounds in (20, 40):
        conversation = plain(end_chat={"max_iterations": rounds})
        lines = [f"Line {number}" for number in range(2 * rounds)]
        run(conversation, lines, session=f"s{rounds}", store=here)
        sizes.append(len(json.dumps(Session(f"s{rounds}", store=here).dump())))
    assert sizes[1] < 2.2 * sizes[0]


def test_a_whole_session_begins_anew_when_it_is_reset(store: str) -> None:
    run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=store)
    before = list_sessions(store=store)[0]
    Session("one", store=store).reset()
    (row,) = list_sessions(store=store)
    assert (row.status, row.reason) == ("unfinished", None)
    assert (row.spec, row.created_at) == (before.spec, before.created_at)
    held = Session("one", store=store).state()
    assert (held.messages, held.outcome, held.conversation) == ([], None, plain())
    ended = go_on("one", store, ["C1", "D1", "C2", "D2"])
    assert [text for _, text in ended.transcript] == ["C1", "D1", "C2", "D2"]
    assert list_sessions(store=store)[0].status == "finished"


def test_a_copy_is_the_same_and_goes_its_own_way(store: str, there: str) -> None:
    stopped(plain(), ["A1", "B1"], store, "one")
    here = Session("one", store=store).state()
    copies = [
        (Session("one", store=store).copy().id, store),
        (Session("one", store=store).copy(into="mine").id, store),
        (Session("one", store=store).copy(to=there).id, there),
        (Session("one", store=store).copy(into="other", to=there).id, there),
    ]
    assert re.fullmatch(r"one-copy-[0-9a-f]{12}", copies[0][0])
    assert [session for session, _ in copies[1:]] == ["mine", "one", "other"]
    for session, where in copies:
        assert Session(session, store=where).state().messages == here.messages
        assert len(go_on(session, where, ["A2", "B2"]).transcript) == 4
    assert Session("one", store=store).state() == here


def test_a_copy_goes_into_a_file_that_is_not_there_yet(here: str, tmp_path: Path) -> None:
    run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=here)
    Session("one", store=here).copy(to=tmp_path / "new.db")
    load_session(Session("one", store=here).dump(), store=tmp_path / "newer.db")
    for name in ("new.db", "newer.db"):
        assert Session("one", store=tmp_path / name).state() == Session("one", store=here).state()


# One speaker's memory


# In the hooked talk, messages depend on the heard messages.
@pytest.mark.part(1)
@pytest.mark.parametrize("name", ["structured", "moderated"])
@thorough
def test_a_reset_memory_changes_nothing_but_what_that_speaker_sees(
    thorough: bool, name: str, here: str
) -> None:
    """A memory reset changes only the speaker's view: no message, count or end."""
    conversation, lines = TALKS[name]
    whole = run(conversation, lines, session="whole", store=here)
    for made in range(0, len(lines) + 1, 1 if thorough else 3):
        # Alternate between the speakers from call to call.
        for speaker in conversation.names[made % 2 :: 2]:
            session = f"{speaker}-{made}"
            if made < len(lines):
                stopped(conversation, lines[:made], here, session)
            else:
                Session("whole", store=here).copy(into=session)
            before = Session(session, store=here).state()
            Session(session, store=here).reset(speaker=speaker)
            _changes_its_own_view_only(conversation, before, speaker, here)
            # Load the memory of the end in the middle.
            memory = whole.memory(speaker)
            after = Session(session, store=here).state()
            if any(kind_of(message) == "memory_reset" for message in after.messages):
                Session(session, store=here).set_memory(speaker, memory)
                _changes_its_own_view_only(conversation, before, speaker, here)
            ended = go_on(session, here, lines[made:])
            assert ended.transcript == whole.transcript
            assert ids(ended) == [place_name(number) for number in range(len(ended.messages))]
            assert gist(ended) == gist(whole)


def gist(result: Result) -> dict[str, Any]:
    """Return the outcome without token usage, which depends on prompt lengths, and without ids."""
    ended = result.outcome
    assert ended is not None
    found = ended.model_dump(exclude={"usage", "message", "seconds"})
    return found | {"calls": ended.total.calls, "written": ended.total.output_tokens}


def _changes_its_own_view_only(
    conversation: Conversation, before: Result, speaker: str, store: str
) -> None:
    held = before.session.state()
    others = [name for name in conversation.names if name != speaker]
    assert views(held, *others) == views(before, *others)
    assert facts_of(conversation, held.messages) == facts_of(conversation, before.messages)
    assert held.outcome == before.outcome
    assert held.transcript == before.transcript
    assert _others_than_memories(held) == _others_than_memories(before)


def _others_than_memories(result: Result) -> list[tuple[str, Any]]:
    found = ((message, fields_of(message)) for message in result.messages)
    private = ("memory_reset", "remembered")
    return [(message.text, about) for message, about in found if about.kind not in private]


def test_a_reset_speaker_keeps_what_it_has_not_answered(store: str) -> None:
    stopped(plain(end_chat={"max_iterations": 3}), ["A1", "B1", "A2", "B2"], store, "one")
    for name in ("Ann", "Ben"):
        Session("one", store=store).reset(speaker=name)
    held = Session("one", store=store).state()
    assert seen(held, "Ann") == [("human", "B2")]
    assert seen(held, "Ben") == []
    ended = go_on("one", store, ["A3", "B3"])
    assert seen(ended, "Ann") == [("human", "B2"), ("ai", "A3"), ("human", "B3")]
    assert seen(ended, "Ben") == [("human", "A3"), ("ai", "B3")]


def test_a_reflection_that_was_kept_is_forgotten_with_its_turn(here: str) -> None:
    ben = {"name": "Ben", "checks_completion": True, "keep_self_reflection": True}
    conversation = plain(
        speakers=[{"name": "Ann"}, ben], end_chat={"mode": "all_task_must_complete"}
    )
    stopped(conversation, ["A1", "B1", NO, "A2"], here, "one")
    assert "water" in str(Session("one", store=here).state().viewpoint("Ben"))
    Session("one", store=here).reset(speaker="Ben")
    assert seen(Session("one", store=here).state(), "Ben") == [("human", "A2")]


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
    again = prompts.fill_template(prompts.RESTATE_TASK, task="Dig")
    for _ in range(2):
        Session("one", store=here).reset(speaker="Ann")
        held = Session("one", store=here).state()
        assert seen(held, "Ann") == [("human", f"You hate beans.\n\n{again}\n\nB2")]
    # Before its first turn the speaker still remembers them.
    stopped(conversation, [], here, "two")
    Session("two", store=here).reset(speaker="Ann")
    assert seen(Session("two", store=here).state(), "Ann") == [("human", "You hate beans.\n\nDig")]


CALL = Reply(tool_calls=[ScriptedToolCall(name="weather", args={"day": "Monday"}, id="a")])
PAIR: dict[str, Any] = {"speakers": [{"name": "Ann", "tools": ["weather"]}, {"name": "Ben"}]}


def test_a_loaded_memory_stands_before_what_is_not_answered_yet(store: str) -> None:
    """A loaded memory comes before unanswered messages, with roles and results."""
    run(plain(**PAIR), ["A1", "B1", CALL, "Sun.", "B2"], session="past", store=store)
    stopped(plain(**PAIR), [CALL, "X1", "Y1"], store, "now")
    memory = Session("past", store=store).state().memory("Ann")
    Session("now", store=store).set_memory("Ann", memory)
    held = Session("now", store=store).state()
    remembered = [
        ("human", prompts.BEGIN),
        ("ai", "A1"),
        ("human", "B1"),
        ("ai", ""),
        ("tool", "Monday: sun"),
        ("ai", "Sun."),
    ]
    assert seen(held, "Ann") == [*remembered, ("human", "B2\n\nY1")]
    # Loading the memory again does not duplicate it.
    Session("now", store=store).set_memory("Ann", memory)
    assert seen(Session("now", store=store).state(), "Ann") == seen(held, "Ann")
    again = Session("now", store=store).state().memory("Ann")
    assert [one.text for one in again] == [*(one.text for one in memory), "Y1"]
    model = ScriptedChatModel(script=["X2", "Y2"])
    ended = converse(plain(**PAIR), session="now", store=store, model=model, **FUNCTIONS)
    assert [(one.type, one.text) for one in model.calls[0].messages[1:]] == seen(held, "Ann")
    assert [text for _, text in ended.transcript] == ["X1", "Y1", "X2", "Y2"]
    assert len([one for one in ended.viewpoint("Ann") if isinstance(one, ToolMessage)]) == 1
    # A result is found by the id of its call, in the whole log.
    calls = [one.tool_call_id for one in ended.messages if isinstance(one, ToolMessage)]
    assert len(calls) == len({*calls}) == 3


def test_a_memory_may_become_another_speakers(here: str) -> None:
    """A memory can be loaded into another speaker, whose own messages its owner's become."""
    run(plain(), ["A1", "B1", "A2", "B2"], session="past", store=here)
    stopped(plain(), ["X1"], here, "now")
    memory = Session("past", store=here).state().memory("Ann")
    Session("now", store=here).set_memory("Ben", memory)
    assert seen(Session("now", store=here).state(), "Ben") == [
        ("human", prompts.BEGIN),
        ("ai", "A1"),
        ("human", "B1"),
        ("ai", "A2"),
        ("human", "B2\n\nX1"),
    ]


def test_a_session_with_a_memory_of_strangers_is_dumped_and_loaded(here: str, there: str) -> None:
    strangers: dict[str, Any] = {"speakers": [{"name": "Ann"}, {"name": "Cid"}]}
    run(plain(**strangers), ["A1", "C1", "A2", "C2"], session="past", store=here)
    stopped(plain(), ["X1"], here, "now")
    Session("now", store=here).set_memory("Ann", Session("past", store=here).state().memory("Ann"))
    load_session(through_json(Session("now", store=here).dump()), store=there)
    held = Session("now", store=there).state()
    assert ("human", "C1") in seen(held, "Ann")
    assert seen(held, "Ann") == seen(Session("now", store=here).state(), "Ann")


def test_a_finished_session_stays_so_and_its_fork_goes_on_with_the_new_memory(store: str) -> None:
    whole = run(plain(), ["A1", "B1", "A2", "B2"], session="one", store=store)
    Session("one", store=store).reset(speaker="Ann")
    assert go_on("one", store, []).outcome == whole.outcome
    new = Session("one", store=store).fork(end_chat={"max_iterations": 3}).id
    assert Session(new, store=store).state().outcome is None
    assert seen(Session(new, store=store).state(), "Ann") == [("human", "B2")]
    load_session(through_json(Session(new, store=store).dump()), into="again", store=store)
    for session in (new, "again"):
        ended = go_on(session, store, ["A3", "B3"])
        assert ended.outcome is not None
        assert ended.outcome.messages == 6


def test_a_memory_that_was_reset_is_dumped_whole_and_copied_so(here: str, there: str) -> None:
    stopped(plain(), ["A1", "B1"], here, "one")
    Session("one", store=here).reset(speaker="Ann")
    Session("one", store=here).copy(to=there)
    assert Session("one", store=there).dump() == Session("one", store=here).dump()
    assert seen(Session("one", store=there).state(), "Ann") == [("human", "B1")]


@pytest.mark.parametrize("number", range(2, 7))
def test_a_killed_sessions_memory_is_reset_without_a_loss(
    store: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    lines: list[Line] = ["A1", "B1", "A2", "B2"]
    with killed_before_checkpoint(monkeypatch, number):
        run(plain(), lines, session="one", store=store)
    left = Session("one", store=store).state()
    Session("one", store=store).reset(speaker="Ben")
    assert Session("one", store=store).state().messages[: len(left.messages)] == left.messages
    ended = go_on("one", store, lines[calls_in(left) :])
    assert [text for _, text in ended.transcript] == lines
