"""Errors of a group conversation, when it is built and before any model is called."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from duologue.graphs import (
    Conversation,
    DoneToken,
    MaxMessages,
    Predicate,
    SpecError,
    converse,
    group_solve,
    load_conversation,
)
from duologue.graphs.common import validation
from duologue.nodes.testing import ScriptedChatModel
from support.tables import check_rows, read_rows

TWO: list[dict[str, Any]] = [
    {"name": "Ann", "task": "Keep a number.", "checks_completion": True},
    {"name": "Bob", "task": "Guess it."},
]
NO_STOPPER = [{**speaker, "checks_completion": False} for speaker in TWO]
PRICE = {"input": 1, "output": 2}


WAYS = ("python", "dict", "toml", "json")


def build(way: str, fields: dict[str, Any]) -> Conversation:
    """Return a group conversation by the function, a dict or a file."""
    if way == "python":
        return group_solve(**fields)
    whole = {"kind": "group_solve", **fields}
    if way == "dict":
        return load_conversation(whole)
    path = Path(f"game.{way}")
    path.write_text(tomli_w.dumps(whole) if way == "toml" else json.dumps(whole))
    return load_conversation(path)


@pytest.mark.parametrize("way", WAYS)
def test_it_is_refused_with_the_field(way: str) -> None:
    def check(fields: dict[str, Any], sentence: str) -> None:
        with pytest.raises(SpecError) as caught:
            build(way, {"speakers": TWO, **fields})
        found = str(caught.value).removeprefix(f"game.{way}: ")
        assert found.startswith(sentence)
        assert "\n" not in found

    check_rows(read_rows(__file__, "group_solve_errors"), check)


def test_no_model_is_called_for_it() -> None:
    model = ScriptedChatModel(script=[])
    wrong = {"kind": "group_solve", "speakers": TWO, "shift_owner": "Cy"}
    Path("game.toml").write_text(tomli_w.dumps(wrong))
    for source in ("game.toml", wrong):
        with pytest.raises(SpecError, match="shift_owner: no speaker is called 'Cy'"):
            converse(source, model=model, store="memory:")
    assert model.calls == []


@pytest.mark.parametrize("way", ["python", "dict", "json"])
def test_a_cap_of_none_needs_a_person(way: str) -> None:
    """Y2: only a conversation with a person may have no cap; TOML has no null for it."""
    with pytest.raises(
        SpecError, match=r"^(game.json: )?end_chat\.max_iterations: can be null only"
    ):
        build(way, {"speakers": TWO, "end_chat": {"max_iterations": None}})


def test_a_price_table_without_the_default_model_is_refused_before_it_is_asked() -> None:
    """A price for the default model, known only at the run, is required before its first call."""
    model = ScriptedChatModel(script=[])
    conversation = group_solve(TWO, prices={"huge": PRICE})
    with pytest.raises(SpecError, match="prices: the model 'ScriptedChatModel' has no price"):
        converse(conversation, model=model, store="memory:")
    assert model.calls == []


# The same rules apply to a full conversation without the short form.


def test_a_whole_conversation_is_held_to_the_same() -> None:
    def check(fields: dict[str, Any], sentence: str) -> None:
        whole = {"speakers": TWO, **fields}
        Path("whole.toml").write_text(tomli_w.dumps(whole))
        with pytest.raises(SpecError) as made:
            validation.validate(Conversation, whole)
        with pytest.raises(SpecError) as read:
            load_conversation(whole)
        with pytest.raises(SpecError) as in_file:
            load_conversation("whole.toml")
        assert str(made.value).startswith(sentence)
        assert str(read.value).startswith(sentence)
        assert str(in_file.value).startswith(f"whole.toml: {sentence}")

    check_rows(read_rows(__file__, "whole_group_errors"), check)


def test_the_objects_are_held_to_the_same() -> None:
    """Ends written with operators follow the same rules."""
    won = Predicate(name="won") & MaxMessages(limit=50)
    with pytest.raises(SpecError, match=r"end_chat\.when\.of\.1\.limit: can never be met"):
        group_solve(TWO, end_chat={"when": won})
    with pytest.raises(SpecError, match=r"end_chat\.when\.of\.1\.of\.2\.limit: can never be met"):
        group_solve(TWO, end_chat={"when": Predicate(name="lost") | DoneToken(token="OK") & won})  # noqa: S106
    assert group_solve(TWO, end_chat={"when": won | MaxMessages(limit=50), "max_iterations": 24})


def test_what_is_just_possible_is_taken() -> None:
    """Each rule accepts its limit value."""
    two_rounds = {"kind": "max_messages", "limit": 5}
    possible = {"kind": "all", "of": [{"kind": "predicate", "name": "won"}, two_rounds]}
    assert group_solve(TWO, end_chat={"max_iterations": 2, "when": possible})
    assert group_solve(NO_STOPPER, end_chat={"mode": "max_iterations_only"})
    assert group_solve(TWO, shift_owner="Bob").order == ("Bob", "Ann")
    assert group_solve(TWO, model="huge", prices={"huge": PRICE})
