"""Approval before tools run, as data: the rules in Python, JSON and TOML, and their errors."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import InterruptOn, SpecError, load_conversation
from support.tables import each_row


def conversation(**ann: Any) -> dict[str, Any]:
    given = {"name": "Ann", "tools": ["send_mail", "read_mail"]} | ann
    return {"task": "Write", "speakers": [given, {"name": "Bob"}]}


RULES: dict[str, Any] = {
    "send_mail": {"allowed_decisions": ["approve", "reject"], "description": "Really?"},
    "read_mail": False,
}


def test_a_conversation_with_rules_round_trips_as_json_toml_and_as_it_is_stored(
    tmp_path: Path,
) -> None:
    found = load_conversation(conversation(interrupt_on=RULES))
    assert found.speakers[0].interrupt_on == {
        "send_mail": InterruptOn(allowed_decisions=("approve", "reject"), description="Really?"),
        "read_mail": False,
    }
    assert load_conversation(json.loads(json.dumps(found.stored()))) == found
    toml = tmp_path / "talk.toml"
    toml.write_text(found.to_toml())
    assert load_conversation(toml) == found
    assert load_conversation(json.loads(found.model_dump_json())) == found


def test_rules_are_written_in_toml_as_one_would() -> None:
    text = """
        task = "Write"
        [[speakers]]
        name = "Ann"
        tools = ["send_mail", "read_mail"]
        [speakers.interrupt_on]
        send_mail = true
        read_mail = { allowed_decisions = ["approve", "respond"] }
        [[speakers]]
        name = "Bob"
    """
    rules = load_conversation(tomllib.loads(text)).speakers[0].interrupt_on
    assert rules == {
        "send_mail": True,
        "read_mail": InterruptOn(allowed_decisions=("approve", "respond")),
    }


@each_row("a_rule_that_can_not_be_is_one_clear_error", "rules", "says")
def test_a_rule_that_can_not_be_is_one_clear_error(rules: Any, says: str) -> None:  # noqa: ANN401
    with pytest.raises(SpecError) as caught:
        load_conversation(conversation(interrupt_on=rules))
    assert says in str(caught.value)
    assert "speakers.0.interrupt_on" in str(caught.value)
    assert "\n" not in str(caught.value)
