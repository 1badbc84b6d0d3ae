"""Approval before tools run, as data: the rules, the question, and valid answers.

The shapes are those of LangChain's human in the loop (langchain 1.x, batched).
"""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages.tool import ToolCall
from langchain_core.tools import BaseTool, tool
from pydantic import ValidationError

from duologue.graphs import InterruptOn, SpecError, load_conversation
from duologue.graphs.conversation.conversation import restore_conversation
from duologue.graphs.rules.questions import build_approval, find_misfit, find_misshapen
from duologue.graphs.speakers.call_settings import DECISIONS, Approval, Decisions
from duologue.graphs.speakers.speaker import Speaker
from duologue.tools.registry.functions import parameters_of


@tool
def send_mail(to: str, text: str = "") -> str:
    """Send a mail."""
    return f"Sent to {to}: {text}"


@tool
def read_mail(number: int) -> str:
    """Read a mail."""
    return f"Mail {number}"


TOOLS: dict[str, BaseTool] = {"send_mail": send_mail, "read_mail": read_mail}


def speaker(**fields: Any) -> Speaker:
    return Speaker.model_validate({"name": "Ann", "tools": list(TOOLS)} | fields)


def made(name: str, call_id: str, **args: Any) -> ToolCall:
    return ToolCall(name=name, args=args, id=call_id)


# The field


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
    assert restore_conversation(json.loads(json.dumps(found.stored()))) == found
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


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        pytest.param(
            {"send_mial": True},
            "speakers.0.interrupt_on: 'send_mial' is not one of the speaker's tools; did you mean "
            "'send_mail', 'read_mail'?",
            id="near",
        ),
        pytest.param(
            {"dig": True},
            "speakers.0.interrupt_on: 'dig' is not one of the speaker's tools; add it to its "
            "tools, or remove it here",
            id="far",
        ),
        pytest.param({"send_mail": {"allowed_decisions": []}}, "needs at least 1", id="none"),
        pytest.param({"send_mail": "yes"}, "must be true, false, or a table", id="word"),
        pytest.param(
            {"send_mail": {"allowed_decisions": ["approve", "approve"]}},
            "'approve' occurs twice; remove one",
            id="twice",
        ),
        pytest.param(
            {"send_mail": {"allowed_decisions": ["aprove"]}},
            "should be 'approve', 'edit'",
            id="typo",
        ),
        pytest.param({"send_mail": {"descripton": "x"}}, "there is no such field", id="field"),
        pytest.param({"send_mail": {"description": " "}}, "must not be empty", id="blank"),
    ],
)
def test_a_rule_that_can_not_be_is_one_clear_error(rules: Any, says: str) -> None:  # noqa: ANN401
    with pytest.raises(SpecError) as caught:
        load_conversation(conversation(interrupt_on=rules))
    assert says in str(caught.value)
    assert "speakers.0.interrupt_on" in str(caught.value)
    assert "\n" not in str(caught.value)


# The question


def test_the_question_has_langchains_shape() -> None:
    rules = {"send_mail": True, "read_mail": RULES["send_mail"]}
    calls = [made("send_mail", "c1", to="Bob"), made("read_mail", "c2", number=3)]
    found = build_approval(
        speaker(interrupt_on=rules), calls, lambda name: parameters_of(TOOLS[name])
    )
    assert found is not None
    assert found.payload() == {
        "action_requests": [
            {
                "name": "send_mail",
                "args": {"to": "Bob"},
                "description": 'Ann wants to call send_mail with {"to": "Bob"}.',
            },
            {"name": "read_mail", "args": {"number": 3}, "description": "Really?"},
        ],
        "review_configs": [
            {
                "action_name": "send_mail",
                "allowed_decisions": ["approve", "edit", "reject", "respond"],
                "args_schema": {
                    "type": "object",
                    "properties": {
                        "to": {"type": "string"},
                        "text": {"type": "string", "default": ""},
                    },
                    "required": ["to"],
                },
            },
            {"action_name": "read_mail", "allowed_decisions": ["approve", "reject"]},
        ],
    }


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        pytest.param({}, [], id="no-rule"),
        pytest.param({"interrupt_on": {"send_mail": False}}, [], id="false"),
        pytest.param({"interrupt_on": {"send_mail": True}}, ["c1", "c3"], id="one-tool"),
        pytest.param(
            {"interrupt_on": {"read_mail": {}, "send_mail": True}}, ["c1", "c2", "c3"], id="all"
        ),
        pytest.param(
            {"interrupt_on": {"send_mail": True}, "tool_choice": "none"}, [], id="nothing-would-run"
        ),
    ],
)
def test_who_is_asked_about_is_in_the_order_of_the_calls(
    fields: dict[str, Any], asked: list[str]
) -> None:
    calls = [
        made("send_mail", "c1", to="c1"),
        made("read_mail", "c2", to="c2"),
        made("send_mail", "c3", to="c3"),
        made("dig", "c4", to="c4"),
    ]
    found = build_approval(speaker(**fields), calls, lambda name: parameters_of(TOOLS[name]))
    requests = () if found is None else found.action_requests
    assert [one.args["to"] for one in requests] == asked
    assert (found is None) is (asked == [])


