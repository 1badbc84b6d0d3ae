"""Dumps and memories that can't be made, loaded or replaced: each error is one sentence."""

import asyncio
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.tools import tool

from duologue import (
    Conversation,
    Hook,
    Session,
    SessionError,
    SpecError,
    chat,
    list_sessions,
    load_session,
    user_proxy,
)
from duologue.nodes.testing import Line, ScriptedChatModel
from duologue.tools import Turn
from support.fork_help import go_on, plain, run, seen, stopped, texts
from support.log import without_ids
from support.people_help import call, calls, play
from support.stores import EACH_STORE, open_store, store_address
from support.tables import check_rows, read_rows

MESSAGE = {"id": "m0000", "text": "Hi", "metadata": {"kind": "speech", "speaker": "Ann"}}
LINES: list[Line] = ["A1", "B1", "A2", "B2"]


@cache
def empty_dump() -> dict[str, Any]:
    """Return the dump of a session that has not begun."""
    session = run(plain(), LINES, store="memory:empty").session
    session.reset()
    return session.dump()


@pytest.fixture
def here(tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}-here"


@pytest.fixture
def there(tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}-there"


@pytest.fixture(params=EACH_STORE)
def store(request: pytest.FixtureRequest) -> str:
    return store_address(request.param, request)


# Invalid input


def test_what_can_not_be_done_is_named(here: str, there: str) -> None:
    whole = run(plain(), LINES, session="one", store=here)
    one = whole.session
    other = run(plain(), LINES, session="one", store=there).session
    dump, memory = one.dump(), whole.memory("Ann")
    stranger = "no speaker in session 'one' is called 'Eve'; choose one of 'Ann', 'Ben'"
    exists, odd = "Session 'one' already exists in", "'a b' is not a valid session id"
    system = "messages.1: must be a message of the user, the assistant or a tool"
    cases: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: whole.memory("Eve"), KeyError, '"no speaker is called'),
        (lambda: one.reset(speaker="Eve"), SpecError, stranger),
        (lambda: load_session(dump, store=there), SessionError, exists),
        (lambda: load_session(dump, into="a b", store=there), SessionError, odd),
        (lambda: other.set_memory("Eve", memory), SpecError, stranger),
        (lambda: other.set_memory("Ann", ["Hi.", ("system", "Hm.")]), SpecError, system),
        (lambda: one.copy(into="one"), SessionError, exists),
    ]
    for act, error, said in cases:
        with pytest.raises(error, match=f"^{re.escape(said)}"):
            act()
    assert len(list_sessions(store=there)) == 1


@pytest.mark.usefixtures("impatient")
async def test_a_running_session_is_read_but_not_changed(store: str) -> None:
    one = await asyncio.to_thread(stopped, plain(), ["A1"], store)
    before = await one.astate()
    async with open_store(store) as opened, opened.lock("one"):
        for act in (
            one.areset(),
            one.areset(speaker="Ann"),
            one.aset_memory("Ann", before.memory("Ann")),
        ):
            with pytest.raises(SessionError, match="'one' is busy: another run uses it"):
                await act
        two = await one.acopy(into="two")
        assert await one.aexport(format="jsonl")
    for session in (one, two):
        assert without_ids((await session.astate()).messages) == without_ids(before.messages)


def test_a_session_that_has_not_begun_has_no_memory_to_replace(here: str) -> None:
    whole = run(plain(), LINES, store=here)
    one = whole.session
    one.reset()
    with pytest.raises(SessionError, match="has not begun, so its speakers have no memory"):
        one.set_memory("Ann", whole.memory("Ann"))
    one.reset(speaker="Ann")
    assert texts(go_on(one, LINES)) == LINES


