"""R7: conversations without progress end, in any language; all others continue."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from langchain_core.messages import BaseMessage

from duologue.graphs import Conversation, Result, converse
from duologue.nodes.testing import ScriptedChatModel
from support.results import outcome_of, reason_of
from support.tables import each_row


def play(
    script: Sequence[str], rounds: int = 30, names: Sequence[str] = ("Ann", "Bob"), **end_chat: Any
) -> Result:
    """Let speakers repeat a script word by word."""
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


@each_row("standstills")
def test_r7_what_nothing_new_ends_and_when(
    script: list[str],
    names: list[str] | None,
    end_chat: dict[str, Any],
    reason: str,
    messages: int | None,
    because: str | None,
) -> None:
    found = ended(play(script, names=names or ["Ann", "Bob"], **end_chat))
    assert (found[0], messages or found[1]) == (reason, found[1])
    assert found[2].startswith(because or "")


def test_r7_one_sentence_may_be_said_eleven_times_beside_other_numbers() -> None:
    script = [
        line
        for number in range(30)
        for line in (f"Error {number} came up.", "I am sorry, I will look into it.")
    ]
    assert ended(play(script)) == ("standstill", 24, "Bob said the same sentence 12 times")


def test_r7_a_sentence_may_come_again_for_ever_beside_other_words() -> None:
    words = "red blue green black white brown grey pink lilac amber teal beige ruby jade"
    script = [
        line for one in words.split() for line in (f"It is {one}.", "What colour is the next one?")
    ]
    for guards in ({}, {"same_replies": 0}):
        assert ended(play(script, rounds=14, guards=guards))[0] == "max_iterations"


def test_r7_what_led_there_is_told() -> None:
    found = play(["OK.", "OK."]).why()
    assert [cause.text for cause in found][-3:] == [
        "Ann: nothing new (1 of 2)",
        "Bob: nothing new (2 of 2)",
        "no speaker said anything new for 6 rounds",
    ]


def test_r7_a_person_is_in_no_standstill() -> None:
    spec: dict[str, Any] = {
        "speakers": [{"name": "You", "replies": ["human"]}, {"name": "Agent"}],
        "end_chat": {"max_iterations": 20},
    }
    model = ScriptedChatModel(script=["Fine."] * 50)
    found = converse(spec, model=model, store="memory:", answer=lambda question: "Fine.")
    assert ended(found)[0] == "max_iterations"


@each_row("questions")
def test_r7_what_is_asked_without_a_question_mark_is_open(text: str, *, is_question: bool) -> None:
    """R7: questions without "?" count, such as those with particles, or a Greek question mark."""
    script = [text, *["Thank you!", "Goodbye!"] * 9]
    reason, messages, _ = ended(play(script, rounds=9))
    assert (reason, messages) == ("farewells", 6 if is_question else 5)
