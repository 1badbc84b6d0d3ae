"""Forks of sessions in which a message was inserted before another or replaced it."""

from uuid import uuid4

import pytest

from duologue.graphs import (
    Conversation,
    EndChat,
    ModelError,
    Result,
    Session,
    Speaker,
    converse,
    load_session,
)
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from support.log import kind_of, place_of


def said(result: Result) -> list[tuple[str, str, str]]:
    """Return the ids, kinds and texts of a log."""
    return [(place_of(one), kind_of(one), one.text) for one in result.messages]


@pytest.fixture
def store() -> str:
    return f"memory:{uuid4().hex}"


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