def test_what_is_no_dump_of_ours_is_refused_naming_the_field_and_the_file(
    here: str, tmp_path: Path
) -> None:
    dump = empty_dump()
    spec, version = dump["spec"], dump["version"]
    file, none = tmp_path / "dump.json", "format: is missing: this is not a dump of a session"
    newest = f"version: this release reads versions up to {version}, not {version + 1}"
    old = "spec: version: 5 was written by a development version before 0.1.0"
    newer = "spec: version: this release reads versions up to "

    def check(data: object, said: str) -> None:
        file.write_text(json.dumps(data))
        with pytest.raises(SpecError) as caught:
            load_session(file, store=here)
        assert str(caught.value).startswith(f"{file}: {said}")
        assert "\n" not in str(caught.value)
        if isinstance(data, dict):
            with pytest.raises(SpecError, match=f"^{re.escape(said)}"):
                load_session(data, store=here)

    rows: list[tuple[object, str]] = [
        ([], none),
        ({}, none),
        ({"format": "duologue.session"}, "version: is missing"),
        (dump | {"version": version + 1, "mood": "good"}, f"{newest}; upgrade duologue"),
        (dump | {"spec": spec | {"version": 5}}, old),
        (dump | {"spec": spec | {"version": 99}}, newer),
        (dump | {"spec": spec | {"speakers": []}}, "spec.speakers: needs at least 2"),
        (dump | {"spec": None}, "spec: "),
    ]
    wrong = read_rows(__file__, "wrong_dumps")
    check_rows([*rows, *((dump | one["changes"], one["said"]) for one in wrong)], check)
    assert list_sessions(store=here) == []


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, here: str) -> None:
    for name, held, said in [
        ("gone.json", None, "can't be read: No such file or directory"),
        ("cut.json", b'{"format"', "is not valid JSON: "),
        ("bytes.json", b"\xff\xfe", "is not UTF-8 text"),
        ("deep.json", b"[" * 100_000, "is nested too deeply; use fewer levels"),
        ("dump.toml", b"", "is not a .json file; pass the path of a dump"),
    ]:
        if held is not None:
            (tmp_path / name).write_bytes(held)
        with pytest.raises(SpecError, match=f"^{re.escape(f'{tmp_path / name}: {said}')}"):
            load_session(tmp_path / name, store=here)


def test_a_memory_may_be_written_by_hand(here: str) -> None:
    stopped(plain(), ["A1"], here, "one")
    messages: list[Any] = [
        "We met in Rome.",
        ("assistant", "Ciao."),
        {"role": "user", "content": "…"},
    ]
    Session("one", store=here).set_memory("Ben", messages)
    view = Session("one", store=here).state().viewpoint("Ben")
    assert [one.text for one in view[1:]] == ["We met in Rome.", "Ciao.", "…\n\nA1"]
    assert isinstance(view[-1], HumanMessage)


def test_a_memory_that_is_set_again_changes_nothing(store: str) -> None:
    """L2: setting a speaker's own memory again changes nothing."""
    conversation = plain(end_chat={"max_iterations": 2})
    session = run(conversation, ["a1", "b1", "a2", "b2"], session="s", store=store).session
    before = session.state()
    for name in conversation.names:
        memory = before.memory(name)
        session.set_memory(name, memory)
        after = session.state()
        assert seen(after, name) == seen(before, name)
        assert [(one.type, one.text, one.name) for one in after.memory(name)] == [
            (one.type, one.text, one.name) for one in memory
        ]


# L2: memory in sessions with people: decisions, open questions, text next to tool calls


@tool
def mail(to: str) -> str:
    """Send a mail."""
    return f"Sent to {to}."


def _fails(_: Turn, __: ToolCall) -> ToolCall:
    raise ValueError("not now")


def _lets(_: Turn, made: ToolCall) -> ToolCall:
    return made


def with_hook(before_tool: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"tools": [mail], "hooks": {"before": Hook(before_tool=before_tool)}}


HOOKED = {"tools": ["mail"], "hooks": ["before"]}
APPROVED = {
    "decisions": [{"type": "edit", "edited_action": {"name": "mail", "args": {"to": "Bo"}}}]
}
DECIDED: dict[str, tuple[Conversation, list[Line], list[Any]]] = {
    "approved": (
        Conversation.model_validate(
            {
                "task": "Write.",
                "speakers": [
                    {"name": "Ann", "interrupt_on": {"mail": True}, **HOOKED},
                    {"name": "Ben"},
                ],
                "end_chat": {"max_iterations": 1},
            }
        ),
        ["Done.", "Fine."],
        [APPROVED],
    ),
    "seen": (
        user_proxy("Write.", tools=("mail",), assistant="Ann"),
        ["Done. TERMINATE"],
        [""],
    ),
}


def left_decided(name: str, store: str) -> list[Line]:
    """Leave a session after a person's decision, before its calls; return the remaining script."""
    conversation, rest, answers = DECIDED[name]
    ann = conversation.speaker("Ann").model_copy(update={"hooks": ("before",)})
    speakers = tuple(ann if one.name == "Ann" else one for one in conversation.speakers)
    conversation = conversation.model_copy(update={"speakers": speakers})
    script = [calls(call("mail", to="Bob"))]
    with pytest.raises(SpecError, match="not now"):
        play(conversation, script, answers, store=store, **with_hook(_fails))
    return rest