# The answer


def question(*allowed: list[str]) -> Approval:
    names = ["send_mail", "read_mail"][: len(allowed)]
    return Approval.model_validate(
        {
            "action_requests": [
                {"name": name, "args": {}, "description": "Well?"} for name in names
            ],
            "review_configs": [
                {"action_name": name, "allowed_decisions": one}
                for name, one in zip(names, allowed, strict=True)
            ],
        }
    )


def edit(name: str) -> dict[str, Any]:
    return {"type": "edit", "edited_action": {"name": name, "args": {}}}


FITTING: list[list[dict[str, Any]]] = [
    [{"type": "approve"}],
    [edit("send_mail")],
    [edit("read_mail")],
    [{"type": "reject"}],
    [{"type": "reject", "message": "No."}],
    [{"type": "reject", "message": None}],
    [{"type": "respond", "message": "Sent it myself."}],
]


@pytest.mark.parametrize("decisions", FITTING)
def test_what_langchains_interfaces_send_fits(decisions: list[dict[str, Any]]) -> None:
    answer = Decisions.model_validate({"decisions": decisions})
    assert find_misfit(question([*DECISIONS]), answer, list(TOOLS)) is None


@pytest.mark.parametrize("allowed", DECISIONS)
@pytest.mark.parametrize("decisions", FITTING)
def test_only_what_is_allowed_fits(decisions: list[dict[str, Any]], allowed: str) -> None:
    wrong = find_misfit(
        question([allowed]), Decisions.model_validate({"decisions": decisions}), [*TOOLS]
    )
    kind = decisions[0]["type"]
    assert wrong == (
        None
        if kind == allowed
        else f"decisions.0.type: {kind!r} is not allowed for 'send_mail'; allowed are {allowed!r}"
    )


@pytest.mark.parametrize(
    ("decisions", "says"),
    [
        ([], "0 decisions for 2 waiting calls; return one decision for each call, in the order"),
        ([{"type": "approve"}], "1 decision for 2 waiting calls"),
        ([{"type": "approve"}] * 3, "3 decisions for 2 waiting calls"),
        (
            [{"type": "approve"}, {"type": "reject"}],
            "decisions.1.type: 'reject' is not allowed for 'read_mail'; allowed are 'approve', "
            "'edit'",
        ),
        (
            [{"type": "approve"}, edit("send_mial")],
            "decisions.1.edited_action.name: 'send_mial' is not one of the speaker's tools; did "
            "you mean 'send_mail'",
        ),
        (
            [edit("dig"), {"type": "approve"}],
            "decisions.0.edited_action.name: 'dig' is not one of the speaker's tools; choose one "
            "of 'send_mail', 'read_mail'",
        ),
    ],
)
def test_an_answer_to_another_question_says_what_is_wrong(
    decisions: list[dict[str, Any]], says: str
) -> None:
    asked = question([*DECISIONS], ["approve", "edit"])
    wrong = find_misfit(asked, Decisions.model_validate({"decisions": decisions}), [*TOOLS])
    assert wrong is not None
    assert says in wrong


MISSHAPEN: list[Any] = [
    ("yes", 'it must be {"decisions": [...]}, with a decision for each call'),
    ([{"type": "approve"}], 'it must be {"decisions": [...]}, with a decision for each call'),
    ({"decision": []}, "decision: there is no such field"),
    ({"decisions": None}, "decisions: input should be a list"),
    ({"decisions": ["approve"]}, "decisions.0: input should be"),
    ({"decisions": [{}]}, "decisions.0.type: is missing; choose one of 'approve', 'edit'"),
    (
        {"decisions": [{"type": "accept"}]},
        "decisions.0.type: 'accept' is not a decision; choose one of 'approve', 'edit', 'reject', "
        "'respond'",
    ),
    ({"decisions": [{"type": "edit"}]}, "decisions.0.edited_action: is missing"),
    (
        {"decisions": [{"type": "edit", "edited_action": {"name": "x", "arguments": {}}}]},
        "decisions.0.edited_action.arguments: there is no such field",
    ),
    (
        {"decisions": [{"type": "edit", "edited_action": {"name": "x", "args": [1]}}]},
        "decisions.0.edited_action.args: input should be a valid dictionary",
    ),
    ({"decisions": [{"type": "respond"}]}, "decisions.0.message: is missing"),
    ({"decisions": [{"type": "reject", "message": 3}]}, "decisions.0.message: input should be"),
    ({"decisions": [{"type": "reject", "mesage": "x"}]}, "decisions.0.mesage: there is no such"),
]


@pytest.mark.parametrize(("answer", "says"), MISSHAPEN)
def test_an_answer_of_another_shape_says_which_field_is_wrong(answer: object, says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Decisions.model_validate(answer)
    assert find_misshapen(caught.value).startswith(says)
