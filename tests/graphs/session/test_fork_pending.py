"""Forks in the middle of a turn: before hooks, between a tool and its hooks, at a summary."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import tool

from drawn.player import Player
from drawn.talks import talks
from duologue import (
    Conversation,
    EndChat,
    Hook,
    MaxCalls,
    ModelError,
    Reason,
    Result,
    Session,
    Speaker,
    converse,
    load_session,
)
from duologue.graphs.prompts import prompts
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Turn
from support.cases import drawn_cases
from support.fork_help import timeless
from support.log import kind_of, place_of, without_ids


def model_of(player: Player) -> dict[str, Any]:
    return {"model": ScriptedChatModel(script=player.answer), **player.registered}


@drawn_cases(
    1, 15, conversation=talks(shaped=True, most=3), seed=st.integers(0, 999), data=st.data()
)
def test_a_fork_from_any_line_goes_on_as_the_original_did(
    conversation: Conversation, seed: int, data: st.DataObject
) -> None:
    """L7: no message of the log is requested again, even if hooks or calls are pending."""
    store = f"memory:{uuid4().hex}"
    player = Player(conversation, seed)
    whole = converse(conversation, session="one", store=store, **model_of(player))
    for place in data.draw(st.lists(st.integers(0, len(whole.messages) - 1), max_size=4)):
        new = Session("one", store=store).fork(at=place_of(whole.messages[place])).id
        again = Player(conversation, seed)
        ended = Session(new, store=store).resume(**model_of(again))
        assert without_ids(ended.messages) == without_ids(whole.messages)
        assert timeless(ended.outcome) == timeless(whole.outcome)
        asked = len(again.answered)
        assert again.answered == player.answered[len(player.answered) - asked :]


RAN: list[str] = []
"""Calls of the tool in these tests."""


@tool
def dig(place: str) -> str:
    """Dig a bed."""
    RAN.append(place)
    return f"Dug {place}."


def _louder(_: Turn, reply: AIMessage) -> AIMessage:
    return AIMessage(f"{reply.text}!")


def _heard(_: Turn) -> HumanMessage:
    return HumanMessage("Something else.")


def _praised(_: Turn, __: ToolCall, found: ToolMessage) -> ToolMessage:
    return ToolMessage(f"{found.text} Well done.", tool_call_id="any")


REGISTERED: dict[str, Any] = {
    "tools": [dig],
    "hooks": {"all": Hook(before_speaker=_heard, after_speaker=_louder, after_tool=_praised)},
}


def shaped(**fields: Any) -> Conversation:
    """Return a conversation with opening answers, in which Ann digs and has hooks."""
    ann = {"name": "Ann", "task": "Dig.", "tools": ["dig"], "hooks": ["all"]}
    return Conversation.model_validate(
        {
            "speakers": [ann, {"name": "Ben", "task": "Look on."}],
            "opening": {"answers": True, "first_speaker": "Ann"},
            "end_chat": {"max_iterations": 1},
            **fields,
        }
    )


CALL = Reply(
    text="I dig", tool_calls=[ScriptedToolCall(name="dig", args={"place": "here"}, id="c")]
)
SAID: list[Line] = ["I will dig", "I will look on.", CALL, "I have dug", "I see."]


def run(session: str, store: str, script: list[Line], *, into: bool = False) -> Result:
    """Run or resume a session on a script that must be used up."""
    model = ScriptedChatModel(script=script)
    if into:
        result = Session(session, store=store).resume(model=model, **REGISTERED)
    else:
        result = converse(shaped(), session=session, store=store, model=model, **REGISTERED)
    assert len(model.calls) == len(script)
    return result


@pytest.fixture
def whole(tmp_path: Path) -> tuple[str, Result]:
    """Return the store and the result of a whole run."""
    RAN.clear()
    store = str(tmp_path / "store.db")
    return store, run("one", store, SAID)


def found(result: Result, kind: str, text: str) -> str:
    """Return the id of the message of this kind and text."""
    (one,) = [one for one in result.messages if kind_of(one) == kind and one.text == text]
    return place_of(one)


WAITING = {
    "a call": ("unheard_reply", "I dig", SAID[3:]),
    "a result": ("unheard_result", "Dug here.", SAID[3:]),
    "a speech": ("unheard_reply", "I have dug", SAID[4:]),
}


@pytest.mark.part(1)
@pytest.mark.parametrize(("kind", "text", "rest"), WAITING.values(), ids=WAITING)
def test_what_waits_for_hooks_is_said_by_the_new_rules(
    whole: tuple[str, Result], kind: str, text: str, rest: list[Line]
) -> None:
    """L7: a reply that waits for hooks follows the fork's rules, with hooks or without."""
    store, before = whole
    at = found(before, kind, text)
    same = run(Session("one", store=store).fork(at=at).id, store, rest, into=True)
    assert without_ids(same.messages) == without_ids(before.messages)
    new = Session("one", store=store).fork(at=at, speakers={"Ann": {"hooks": []}}).id
    plain = run(new, store, rest, into=True)
    aloud = {
        one.text
        for one in plain.messages
        if kind_of(one) not in ("unheard_reply", "unheard_result")
    }
    assert text in aloud
    assert f"{text}!" not in aloud
    assert f"{text} Well done." not in aloud
    # A tool whose result is in the log is not run again.
    assert len(RAN) == (3 if text == "I dig" else 1)


