"""A speaker that repeats another's last message (R16): a second request, then a count."""

from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel

from duologue.graphs import Conversation, Result, converse, load_conversation, role_play
from duologue.nodes.testing import Line, ScriptedChatModel
from support.log import Flaw, fields_of, kind_of
from support.shape_help import play as play_script
from support.tables import each_row

PLAN = "Let us plant beans beside the wall."


def talk(*names: str, **fields: Any) -> Conversation:
    speakers = [{"name": name} for name in names or ("Ann", "Bob")]
    return load_conversation({"task": "Plan a garden.", "speakers": speakers} | fields)


def play(conversation: Conversation, *script: Line, rounds: int = 1) -> Result:
    """Run a conversation for so many rounds, on a script that must be used up."""
    end_chat = conversation.end_chat.model_copy(update={"max_iterations": rounds})
    conversation = conversation.model_copy(update={"end_chat": end_chat})
    return play_script(conversation, script)[0]


def flaws(result: Result) -> list[Flaw | None]:
    return [fields_of(one).flaw for one in result.messages if kind_of(one) == "speech"]


@each_row("no_echoes")
def test_r16_short_answers_moves_and_quotations_are_no_echo(before: str, text: str) -> None:
    assert flaws(play(talk(), before, text)) == [None, None]


@each_row("r16_who_was_asked_to_repeat_may_do_so", "asked", "fields")
def test_r16_who_was_asked_to_repeat_may_do_so(asked: str, fields: dict[str, Any]) -> None:
    vow = "I take you, Ann, to be my wife."
    result = play(talk(**fields), asked, "Gladly.", vow, vow, rounds=2)
    assert flaws(result) == [None] * 4


def test_r16_the_marks_of_a_format_hide_no_echo() -> None:
    order = "Write a function that adds two numbers."
    spec = role_play("Add up", "Lead", "Coder", specify_task=False)
    solution = f"Solution: {order}\nNext request."
    result = play(spec, f"Instruction: {order}\nInput: None", solution, "def add(a, b): ...")
    assert flaws(result) == [None, None]
    assert result.last_message("Coder") == "Solution: def add(a, b): ...\nNext request."


class Vote(BaseModel):
    """A ballot."""

    vote: str
    abstain: bool
    why: str


@pytest.mark.parametrize("form", ["structured", "text"])
@pytest.mark.parametrize(
    ("why", "is_echo"), [("cheap", False), ("because it costs us much less", True)]
)
def test_r16_of_json_its_values_count(form: str, why: str, *, is_echo: bool) -> None:
    """The names of the fields do not count, and the same vote is no echo."""
    ballot = {"vote": "yes", "abstain": False, "why": why}
    format = {"kind": "schema", "name": "Vote", "form": form}  # noqa: A001
    people = [{"name": "Ann", "format": format}, {"name": "Bob", "format": format}]
    spec = {"task": "Vote.", "speakers": people, "end_chat": {"max_iterations": 1}}
    script: list[Line] = [ballot, ballot, *[ballot] * is_echo]
    model = ScriptedChatModel(script=script)
    result = converse(spec, model=model, store=f"memory:{uuid4().hex}", schemas={"Vote": Vote})
    assert len(model.calls) == len(script)
    assert result.parsed("Bob") == [ballot]


def test_r16_what_people_and_functions_say_is_no_echo() -> None:
    for replies in ("human", {"kind": "function", "name": "parrot"}):
        ann, bob = {"name": "Ann"}, {"name": "Bob", "replies": [replies]}
        spec = talk(speakers=[ann, bob], end_chat={"max_iterations": 1})
        result = converse(
            spec,
            model=ScriptedChatModel(script=[PLAN]),
            functions={"parrot": lambda turn: turn.heard},
            answer=lambda question: PLAN,
            store=f"memory:{uuid4().hex}",
        )
        assert flaws(result) == [None, None]


@each_row("requests")
def test_r16_who_asks_for_a_repetition(text: str, asks: bool) -> None:
    script: list[Line] = [text, "Gladly.", PLAN, *[PLAN] * (1 if asks else 2)]
    echo = None if asks else Flaw.ECHO
    assert flaws(play(talk(), *script, rounds=2)) == [None, None, None, echo]


@each_row("echoes", "before", "text", "is_echo")
def test_r16_an_echo_is_the_same_words_and_numbers(before: str, text: str, is_echo: bool) -> None:
    result = play(talk(), before, text, *[text] * is_echo)
    assert flaws(result) == [None, Flaw.ECHO if is_echo else None]
