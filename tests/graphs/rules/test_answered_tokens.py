"""R20: a done token that counts only after an answer, so that the work is done before the end."""

from typing import Any
from uuid import uuid4

import pytest

from duologue.graphs import Result, Session, draw, load_conversation
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from support.log import place_of
from support.prompts import PROMPTS
from support.results import outcome_of
from support.shape_help import play as play_script

LAST_MESSAGE = PROMPTS["last_message"]
STOP = "###STOP###"
GO_AHEAD = f"Yes, please go ahead. {STOP}"
WORD = {"kind": "done_token", "token": STOP, "by": "User", "answered": True}
DONE = {"objectives_left": [], "complete": True}


def booking(number: int = 1) -> Reply:
    return Reply(tool_calls=[ScriptedToolCall(name="book", args={"seat": number}, id=f"c{number}")])


def book(seat: int) -> str:
    """Book a seat."""
    return f"Seat {seat} is booked."


def talk(**fields: Any) -> dict[str, Any]:
    end_chat = {"when": WORD, "max_iterations": 5} | fields.pop("end_chat", {})
    speakers = [{"name": "User"}, {"name": "Agent", "tools": ["book"]}]
    return {"task": "Book.", "speakers": speakers, "end_chat": end_chat} | fields


def play(spec: dict[str, Any], *script: Line, **options: Any) -> tuple[Result, ScriptedChatModel]:
    return play_script(spec, script, **{"tools": [book]} | options)


def ended(result: Result) -> tuple[list[str], str]:
    return [one.value for one in outcome_of(result).reasons], result.transcript[-1][1]


def test_the_agent_does_its_work_and_its_report_is_the_last_message() -> None:
    script: list[Line] = [
        "One seat.",
        "Shall I book it?",
        GO_AHEAD,
        booking(),
        booking(2),
        "Both are booked.",
    ]
    result, model = play(talk(), *script)
    assert ended(result) == (["done_token"], "Both are booked.")
    assert outcome_of(result).by == "User"
    assert outcome_of(result).explanations == ("User said the done token and got an answer",)
    assert (outcome_of(result).rounds, outcome_of(result).messages) == (2, 4)
    # The agent hears the words around the token, and the announcement that its message is the last
    # one.
    heard = model.calls[3].messages[-1].text
    assert heard == f"Yes, please go ahead.\n\nModerator: {LAST_MESSAGE}"
    causes = [(one.kind.value, one.text) for one in result.why() if one.message]
    assert causes == [
        ("said", f"User: said {STOP}"),
        ("answered", f"Agent: answered User, who said {STOP}"),
    ]


def test_a_person_who_leaves_instead_ends_it_unanswered() -> None:
    spec = talk(speakers=[{"name": "User"}, {"name": "You", "replies": ["human"]}])
    answers = iter(["Shall I?", "exit"])
    result, _ = play(spec, "One seat.", GO_AHEAD, answer=lambda question: next(answers))
    assert ended(result) == (["quit"], GO_AHEAD)


def test_in_an_and_the_answer_comes_first_and_the_rest_ends_it_later() -> None:
    spec = talk(
        end_chat={"when": {"kind": "all", "of": [WORD, {"kind": "max_messages", "limit": 6}]}}
    )
    said = ["One seat.", "Shall I?", GO_AHEAD, "Booked.", "And a meal.", "Noted."]
    result, model = play(spec, *said)
    assert ended(result) == (["done_token", "max_messages"], "Noted.")
    assert not any(LAST_MESSAGE in call.messages[-1].text for call in model.calls)


def test_min_iterations_waits_for_the_word_and_its_answer() -> None:
    spec = talk(end_chat={"min_iterations": 2})
    result, model = play(spec, GO_AHEAD, "Booked.", "And a meal.", "Noted.")
    assert ended(result) == (["done_token"], "Noted.")
    assert not any(LAST_MESSAGE in call.messages[-1].text for call in model.calls)


def test_of_speakers_that_are_chosen_another_one_answers() -> None:
    people = [{"name": "Agent"}, {"name": "User"}, {"name": "Clerk"}]
    order = {"kind": "function", "name": "mine"}
    spec = talk(speakers=people, turn_order=order)
    orders = {"mine": lambda messages, names: "User"}
    result, _ = play(spec, "Shall I?", GO_AHEAD, "Booked.", orders=orders, tools=[])
    assert result.transcript[-1] == ("Clerk", "Booked.")


def test_a_fork_counts_by_its_own_rule() -> None:
    store = f"memory:{uuid4().hex}"
    plain = {**WORD, "answered": False}
    script: list[Line] = ["One seat.", "Shall I?", GO_AHEAD]
    play(talk(end_chat={"when": plain}), *script, store=store, session="s")
    new = Session("s", store=store).fork(end_chat={"when": WORD}).id
    result = Session(new, store=store).resume(
        model=ScriptedChatModel(script=["Booked."]), tools=[book]
    )
    assert ended(result) == (["done_token"], "Booked.")
    at = next(place_of(one) for one in result.messages if one.text == GO_AHEAD)
    old = Session(new, store=store).fork(at=at, end_chat={"when": plain}).id
    result = Session(old, store=store).resume(model=ScriptedChatModel(script=[]), tools=[book])
    assert ended(result) == (["done_token"], GO_AHEAD)


def test_a_kill_before_the_answer_loses_nothing() -> None:
    store = f"memory:{uuid4().hex}"
    script: list[Line] = ["One seat.", "Shall I?", GO_AHEAD, booking(), RuntimeError("killed")]
    with pytest.raises(RuntimeError, match="killed"):
        play(talk(end_chat={"max_iterations": 2}), *script, store=store, session="s")
    result = Session("s", store=store).resume(
        model=ScriptedChatModel(script=["Booked."]), tools=[book]
    )
    assert ended(result) == (["done_token", "max_iterations"], "Booked.")


def test_pictures_and_descriptions_say_that_it_is_answered() -> None:
    spec = load_conversation(talk())
    assert f"when User&#39;s {STOP} is answered" in spec._repr_html_()
    drawn = [one for one in draw(spec).splitlines() if "is answered" in one]
    assert len(drawn) == 1