@pytest.mark.part(1)
@pytest.mark.parametrize(("kind", "text", "rest"), WAITING.values(), ids=WAITING)
def test_what_is_answered_is_said_before_new_rules_end_it(
    whole: tuple[str, Result], kind: str, text: str, rest: list[Line]
) -> None:
    """A hard stop of the fork waits until the hooks have run."""
    store, before = whole
    at = found(before, kind, text)
    new = Session("one", store=store).fork(at=at, end_chat={"when": MaxCalls(limit=1)}).id
    assert Session(new, store=store).state().outcome is None
    ended = run(new, store, [], into=True)
    assert timeless(ended.outcome).reason is Reason.MAX_CALLS
    newest = ended.messages[-1]
    assert newest.text == (f"{text} Well done." if text == "Dug here." else f"{text}!")


@pytest.mark.part(1)
@pytest.mark.parametrize(("kind", "text", "rest"), WAITING.values(), ids=WAITING)
def test_a_new_task_is_told_in_front_of_what_waits(
    whole: tuple[str, Result], kind: str, text: str, rest: list[Line]
) -> None:
    """A new task is announced before pending messages, and the ids are in order."""
    store, before = whole
    at = found(before, kind, text)
    new = Session("one", store=store).fork(at=at, speakers={"Ann": {"task": "Plant."}}).id
    told = prompts.fill_template(prompts.NEW_TASK, task="Plant.")
    ended = run(new, store, rest, into=True)
    texts = [str(one.text) for one in ended.messages]
    assert [one.text for one in before.messages] == [one for one in texts if one != told]
    assert texts.index(told) < texts.index(text)
    assert [place_of(one) for one in ended.messages] == [f"m{n:04d}" for n in range(len(texts))]


LONG = "This is said at some length. " * 9


@pytest.mark.parametrize(
    ("changes", "is_kept"),
    [
        ({}, True),
        ({"speakers": {"Ann": {"context": {"kind": "all"}}}}, True),
        ({"speakers": {"Ann": {"context": {"kind": "last", "limit": 9}}}}, True),
        ({"end_chat": {"when": MaxCalls(limit=1)}}, False),
    ],
    ids=["same", "all", "last", "over"],
)
def test_a_fork_at_a_summary_goes_on_with_it(changes: dict[str, Any], is_kept: bool) -> None:
    """The summary is not made again, and replaces the earlier messages under any policy."""
    store = f"memory:{uuid4().hex}"
    context = {"kind": "summary", "limit": 350, "words": 9}
    conversation = Conversation.model_validate(
        {
            "task": "Dig.",
            "speakers": [{"name": "Ann", "context": context}, {"name": "Ben"}],
            "end_chat": {"max_iterations": 3},
        }
    )
    turns = [f"{LONG}{word}." for word in ("One", "Two", "Three", "Four", "Five", "Six")]
    script: list[Line] = [*turns[:4], "They dig.", *turns[4:]]
    model = ScriptedChatModel(script=script)
    before = converse(conversation, session="one", store=store, model=model)
    assert len(model.calls) == len(script)
    at = found(before, "summary", "They dig.")
    new = Session("one", store=store).fork(at=at, **changes).id
    rest = script[5:] if is_kept else []
    model = ScriptedChatModel(script=rest)
    ended = Session(new, store=store).resume(model=model)
    assert len(model.calls) == len(rest)
    assert ended.outcome is not None
    assert (without_ids(ended.messages) == without_ids(before.messages)) is is_kept
    if is_kept:
        heard = prompts.fill_template(prompts.SUMMARY_HEADING, summary="They dig.")
        heard = conversation.mark_instruction(conversation.speakers[0], heard)
        first = model.calls[0].prompt[1]["content"]
        assert first.startswith(heard)
        assert "One." not in str(model.calls[0].prompt)
    else:
        assert ended.outcome.reason is Reason.MAX_CALLS


