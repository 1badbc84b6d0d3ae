"""Tests that any speaker of any conversation can be a person."""

from functools import partial
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from duologue.graphs import Conversation, MessageQuestion, Speaker, group_solve, role_play
from duologue.nodes.testing import Line
from duologue.tools import Hook
from support import shape_help
from support.people_help import Played, play
from support.tables import each_row

YOU: dict[str, Any] = {"name": "You", "replies": ["human"]}
DONE = {"objectives_left": [], "complete": True}


def lines(count: int) -> list[Line]:
    return [f"Line {number}." for number in range(count)]


talk = partial(shape_help.talk, rounds=2)


def spoken(found: Played) -> list[str]:
    return [f"{name}: {text}" for name, text in found.transcript]


# Groups with a fixed order, and with a chosen next speaker


@pytest.mark.parametrize("reconcile", [False, True])
def test_one_of_three_answers_alone_and_then_talks(reconcile: bool) -> None:
    tasks = {"Ann": "Plan food.", "You": "Plan music.", "Cy": "Plan games."}
    speakers = [
        Speaker.model_validate({"name": name, "task": task} | (YOU if name == "You" else {}))
        for name, task in tasks.items()
    ]
    spec = group_solve(speakers, reconcile_first_message=reconcile, end_chat={"max_iterations": 2})
    found = play(spec, lines(6), ["A band.", "Hello all.", "Good."])
    assert spoken(found) == [
        *("Ann: Line 0.", "You: A band.", "Cy: Line 1."),
        *("You: Hello all.", "Cy: Line 2.", "Ann: Line 3."),
        *("You: Good.", "Cy: Line 4.", "Ann: Line 5."),
    ]
    opening, first, second = found.heard
    if reconcile:
        assert opening == "To Ann: Plan food.\n\nAnn: Line 0.\n\nPlan music."
        assert first.startswith("To Cy: Plan games.\n\nCy: Line 1.\n\n")
    else:
        assert opening == "Plan music."
        assert first == "Ann: Line 0."
    # Only the question shows whose turn it is.
    assert second == "Cy: Line 2.\n\nAnn: Line 3."
    assert found.reason == "max_iterations"


@pytest.mark.parametrize("order", ["moderator", "function"])
def test_a_person_is_asked_where_somebody_gives_it_the_word(order: str) -> None:
    turns = {"kind": order} | ({"name": "mine"} if order == "function" else {})
    spec = talk("Ann", YOU, "Cy", turn_order=turns)
    chosen = [{"next_speaker": name} for name in ("You", "Cy", "You", "Cy", "Ann")]
    said = lines(4)
    script: list[Line] = [
        *(said[0], *chosen[:2], said[1], *chosen[2:4], said[2], chosen[4], said[3]),
    ]
    found = play(
        spec,
        script if order == "moderator" else said,
        ["One.", "Two."],
        orders={
            "mine": lambda log, names: ("You", "Cy", "You", "Cy", "Ann")[len(log) - 1],
        },
    )
    assert [name for name, _ in found.transcript] == ["Ann", "You", "Cy", "You", "Cy", "Ann"]
    assert found.heard == ["Ann: Line 0.", "Cy: Line 1."]


@pytest.mark.parametrize("left_at", [0, 1, 2])
def test_exit_leaves_in_each_part_of_a_group(left_at: int) -> None:
    spec = group_solve([{"name": "Ann", "task": "Eat."}, YOU | {"task": "Play."}])
    answers = ["Alone.", "Aloud."][:left_at]
    found = play(spec, lines(5), [*answers, "exit"])
    assert (found.reason, found.outcome.by, len(found.asked)) == ("quit", "You", left_at + 1)
    assert [text for name, text in found.transcript if name == "You"] == answers


# Parts of a conversation


def test_what_a_person_makes_up_alone_nobody_else_hears() -> None:
    you = YOU | {"private_opening": {"prompt": "Choose a secret number."}}
    found = play(talk(you, "Bob"), ["7?", "8?"], ["42", "Guess!", "More."])
    assert found.heard == ["Choose a secret number.", "", "7?"]
    assert not any("42" in line["content"] for prompt in found.prompts for line in prompt)
    assert [text for name, text in found.transcript if name == "You"] == ["42", "Guess!", "More."]


def test_a_person_leads_a_role_play_in_words_of_its_own() -> None:
    """People need no form, and the done token ends the conversation."""
    fields = role_play("Plan a garden", "Owner", "Gardener", specify_task=False).model_dump()
    owner, gardener = fields["speakers"]
    spec = Conversation.model_validate(
        fields | {"speakers": [owner | {"replies": ["human"]}, gardener]}
    )
    solution = "Solution: Beans it is. Next request."
    found = play(spec, [solution], ["Plant something!", "<CAMEL_TASK_DONE>"])
    assert spoken(found) == [
        "Owner: Plant something!",
        f"Gardener: {solution}",
        "Owner: <CAMEL_TASK_DONE>",
    ]
    assert (found.reason, found.outcome.by) == ("done_token", "Owner")