def ended(session: str, store: str, rest: list[Line]) -> Any:  # noqa: ANN401
    """Resume without questions about calls; return the messages and the remaining questions."""
    model = ScriptedChatModel(script=rest)
    result = Session(session, store=store).resume(model=model, **with_hook(_lets))
    assert len(model.calls) == len(rest)
    return without_ids(result.messages), [one.kind for one in result.pending]


@pytest.mark.part(1)
@pytest.mark.parametrize("name", DECIDED)
def test_what_a_person_has_decided_goes_with_a_session(name: str, tmp_path: Path) -> None:
    """Copies and loaded dumps keep a person's decision and do not ask again."""
    store = f"memory:{tmp_path.name}"
    rest = left_decided(name, store)
    dump = json.loads(json.dumps(Session("s", store=store).dump()))
    load_session(dump, into="loaded", store=store)
    assert Session("loaded", store=store).dump() == {**dump, "session": "loaded"}
    Session("s", store=store).copy(into="copied")
    whole = ended("s", store, rest)
    assert "Sent to" in str(whole[0])
    for session in ("loaded", "copied"):
        assert ended(session, store, rest) == whole
        # A decision is deleted after its calls have run.
        assert "decisions" not in Session(session, store=store).dump()["steps"][-1]


@pytest.mark.part(1)
@pytest.mark.parametrize("name", DECIDED)
def test_what_a_person_has_decided_stays_when_a_memory_is_reset(name: str, tmp_path: Path) -> None:
    store = f"memory:{tmp_path.name}"
    rest = left_decided(name, store)
    for speaker in Session("s", store=store).state().conversation.names:
        Session("s", store=store).reset(speaker=speaker)
    messages, _ = ended("s", store, rest)
    assert "Sent to" in str(messages)


def test_a_question_that_waits_is_asked_again_in_a_copy_and_by_a_new_memory(tmp_path: Path) -> None:
    store = f"memory:{tmp_path.name}"
    play(chat(), ["Hello."], ["Hi."], store=store)
    Session("s", store=store).copy(into="copied")
    Session("s", store=store).reset(speaker="Assistant")
    for session in ("s", "copied"):
        row = next(one for one in list_sessions(store=store) if one.session == session)
        assert (row.status, Session(session, store=store).state().pending) == ("unfinished", ())
        (question,) = Session(session, store=store).resume().pending
        assert question.kind == "message"
        result = Session(session, store=store).answer("exit")
        assert result.outcome is not None
        assert result.transcript == [("User", "Hi."), ("Assistant", "Hello.")]


def test_words_said_beside_calls_are_remembered_as_what_they_are(tmp_path: Path) -> None:
    """G1: in a loaded memory, its owner sees text next to a call as the call's argument."""
    here, there = f"memory:{tmp_path.name}-1", f"memory:{tmp_path.name}-2"
    said = [call("mail", to="Bob", to_user="I mail Bob."), call("mail", 2, to="Eve")]
    script: list[Line] = [calls(*said, text="Now"), "Done.", "Fine."]
    speakers = [{"name": "Ann", "tools": ["mail"], "speaks_with_tool_calls": True}, {"name": "Ben"}]
    conversation = Conversation.model_validate(
        {"task": "Write.", "speakers": speakers, "end_chat": {"max_iterations": 1}}
    )
    recorded = play(conversation, script, store=here, tools=[mail]).result
    memory = recorded.memory("Ann")
    # Load it once into the same session, in which its call ids are used, and once into another.
    Session("s", store=here).set_memory("Ann", memory)
    play(conversation, ["One.", "Two."], store=there, tools=[mail])
    Session("s", store=there).set_memory("Ann", memory)
    for store in (here, there):
        view = Session("s", store=store).state().viewpoint("Ann")
        made = next(one for one in view if getattr(one, "tool_calls", None))
        before = next(one for one in recorded.viewpoint("Ann") if getattr(one, "tool_calls", None))
        assert made.text == before.text == "Now"
        shown = [[one["args"] for one in found.tool_calls] for found in (made, before)]  # type: ignore[attr-defined]
        assert shown[0] == shown[1] == [{"to_user": "I mail Bob.", "to": "Bob"}, {"to": "Eve"}]


@pytest.mark.parametrize(("phase", "kinds"), read_rows(__file__, "read_next").items())
def test_a_dump_must_hold_what_is_read_next(phase: str, kinds: str) -> None:
    position = {"phase": phase, "speaker": "Ann", "facts": {"messages": 1}}
    dump = {**empty_dump(), "steps": [{"messages": [MESSAGE], "position": position}]}
    said = f"steps.0.position: does not fit the newest message, which must be of the kind {kinds}"
    with pytest.raises(SpecError, match=f"^{said}$"):
        load_session(dump, into="x", store="memory:bad")
