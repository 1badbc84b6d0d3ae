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
    Result,
    Session,
    Speaker,
    converse,
    load_session,
)
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Turn
from support.cases import drawn_cases
from support.fork_help import assert_same
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
        new = whole.session.fork(at=place_of(whole.messages[place]))
        again = Player(conversation, seed)
        assert_same(new.resume(**model_of(again)), whole)
        assert again.answered == player.answered[len(player.answered) - len(again.answered) :]


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


SHAPED = Conversation(
    speakers=[
        {"name": "Ann", "task": "Dig.", "tools": ["dig"], "hooks": ["all"]},
        {"name": "Ben", "task": "Look on."},
    ],
    opening={"answers": True, "first_speaker": "Ann"},
    end_chat={"max_iterations": 1},
)
"""A conversation with opening answers, in which Ann digs and has hooks."""

CALL = ScriptedToolCall(name="dig", args={"place": "here"}, id="c")
SAID: list[Line] = [
    *("I will dig", "I will look on.", Reply(text="I dig", tool_calls=[CALL])),
    *("I have dug", "I see."),
]


def go_on(session: Session, script: list[Line], **options: Any) -> Result:
    """Resume a session on a script that must be used up."""
    model = ScriptedChatModel(script=script)
    result = session.resume(model=model, **options)
    assert len(model.calls) == len(script)
    return result


@pytest.fixture
def whole(tmp_path: Path) -> Result:
    """Return the result of a whole run."""
    RAN.clear()
    model = ScriptedChatModel(script=SAID)
    store = tmp_path / "store.db"
    return converse(SHAPED, session="one", store=store, model=model, **REGISTERED)


def found(result: Result, kind: str, text: str) -> str:
    """Return the id of the message of this kind and text."""
    (one,) = [one for one in result.messages if kind_of(one) == kind and one.text == text]
    return place_of(one)


WAITING = {
    "a call": ("unheard_reply", "I dig", SAID[3:]),
    "a result": ("unheard_result", "Dug here.", SAID[3:]),
    "a speech": ("unheard_reply", "I have dug", SAID[4:]),
}


@pytest.mark.part(2)
@pytest.mark.parametrize(("kind", "text", "rest"), WAITING.values(), ids=WAITING)
def test_what_waits_for_hooks_is_said_by_the_new_rules(
    whole: Result, kind: str, text: str, rest: list[Line]
) -> None:
    """L7: a reply that waits for hooks follows the fork's rules, with hooks or without."""
    at = found(whole, kind, text)

    def fork(rest: list[Line], **changes: Any) -> Result:
        return go_on(whole.session.fork(at=at, **changes), rest, **REGISTERED)

    assert without_ids(fork(rest).messages) == without_ids(whole.messages)
    plain = fork(rest, speakers={"Ann": {"hooks": []}})
    waits = ("unheard_reply", "unheard_result")
    aloud = {one.text for one in plain.messages if kind_of(one) not in waits}
    assert text in aloud
    assert aloud.isdisjoint({f"{text}!", f"{text} Well done."})
    # A tool whose result is in the log is not run again.
    assert len(RAN) == (3 if text == "I dig" else 1)
    # A hard stop of the fork waits until the hooks have run.
    limit = {"when": MaxCalls(limit=1)}
    assert whole.session.fork(at=at, end_chat=limit).state().outcome is None
    ended = fork([], end_chat=limit)
    assert ended.stop_reason == "max_calls"
    assert ended.messages[-1].text == f"{text}{' Well done.' if text == 'Dug here.' else '!'}"
    # A new task is announced before pending messages, and the ids are in order.
    ended = fork(rest, speakers={"Ann": {"task": "Plant."}})
    texts = [str(one.text) for one in ended.messages]
    told = "From now on, your task is: Plant."
    assert [one.text for one in whole.messages] == [one for one in texts if one != told]
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
def test_a_fork_at_a_summary_goes_on_with_it(
    changes: dict[str, Any], is_kept: bool, store: str
) -> None:
    """The summary is not made again, and replaces the earlier messages under any policy."""
    context = {"kind": "summary", "limit": 350, "words": 9}
    speakers: list[Any] = [{"name": "Ann", "context": context}, {"name": "Ben"}]
    conversation = Conversation("Dig.", speakers, end_chat={"max_iterations": 3})
    turns = [f"{LONG}{word}." for word in ("One", "Two", "Three", "Four", "Five", "Six")]
    script: list[Line] = [*turns[:4], "They dig.", *turns[4:]]
    model = ScriptedChatModel(script=script)
    before = converse(conversation, store=store, model=model)
    assert len(model.calls) == len(script)
    new = before.session.fork(at=found(before, "summary", "They dig."), **changes)
    model = ScriptedChatModel(script=script[5:] if is_kept else [])
    ended = new.resume(model=model)
    assert (without_ids(ended.messages) == without_ids(before.messages)) is is_kept
    assert len(model.calls) == (2 if is_kept else 0)
    if is_kept:
        heard = "Moderator: Summary of the conversation so far:\nThey dig."
        assert model.calls[0].prompt[1]["content"].startswith(heard)
        assert "One." not in str(model.calls[0].prompt)
    else:
        assert ended.stop_reason == "max_calls"


