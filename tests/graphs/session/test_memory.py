"""L2: memory as state. Dumps, loads, resets and copies of sessions, and of one speaker's memory."""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage

from duologue import (
    Conversation,
    Result,
    Session,
    aload_session,
    converse,
    list_sessions,
    load_session,
)
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from support.cases import thorough
from support.fork_help import (
    FUNCTIONS,
    NO,
    assert_same,
    calls_in,
    calls_in_log,
    finish,
    go_on,
    ids,
    killed_before_checkpoint,
    plain,
    run,
    seen,
    stopped,
    texts,
    through_json,
    told,
)
from support.fork_talks import TALKS, run_talk
from support.log import fields_of, kind_of, place_name, without_ids
from support.results import outcome_of
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


LINES: list[Line] = ["A1", "B1", "A2", "B2"]


# Whole sessions


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "way"), WAYS)
def test_a_session_is_the_same_in_another_database_and_forks_from_any_message_there(
    name: str, way: tuple[str, str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    here, there = (
        store_address(kind, request, number) for kind, number in zip(way, ("1", "2"), strict=True)
    )
    whole, lines = run_talk(name, here)
    dump = whole.session.dump()
    loaded = load_session(through_json(dump), store=there)
    assert (loaded.id, loaded.state(), loaded.dump()) == ("one", whole, dump)
    rows = [list_sessions(store=store)[0] for store in (here, there)]
    assert len({(row.title, row.spec, row.status, row.reason) for row in rows}) == 1
    assert go_on(loaded, []) == whole
    for at in ids(whole)[::8]:
        kept = [one.fork(at=at).state() for one in (whole.session, loaded)]
        assert kept[0].messages == kept[1].messages
        assert at in ids(kept[0])
    assert_same(finish(loaded.fork(at=ids(whole)[3]), lines), whole)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TALKS)
def test_a_session_dumped_after_any_message_goes_on_as_the_original_and_forks_from_each(
    name: str, here: str, there: str
) -> None:
    """A loaded dump continues like the original and can be forked, without repeated calls."""
    conversation = TALKS[name][0]
    whole, lines = run_talk(name, here)
    for made in range(len(lines)):
        left = stopped(conversation, lines[:made], here, f"after-{made}")
        loaded = load_session(through_json(left.dump()), store=there)
        assert loaded.dump() == left.dump()
        assert loaded.state() == left.state()
        # Only the messages of the newest call; the longest session, with its past, is forked
        # everywhere.
        newest = 0 if made == len(lines) - 1 else -4
        for at in ids(loaded.state())[newest:]:
            held = loaded.fork(at=at).state()
            assert at in ids(held)
            before = whole.messages[: ids(whole).index(at)]
            assert calls_in(held) <= 1 + calls_in_log(before)
            assert without_ids(held.messages) == without_ids(whole.messages[: len(held.messages)])
        # A fork continues from its messages; every third fork is run to show that.
        if made % 3 == 0:
            ended = go_on(loaded, lines[made:])
            assert_same(ended, whole)
            assert ended.specified_task == whole.specified_task


@pytest.mark.part(3)
@pytest.mark.parametrize("number", range(1, 8))
def test_what_was_written_before_a_kill_is_dumped(
    store: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with killed_before_checkpoint(monkeypatch, number):
        run(plain(), LINES, session="one", store=store)
    left = Session("one", store=store).state()
    loaded = load_session(through_json(left.session.dump()), into="two", store=store)
    assert loaded.state().messages == left.messages
    for session in (left.session, loaded):
        assert texts(finish(session, LINES)) == LINES


def test_a_forked_session_is_dumped_with_the_rules_of_its_past(here: str, there: str) -> None:
    whole, _ = run_talk("structured", here)
    changes: dict[str, Any] = {"speakers": {"Ann": {"task": "Rest"}}, "task": "Plan a park"}
    forked = whole.session.fork(at="m0014", into="two", **changes)
    loaded = load_session(through_json(forked.dump()), store=there)
    assert loaded.dump() == forked.dump()
    earlier = [one.fork(at="m0009", into="three").state() for one in (forked, loaded)]
    both = [replace(one, messages=without_ids(one.messages)) for one in earlier]
    assert both[0] == both[1]
    # The change of the fork is announced, because earlier messages followed other rules.
    assert told(earlier[1], "Ann") == ["Dig", "From now on, your task is: Rest"]


async def test_a_session_that_was_never_begun_is_loaded_and_begins(here: str, there: str) -> None:
    async with open_store(here) as opened, opened.lock("one") as held:
        await held.add(title="", spec=json.dumps(plain().stored()))
    dump = await Session("one", store=here).adump()
    assert "steps" not in dump
    loaded = await aload_session(dump, store=there)
    assert texts(await asyncio.to_thread(go_on, loaded, LINES)) == LINES


def test_a_dump_holds_nothing_but_plain_values(here: str) -> None:
    dump = run_talk("structured", here)[0].session.dump()
    assert through_json(dump) == dump
    assert "lc" not in json.dumps(dump).split('"')
    assert "additional_kwargs" not in json.dumps(dump)


@pytest.mark.exhaustive
def test_a_dump_of_a_long_session_grows_in_proportion(here: str) -> None:
    sizes = []
    for rounds in (20, 40):
        conversation = plain(end_chat={"max_iterations": rounds})
        lines = [f"Line {number}" for number in range(2 * rounds)]
        result = run(conversation, lines, session=f"s{rounds}", store=here)
        sizes.append(len(json.dumps(result.session.dump())))
    assert sizes[1] < 2.2 * sizes[0]


def test_a_whole_session_begins_anew_when_it_is_reset(store: str) -> None:
    one = run(plain(), LINES, session="one", store=store).session
    before = list_sessions(store=store)[0]
    one.reset()
    (row,) = list_sessions(store=store)
    assert (row.status, row.reason) == ("unfinished", None)
    assert (row.spec, row.created_at) == (before.spec, before.created_at)
    held = one.state()
    assert (held.messages, held.outcome, held.conversation) == ([], None, plain())
    assert texts(go_on(one, ["C1", "D1", "C2", "D2"])) == ["C1", "D1", "C2", "D2"]
    assert list_sessions(store=store)[0].status == "finished"


def test_a_copy_is_the_same_and_goes_its_own_way(store: str, there: str, tmp_path: Path) -> None:
    one = stopped(plain(), LINES[:2], store)
    here, new = one.state(), tmp_path / "not there yet.db"
    copies = [
        *(one.copy(), one.copy(into="mine"), one.copy(to=there), one.copy(into="other", to=there)),
        *(one.copy(to=new), load_session(one.dump(), store=tmp_path / "nor this.db")),
    ]
    assert re.fullmatch(r"one-copy-[0-9a-f]{12}", copies[0].id)
    assert [copy.id for copy in copies[1:]] == ["mine", "one", "other", "one", "one"]
    assert [copy.store for copy in copies[:5]] == [store, store, there, there, new]
    for copy in copies:
        assert copy.state() == replace(here, session_id=copy.id)
        assert texts(go_on(copy, LINES[2:])) == LINES
    assert one.state() == here


# One speaker's memory


# In the hooked talk, messages depend on the heard messages.
@pytest.mark.part(1)
@pytest.mark.parametrize("name", ["structured", "moderated"])
@thorough
def test_a_reset_memory_changes_nothing_but_what_that_speaker_sees(
    thorough: bool, name: str, here: str
) -> None:
    """A memory reset changes only the speaker's view: no message, count or end."""
    conversation = TALKS[name][0]
    whole, lines = run_talk(name, here)
    for made in range(0, len(lines) + 1, 1 if thorough else 3):
        # Alternate between the speakers from call to call.
        for speaker in conversation.names[made % 2 :: 2]:
            session = f"{speaker}-{made}"
            if made < len(lines):
                one = stopped(conversation, lines[:made], here, session)
            else:
                one = whole.session.copy(into=session)
            before = _seen_by_others(one, speaker)
            one.reset(speaker=speaker)
            assert _seen_by_others(one, speaker) == before
            # Load the memory of the end in the middle.
            if any(kind_of(message) == "memory_reset" for message in one.state().messages):
                one.set_memory(speaker, whole.memory(speaker))
                assert _seen_by_others(one, speaker) == before
            ended = go_on(one, lines[made:])
            assert ended.transcript == whole.transcript
            assert ids(ended) == [place_name(number) for number in range(len(ended.messages))]
            assert gist(ended) == gist(whole)


def gist(result: Result) -> dict[str, Any]:
    """Return the outcome without token usage, which depends on prompt lengths, and without ids."""
    ended = outcome_of(result)
    found = ended.model_dump(exclude={"usage", "message", "seconds"})
    return found | {"calls": ended.total.calls, "written": ended.total.output_tokens}


def _seen_by_others(session: Session, speaker: str) -> list[Any]:
    """Return everything that a reset of a speaker's memory must not change."""
    held = session.state()
    others = [name for name in held.conversation.names if name != speaker]
    # In the middle of a turn, the ids of a view change.
    views = [[(one.type, one.text, one.name) for one in held.viewpoint(name)] for name in others]
    found = ((message.text, fields_of(message)) for message in held.messages)
    kept = [one for one in found if one[1].kind not in ("memory_reset", "remembered")]
    # A fork counts its messages again.
    facts = (
        [step["position"]["facts"] for step in session.fork().dump()["steps"] if "position" in step]
        if held.messages
        else []
    )
    return [views, kept, facts[-1:], held.outcome, held.transcript]


def test_a_reset_speaker_keeps_what_it_has_not_answered(store: str) -> None:
    one = stopped(plain(end_chat={"max_iterations": 3}), LINES, store)
    for name in ("Ann", "Ben"):
        one.reset(speaker=name)
    held = one.state()
    assert seen(held, "Ann") == [("human", "B2")]
    assert seen(held, "Ben") == []
    ended = go_on(one, ["A3", "B3"])
    assert seen(ended, "Ann") == [("human", "B2"), ("ai", "A3"), ("human", "B3")]
    assert seen(ended, "Ben") == [("human", "A3"), ("ai", "B3")]


def test_a_reflection_that_was_kept_is_forgotten_with_its_turn(here: str) -> None:
    ben = {"name": "Ben", "checks_completion": True, "keep_self_reflection": True}
    end_chat = {"mode": "all_task_must_complete"}
    conversation = plain(speakers=[{"name": "Ann"}, ben], end_chat=end_chat)
    one = stopped(conversation, ["A1", "B1", NO, "A2"], here)
    assert "water" in str(one.state().viewpoint("Ben"))
    one.reset(speaker="Ben")
    assert seen(one.state(), "Ben") == [("human", "A2")]


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
    one = stopped(conversation, ["I dig.", "I plant.", "B1", "A1", "B2"], here)
    for _ in range(2):
        one.reset(speaker="Ann")
        told = "You hate beans.\n\nYour task is: Dig\n\nB2"
        assert seen(one.state(), "Ann") == [("human", told)]
    # Before its first turn the speaker still remembers them.
    two = stopped(conversation, [], here, "two")
    two.reset(speaker="Ann")
    assert seen(two.state(), "Ann") == [("human", "You hate beans.\n\nDig")]


CALL = Reply(tool_calls=[ScriptedToolCall(name="weather", args={"day": "Monday"}, id="a")])
PAIR: dict[str, Any] = {"speakers": [{"name": "Ann", "tools": ["weather"]}, {"name": "Ben"}]}


def test_a_loaded_memory_stands_before_what_is_not_answered_yet(store: str) -> None:
    """A loaded memory comes before unanswered messages, with roles and results."""
    past = run(plain(**PAIR), ["A1", "B1", CALL, "Sun.", "B2"], session="past", store=store)
    now = stopped(plain(**PAIR), [CALL, "X1", "Y1"], store, "now")
    memory = past.memory("Ann")
    now.set_memory("Ann", memory)
    held = seen(now.state(), "Ann")
    assert held == [
        *(("human", "Please begin."), ("ai", "A1"), ("human", "B1")),
        *(("ai", ""), ("tool", "Monday: sun"), ("ai", "Sun.")),
        ("human", "B2\n\nY1"),
    ]
    # Loading the memory again does not duplicate it.
    now.set_memory("Ann", memory)
    assert seen(now.state(), "Ann") == held
    again = now.state().memory("Ann")
    assert [one.text for one in again] == [*(one.text for one in memory), "Y1"]
    model = ScriptedChatModel(script=["X2", "Y2"])
    ended = converse(plain(**PAIR), session="now", store=store, model=model, **FUNCTIONS)
    assert [(one.type, one.text) for one in model.calls[0].messages[1:]] == held
    assert texts(ended) == ["X1", "Y1", "X2", "Y2"]
    assert len([one for one in ended.viewpoint("Ann") if isinstance(one, ToolMessage)]) == 1
    # A result is found by the id of its call, in the whole log.
    calls = [one.tool_call_id for one in ended.messages if isinstance(one, ToolMessage)]
    assert len(calls) == len({*calls}) == 3


def test_a_memory_may_become_another_speakers(here: str) -> None:
    """A memory can be loaded into another speaker, whose own messages its owner's become."""
    past = run(plain(), LINES, session="past", store=here)
    now = stopped(plain(), ["X1"], here, "now")
    now.set_memory("Ben", past.memory("Ann"))
    assert seen(now.state(), "Ben") == [
        *(("human", "Please begin."), ("ai", "A1"), ("human", "B1"), ("ai", "A2")),
        ("human", "B2\n\nX1"),
    ]


def test_a_session_with_a_memory_of_strangers_is_dumped_and_loaded(here: str, there: str) -> None:
    strangers: dict[str, Any] = {"speakers": [{"name": "Ann"}, {"name": "Cid"}]}
    past = run(plain(**strangers), ["A1", "C1", "A2", "C2"], session="past", store=here)
    now = stopped(plain(), ["X1"], here, "now")
    now.set_memory("Ann", past.memory("Ann"))
    loaded = load_session(through_json(now.dump()), store=there)
    assert ("human", "C1") in seen(loaded.state(), "Ann")
    assert seen(loaded.state(), "Ann") == seen(now.state(), "Ann")


def test_a_finished_session_stays_so_and_its_fork_goes_on_with_the_new_memory(store: str) -> None:
    whole = run(plain(), LINES, session="one", store=store)
    whole.session.reset(speaker="Ann")
    assert go_on(whole.session, []).outcome == whole.outcome
    new = whole.session.fork(end_chat={"max_iterations": 3})
    assert new.state().outcome is None
    assert seen(new.state(), "Ann") == [("human", "B2")]
    again = load_session(through_json(new.dump()), into="again", store=store)
    for session in (new, again):
        assert outcome_of(go_on(session, ["A3", "B3"])).messages == 6


def test_a_memory_that_was_reset_is_dumped_whole_and_copied_so(here: str, there: str) -> None:
    one = stopped(plain(), ["A1", "B1"], here)
    one.reset(speaker="Ann")
    copy = one.copy(to=there)
    assert copy.dump() == one.dump()
    assert seen(copy.state(), "Ann") == [("human", "B1")]


@pytest.mark.parametrize("number", range(2, 7))
def test_a_killed_sessions_memory_is_reset_without_a_loss(
    store: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with killed_before_checkpoint(monkeypatch, number):
        run(plain(), LINES, session="one", store=store)
    left = Session("one", store=store).state()
    left.session.reset(speaker="Ben")
    assert left.session.state().messages[: len(left.messages)] == left.messages
    assert texts(go_on(left.session, LINES[calls_in(left) :])) == LINES