@each_row("last_words_are_a_persons_too")
def test_last_words_are_a_persons_too(mode: str, after: list[str]) -> None:
    ann = {"name": "Ann", "checks_completion": True}
    spec = talk(YOU, ann, "Cy", end_chat={"mode": mode, "max_iterations": 5})
    found = play(spec, ["Line 1.", DONE, "Line 2.", "Line 3."], ["Hi.", "Last."])
    assert spoken(found) == ["You: Hi.", "Ann: Line 1.", *after]
    assert found.reason == "completed"
    assert len(found.asked) == (2 if "You: Last." in after else 1)


def test_a_person_has_the_one_last_word() -> None:
    mode = "one_last_chat_after_first_completion"
    spec = talk("Ann", {"name": "Bob", "checks_completion": True}, YOU, end_chat={"mode": mode})
    found = play(spec, ["A.", "B.", DONE], ["Well done.", "Unheard."])
    assert spoken(found) == ["Ann: A.", "Bob: B.", "You: Well done."]
    assert len(found.asked) == 1


def test_a_judge_of_its_own_decides_after_a_persons_turns() -> None:
    spec = talk(
        YOU | {"checks_completion": True},
        "Bob",
        end_chat={"mode": "end_chat_after_first_completion", "max_iterations": 5},
        judge={"kind": "separate", "criteria": ["A date is named."]},
    )
    script: list[Line] = ["When?", {"criterion_1": "met"}]
    found = play(spec, script, ["Soon.", "On Monday.", "Unheard."])
    assert spoken(found) == ["You: Soon.", "Bob: When?", "You: On Monday."]
    assert (found.reason, len(found.asked)) == ("completed", 2)


# Contents of a question


@pytest.mark.part(1)
@each_row("it_shows_what_is_heard_as_the_speaker_hears_it")
def test_it_shows_what_is_heard_as_the_speaker_hears_it(more: dict[str, Any], shown: str) -> None:
    found = play(talk("Ann", YOU | more), ["A.", "B."], ["One.", "exit"])
    assert found.heard[0] == shown
    (first, _) = found.asked
    assert isinstance(first, MessageQuestion)
    assert (first.speaker, first.because, first.empty) == ("You", "turn", None)
    assert first.prompt == "You, it is your turn. Enter exit to leave."


def test_hooks_see_what_a_person_says_and_may_speak_for_it() -> None:
    """The person is asked first and hears the message; the hooks run before the log is written."""
    brackets = Hook(
        before_speaker=lambda turn: HumanMessage(f"<{turn.heard}>"),
        after_speaker=lambda turn, reply: AIMessage(f"[{reply.text}]"),
    )
    you = YOU | {"hooks": ["mine"]}
    found = play(talk("Ann", you), ["A.", "B."], ["One.", "Two."], hooks={"mine": brackets})
    assert spoken(found) == ["Ann: A.", "You: [One.]", "Ann: B.", "You: [Two.]"]
    assert found.heard == ["A.", "B."]


def test_two_people_talk_without_any_model() -> None:
    spec = talk(YOU, {"name": "Me", "replies": ["human"]})
    found = play(spec, [], ["Hi!", "Hello!", "Bye!", "Bye!"])
    assert spoken(found) == ["You: Hi!", "Me: Hello!", "You: Bye!", "Me: Bye!"]
    assert found.heard == ["", "Hi!", "Hello!", "Bye!"]
    assert found.outcome.total.calls == 0


def test_people_may_be_as_silent_and_polite_to_each_other_as_they_like() -> None:
    spec = talk(YOU, {"name": "Me", "replies": ["human"]}, end_chat={"max_iterations": 4})
    said = ["...", "…", "...", "Thanks!", "Thank you!", "Bye!", "Bye!", "Goodbye!"]
    found = play(spec, [], said)
    assert [text for _, text in found.transcript] == said
    assert found.reason == "max_iterations"


def test_a_model_or_a_function_speaks_where_the_person_says_nothing() -> None:
    you = {"name": "You", "replies": ["human", {"kind": "function", "name": "mine"}, "model"]}
    heard: list[str] = []

    def mine(turn: Any) -> str | None:  # noqa: ANN401
        heard.append(turn.heard)
        return "From a function." if len(heard) == 1 else None

    spec = talk("Ann", you, end_chat={"max_iterations": 3})
    found = play(
        spec, ["A.", "B.", "From a model.", "C."], ["", " ", "Mine."], functions={"mine": mine}
    )
    said = [text for name, text in found.transcript if name == "You"]
    assert said == ["From a function.", "From a model.", "Mine."]
    assert heard == ["A.", "B."]
    assert all(one.empty == "auto_reply" for one in found.asked if isinstance(one, MessageQuestion))