# Forks of sessions in which a message was inserted before another or replaced it


def said(result: Result) -> list[tuple[str, str, str]]:
    """Return the ids, kinds and texts of a log."""
    return [(place_of(one), kind_of(one), one.text) for one in result.messages]


def test_a_reset_before_calls_that_wait_is_in_the_fork(store: str) -> None:
    """A fork contains a memory reset that comes before pending calls."""
    conversation = Conversation(
        task="Talk.",
        speakers=(Speaker(name="Ann", tools=("clock",)), Speaker(name="Ben")),
        end_chat=EndChat(max_iterations=2),
    )
    calls = Reply(text="One moment.", tool_calls=[ScriptedToolCall(name="clock", args={}, id="c")])
    model = ScriptedChatModel(script=[calls, *(f"a{number} beans" for number in range(9))])
    converse(conversation, session="one", model=model, store=store)
    Session("one", store=store).fork(at="m0001", into="waits")
    Session("waits", store=store).reset(speaker="Ben")
    Session("waits", store=store).fork(into="again")
    kinds = [kind for _, kind, _ in said(Session("again", store=store).state())]
    assert kinds == ["instruction", "memory_reset", "tool_calls"]
    assert said(Session("again", store=store).state()) == said(
        Session("waits", store=store).state()
    )
    model = ScriptedChatModel(script=[f"b{number} peas" for number in range(9)])
    assert Session("again", store=store).resume(model=model).outcome is not None


@pytest.mark.parametrize("at", ["m0004", None])
@pytest.mark.parametrize("loaded", [False, True])
def test_what_was_said_in_anothers_place_is_in_the_fork(
    loaded: bool, at: str | None, store: str
) -> None:
    """Another speaker takes over: its message replaces the cue of the first, with the cue's id."""
    conversation = Conversation(
        task="Talk.", speakers=tuple(Speaker(name=name) for name in ("Ann", "Ben", "Cy"))
    )
    model = ScriptedChatModel(script=["one is 1", "two is 22", ModelError("gone")])
    with pytest.raises(ModelError):
        converse(conversation, session="one", model=model, store=store)
    taken_over = Session("one", store=store).add_message("Ann", "I take over.")
    source = "one"
    if loaded:
        source = load_session(Session("one", store=store).dump(), into="loaded", store=store).id
    Session(source, store=store).fork(at=at, into="other")
    found = said(Session("other", store=store).state())
    assert found == said(taken_over)
    assert ("m0004", "speech", "I take over.") in found


def test_a_fork_from_a_task_that_is_being_rewritten_keeps_what_speakers_know(store: str) -> None:
    conversation = Conversation(
        "Plan a garden.",
        [
            Speaker("Ann", memory=["We met.", ("assistant", "Hi.")]),
            Speaker("Ben", private_opening={"lines": ["You hate beans."]}),
        ],
        task_specification={"word_limit": 5},
        end_chat=EndChat(max_iterations=1),
    )
    model = ScriptedChatModel(script=["Plan a garden with very many beans.", ModelError("gone")])
    with pytest.raises(ModelError):
        converse(conversation, session="one", model=model, store=store)
    fork = Session("one", store=store).fork(task_specification=None)
    result = fork.resume(model=ScriptedChatModel(script=["One.", "Two."]))
    assert [one.text for one in result.memory("Ann")][:2] == ["We met.", "Hi."]
    assert [one.text for one in result.memory("Ben")][:1] == ["You hate beans."]
