"""R7: conversations without progress end, in any language; all others continue."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import BaseMessage

from duologue.graphs import Conversation, Result, converse
from duologue.nodes.testing import ScriptedChatModel
from support.results import outcome_of, reason_of
from support.tables import each_row


def play(script: Sequence[str], rounds: int = 30, **end_chat: Any) -> Result:
    """Let two speakers, or the speakers in `names`, repeat a script word by word."""
    names = end_chat.pop("names", ["Ann", "Bob"])
    heard = [0]

    def order(said: Sequence[BaseMessage], names: Sequence[str]) -> str:
        heard[0] = len(said)
        return names[len(said) % len(names)]

    spec = Conversation.model_validate(
        {
            "task": "Talk.",
            "speakers": [{"name": name} for name in names],
            "turn_order": {"kind": "function", "name": "in turn"},
            "end_chat": {"max_iterations": rounds, **end_chat},
        }
    )
    return converse(
        spec,
        model=ScriptedChatModel(script=lambda prompt: script[heard[0] % len(script)]),
        orders={"in turn": order},
        store=f"memory:{uuid4().hex}",
    )


def ended(result: Result) -> tuple[str, int, str]:
    (because,) = outcome_of(result).explanations
    return reason_of(result), outcome_of(result).messages, because


SENTENCES = [
    "I think that we should begin with the beans.",
    "Perhaps we should begin with the peas instead.",
    "You may well be right about that.",
    "And yet the beans would be lovely, too.",
]


def test_r7_the_number_is_of_rounds_of_sentences() -> None:
    for limit, messages in ((1, 6), (2, 8), (3, 10)):
        found = play(SENTENCES, guards={"standstill": limit, "same_replies": 0})
        words = f"no speaker said anything new for {limit} round"
        assert ended(found)[:2] == ("standstill", messages)
        assert ended(found)[2].startswith(words)


def test_r7_three_rounds_of_short_lines_are_like_one_of_sentences() -> None:
    for limit, messages in ((1, 8), (2, 14)):
        found = play(["OK.", "OK."], guards={"standstill": limit})
        assert ended(found) == (
            "standstill",
            messages,
            f"no speaker said anything new for {3 * limit} rounds",
        )


def test_r7_a_cycle_within_the_default_five_rounds_is_ended() -> None:
    assert ended(play(SENTENCES, rounds=5))[:2] == ("standstill", 8)


def test_r7_three_have_rounds_of_three() -> None:
    assert ended(play(["Agreed."], names=["Ann", "Bob", "Cid"]))[:2] == ("standstill", 21)


def test_r7_one_sentence_may_be_said_eleven_times_beside_other_numbers() -> None:
    script = [
        line
        for number in range(30)
        for line in (f"Error {number} came up.", "I am sorry, I will look into it.")
    ]
    assert ended(play(script)) == ("standstill", 24, "Bob said the same sentence 12 times")


def test_r7_a_sentence_may_come_again_for_ever_beside_other_words() -> None:
    colours = [
        "red",
        "blue",
        "green",
        "black",
        "white",
        "brown",
        "grey",
        "pink",
        "lilac",
        "amber",
        "teal",
        "beige",
        "ruby",
        "jade",
    ]
    script = [line for one in colours for line in (f"It is {one}.", "What colour is the next one?")]
    for guards in ({}, {"same_replies": 0}):
        assert ended(play(script, rounds=14, guards=guards))[0] == "max_iterations"


def test_r7_rounds_with_a_short_line_count_as_short() -> None:
    script = ["I offer you three of the boxes.", "Refused."]
    found = play(script, guards={"same_replies": 0})
    assert ended(found) == ("standstill", 14, "no speaker said anything new for 6 rounds")


def test_r7_same_replies_counts_from_the_last_message_that_was_new() -> None:
    script = ["I offer you three of the boxes.", "Refused."]
    assert ended(play(script)) == ("same_replies", 7, "Ann gave the same reply 3 times")


@pytest.mark.parametrize("guards", [{"standstill": 0}, {"standstill": 3}])
def test_r7_it_may_be_set_or_switched_off(guards: dict[str, int]) -> None:
    assert ended(play(["OK.", "OK."], rounds=9, guards=guards))[0] == "max_iterations"


def test_r7_it_waits_for_the_least_number_of_rounds() -> None:
    assert ended(play(["OK.", "OK."], min_iterations=9))[:2] == ("standstill", 18)


def test_r7_what_led_there_is_told() -> None:
    found = play(["OK.", "OK."]).why()
    assert [cause.text for cause in found][-3:] == [
        "Ann: nothing new (1 of 2)",
        "Bob: nothing new (2 of 2)",
        "no speaker said anything new for 6 rounds",
    ]


def test_r7_a_person_is_in_no_standstill() -> None:
    spec = Conversation.model_validate(
        {
            "speakers": [{"name": "You", "replies": ["human"]}, {"name": "Agent"}],
            "end_chat": {"max_iterations": 20},
        }
    )
    model = ScriptedChatModel(script=["Fine."] * 50)
    found = converse(spec, model=model, store="memory:", answer=lambda question: "Fine.")
    assert ended(found)[0] == "max_iterations"


@pytest.mark.parametrize("standstill", [0, 2])
def test_r7_a_question_keeps_farewells_from_ending_it_where_a_standstill_would(
    standstill: int,
) -> None:
    names = ["Ann", "Ben", "Cy", "Dee", "Eve", "Flo"]
    script = [
        "Ben, when do you come?",
        "Good question.",
        "When will you, Ben?",
        "Bye!",
        "Goodbye!",
        "Take care!",
        "Thank you!",
        "On Friday at noon, I promise.",
    ]
    found = play(script, rounds=2, names=names, guards={"standstill": standstill})
    assert ended(found)[0] == ("max_iterations" if standstill else "farewells")


@each_row("questions")
def test_r7_what_is_asked_without_a_question_mark_is_open(text: str, *, is_question: bool) -> None:
    """R7: questions without "?" count, such as those with particles, or a Greek question mark."""
    script = [text, *["Thank you!", "Goodbye!"] * 9]
    reason, messages, _ = ended(play(script, rounds=9))
    assert (reason, messages) == ("farewells", 6 if is_question else 5)
