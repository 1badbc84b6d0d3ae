"""Row R18: in a chat, a guard passes the turn and its reason to the person, and does not end it."""

from typing import Any

import pytest
from langchain_core.tools import tool

from duologue.graphs import (
    Conversation,
    EndChat,
    MessageQuestion,
    SpecError,
    chat,
    converse,
    load_conversation,
)
from duologue.nodes.testing import Line, ScriptedChatModel
from support.people_help import Played, call, calls, play
from support.tables import each_row

FLIP = "User: I would like to know when the shop opens."
ASKS = ["When does it open?", "And on Monday?", "And on Tuesday?", "On Sunday?", "In May?", "Ok?"]
WHY = "Assistant kept writing another speaker's part"


def because(played: Played) -> list[str]:
    return [one.because.value for one in played.asked if isinstance(one, MessageQuestion)]


def flipping() -> ScriptedChatModel:
    """Return a model that writes the person's part, even if asked for its own."""
    return ScriptedChatModel(script=lambda _: FLIP)


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"{at} is fine."


def test_the_person_is_told_why_and_its_words_begin_the_count_anew() -> None:
    """R18: the person sees the reason, and the person's message resets the count."""
    played = play(chat(), flipping(), [*ASKS[:4], "exit"])
    assert played.reason == "quit"
    assert because(played) == ["turn", "turn", "guard", "turn", "guard"]
    prompts = [one.prompt for one in played.asked if isinstance(one, MessageQuestion)]
    assert prompts[2] == f"User, it is your turn: {WHY}. Enter exit to leave."
    assert [cause.text for cause in played.result.why()] == ["User left"]


def test_it_ends_the_conversation_unless_told_to_ask() -> None:
    """R18: by default, and in older chats, a guard ends the conversation."""
    people = [{"name": "User", "replies": ["human"]}, {"name": "Assistant"}]
    ending = load_conversation({"task": "Talk.", "speakers": people})
    played = play(ending, flipping(), ASKS)
    assert played.reason == "role_flips"
    store = "memory:older-chat"
    old = chat().model_copy(update={"end_chat": EndChat(max_iterations=None)})
    play(Conversation.model_validate(old.stored()), [], store=store)
    # The same Python code resumes the session by the stored rules.
    again = play(chat(), flipping(), ASKS, store=store)
    assert again.reason == "role_flips"


def test_equal_calls_are_not_run_once_more() -> None:
    """R18, R21: the model is asked for something else, then the turn ends, and it learns why."""
    again = calls(call("look", at="it"))
    script: list[Line] = [*[again] * 6, "I give up."]
    played = play(chat(tools=["look"]), script, ["Look.", "Stop that.", "exit"], tools=[look])
    assert because(played) == ["turn", "guard", "turn"]
    question = played.asked[1]
    assert isinstance(question, MessageQuestion)
    assert "Assistant made 5 tool calls that repeat each other" in question.prompt
    results = [one["content"] for one in played.prompts[-1] if one["role"] == "tool"]
    assert results[:4] == ["it is fine."] * 4
    assert len(results) == 5
    assert results[4].startswith("Not run")
    assert played.transcript == [
        ("User", "Look."),
        ("User", "Stop that."),
        ("Assistant", "I give up."),
    ]
    assert played.reason == "quit"


def test_a_session_that_waits_is_told_why_in_the_next_run() -> None:
    """R18: a later run shows the reason, too, because the counts are in the log."""
    store = "memory:waiting-chat"
    play(chat(), flipping(), ASKS[:2], store=store)
    asked: list[Any] = []
    model = ScriptedChatModel(script=["Yes."])
    answers = iter(["Are you well?", "exit"])

    def answer(question: Any) -> str:  # noqa: ANN401
        asked.append(question)
        return next(answers)

    result = converse(chat(), session="s", store=store, model=model, answer=answer)
    assert [one.because for one in asked] == ["guard", "turn"]
    assert result.transcript[-2:] == [("User", "Are you well?"), ("Assistant", "Yes.")]


def test_caps_budgets_and_people_still_end_it() -> None:
    """R18: caps, budgets and people still end the conversation."""
    played = play(chat(max_iterations=2), flipping(), ASKS)
    assert played.reason == "max_iterations"


def test_a_guard_that_is_off_never_asks() -> None:
    """R18: a guard that is switched off never asks."""
    people = [{"name": "User", "replies": ["human"]}, {"name": "Assistant"}]
    end_chat = {"on_guard": "ask", "guards": {"role_flips": 0}, "max_iterations": "none"}
    quiet = load_conversation({"task": "Talk.", "speakers": people, "end_chat": end_chat})
    played = play(quiet, flipping(), [*ASKS, "exit"])
    assert "guard" not in because(played)


@each_row("where_no_person_speaks_in_each_round_it_is_refused")
def test_where_no_person_speaks_in_each_round_it_is_refused(speakers: list[Any]) -> None:
    """R18: asking guards are refused unless a person speaks in each round."""
    with pytest.raises(
        SpecError, match=r"end_chat.on_guard: 'ask' needs at least two speakers who take turns"
    ):
        load_conversation({"task": "Talk.", "speakers": speakers, "end_chat": {"on_guard": "ask"}})


def test_nothing_of_it_stands_in_the_agents_view() -> None:
    """R18: the agent's view contains no trace of the question."""
    played = play(chat(), flipping(), [*ASKS[:3], "exit"])
    assert "guard" in because(played)
    assert not any(WHY in one.text for one in played.result.messages)