# Forks of sessions in which a message was inserted before another or replaced it


def said(result: Result) -> list[tuple[str, str, str]]:
    """Return the ids, kinds and texts of a log."""
    return [(place_of(one), kind_of(one), one.text) for one in result.messages]


def test_a_reset_before_calls_that_wait_is_in_the_fork(store: str) -> None:
    """A fork contains a memory reset that comes before pending calls."""
    speakers = [Speaker("Ann", tools=["clock"]), Speaker("Ben")]
    conversation = Conversation("Talk.", speakers, end_chat=EndChat(max_iterations=2))
    calls = Reply(text="One moment.", tool_calls=[ScriptedToolCall(name="clock", args={}, id="c")])
    model = ScriptedChatModel(script=[calls, *(f"a{number} beans" for number in range(9))])
    waits = converse(conversation, model=model, store=store).session.fork(at="m0001")
    waits.reset(speaker="Ben")
    again = waits.fork()
    kinds = [kind for _, kind, _ in said(again.state())]
    assert kinds == ["instruction", "memory_reset", "tool_calls"]
    assert said(again.state()) == said(waits.state())
    model = ScriptedChatModel(script=[f"b{number} peas" for number in range(9)])
    assert again.resume(model=model).outcome is not None


@pytest.mark.parametrize("at", ["m0004", None])
@pytest.mark.parametrize("loaded", [False, True])
def test_what_was_said_in_anothers_place_is_in_the_fork(
    loaded: bool, at: str | None, store: str
) -> None:
    """Another speaker takes over: its message replaces the cue of the first, with the cue's id."""
    conversation = Conversation("Talk.", [Speaker(name) for name in ("Ann", "Ben", "Cy")])
    source = broken_off(conversation, store, "one is 1", "two is 22")
    taken_over = source.add_message("Ann", "I take over.")
    if loaded:
        source = load_session(source.dump(), into="loaded", store=store)
    found = said(source.fork(at=at).state())
    assert found == said(taken_over)
    assert ("m0004", "speech", "I take over.") in found


def broken_off(conversation: Conversation, store: str, *script: Line) -> Session:
    """Run a conversation until its script is used up and the model fails."""
    model = ScriptedChatModel(script=[*script, ModelError("gone")])
    with pytest.raises(ModelError):
        converse(conversation, session="one", model=model, store=store)
    return Session("one", store=store)


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
    one = broken_off(conversation, store, "Plan a garden with very many beans.")
    result = go_on(one.fork(task_specification=None), ["One.", "Two."])
    assert [one.text for one in result.memory("Ann")][:2] == ["We met.", "Hi."]
    assert [one.text for one in result.memory("Ben")][:1] == ["You hate beans."]
