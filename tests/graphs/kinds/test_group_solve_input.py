"""Errors of a group conversation, when it is built and before any model is called."""

import json
from collections.abc import Callable, Mapping
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
from duologue.graphs.common import errors
from duologue.nodes.testing import ScriptedChatModel

TWO: list[dict[str, Any]] = [
    {"name": "Ann", "task": "Keep a number.", "checks_completion": True},
    {"name": "Bob", "task": "Guess it."},
]
NO_STOPPER = [{**speaker, "checks_completion": False} for speaker in TWO]
TASKLESS = [TWO[0], {"name": "Bob"}]
PRICE = {"input": 1, "output": 2}
FOR_TWO = {"kind": "max_messages", "limit": 5}

MODES = [
    "end_chat_after_first_completion",
    "one_last_chat_after_first_completion",
    "one_last_group_chat_after_first_completion",
    "all_task_must_complete",
]

# A rule on the parts of a conversation, fields that violate it, and the error message.
BAD: list[Any] = [
    *(
        pytest.param(
            {"speakers": NO_STOPPER, "end_chat": {"mode": mode}},
            f"end_chat.mode: {mode} needs a speaker with checks_completion = true",
            id=f"Y1-no-stopper-{mode}",
        )
        for mode in MODES
    ),
    pytest.param(
        {"shift_owner": "Cy"},
        "shift_owner: no speaker is called 'Cy'; choose one of 'Ann', 'Bob'",
        id="Y1-no-such-owner",
    ),
    pytest.param(
        {"shift_owner": "ann"},
        "shift_owner: no speaker is called 'ann'",
        id="Y1-owner-in-other-case",
    ),
    pytest.param({"speakers": TWO[:1]}, "speakers: needs at least 2", id="Y1-one-speaker"),
    pytest.param({"speakers": []}, "speakers: needs at least 2", id="Y1-nobody"),
    pytest.param(
        {"speakers": TASKLESS},
        "speakers.1.task: is missing; set a task for 'Bob'",
        id="Y1-no-task",
    ),
    pytest.param(
        {"speakers": TASKLESS, "task": "Play."},
        "speakers.1.task: is missing; set a task for 'Bob'",
        id="Y1-no-task-beside-the-task-of-all",
    ),
    pytest.param(
        {"speakers": [TWO[0], {**TWO[1], "task": " "}]},
        "speakers.1.task: must not be empty",
        id="Y1-blank-task",
    ),
    pytest.param(
        {"speakers": [TWO[0], {**TWO[1], "name": "ANN"}]},
        "speakers: two speakers are called 'ANN'",
        id="Y1-same-name",
    ),
    pytest.param({"shift_content": " "}, "shift_content: must not be empty", id="Y7-blank-shift"),
    pytest.param(
        {"end_chat": {"max_iterations": 0}},
        "end_chat.max_iterations: input should be greater than 0, not 0",
        id="Y2-cap-zero",
    ),
    pytest.param(
        {"end_chat": {"max_iterations": -1}},
        "end_chat.max_iterations: input should be greater than 0, not -1",
        id="Y2-cap-below-zero",
    ),
    pytest.param(
        {"model": "tiny", "prices": {"huge": PRICE}},
        "prices: the model 'tiny' has no price",
        id="price-of-another-model",
    ),
    pytest.param(
        {"speakers": [TWO[0], {**TWO[1], "model": "tiny"}], "prices": {"huge": PRICE}},
        "prices: the model 'tiny' has no price",
        id="price-of-another-speakers-model",
    ),
    pytest.param(
        {
            "model": "huge",
            "prices": {"huge": PRICE},
            "judge": {"kind": "separate", "criteria": ["Guessed."], "model": "tiny"},
        },
        "prices: the model 'tiny' has no price",
        id="price-of-the-judges-model",
    ),
    pytest.param(
        {
            "end_chat": {"when": {"kind": "max_cost", "limit": 1.0}},
            "model": "tiny",
            "prices": {"tiny": {"input": 0, "output": 0}},
        },
        "end_chat.when: is never reached, as all prices are 0; remove it or set prices",
        id="money-without-charges",
    ),
    pytest.param(
        {
            "end_chat": {
                "max_iterations": 1,
                "when": {"kind": "all", "of": [{"kind": "predicate", "name": "won"}, FOR_TWO]},
            }
        },
        "end_chat.when.of.1.limit: can never be met, as this conversation has at most 4",
        id="and-behind-the-cap",
    ),
    pytest.param(
        {
            "end_chat": {
                "when": [
                    {"kind": "max_messages", "limit": 4},
                    {"kind": "all", "of": [FOR_TWO, {"kind": "done_token", "token": "OK"}]},
                ]
            }
        },
        "end_chat.when.of.1.of.0.limit: can never be met, as this conversation has at most 4",
        id="and-behind-another-cap-on-messages",
    ),
    pytest.param(
        {"reconcile_first_mesage": True},
        "reconcile_first_mesage: there is no such field; did you mean 'reconcile_first_message'?",
        id="mistyped",
    ),
]


def by_function(fields: dict[str, Any]) -> Conversation:
    return group_solve(**fields)


def by_dict(fields: dict[str, Any]) -> Conversation:
    return load_conversation({"kind": "group_solve", **fields})


def by_toml(fields: dict[str, Any]) -> Conversation:
    Path("game.toml").write_text(tomli_w.dumps({"kind": "group_solve", **fields}))
    return load_conversation("game.toml")


def by_json(fields: dict[str, Any]) -> Conversation:
    Path("game.json").write_text(json.dumps({"kind": "group_solve", **fields}))
    return load_conversation("game.json")


WAYS: Mapping[str, Callable[[dict[str, Any]], Conversation]] = {
    "python": by_function,
    "dict": by_dict,
    "toml": by_toml,
    "json": by_json,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("fields", "sentence"), BAD)
def test_it_is_refused_with_the_field(fields: dict[str, Any], sentence: str, way: str) -> None:
    with pytest.raises(SpecError) as caught:
        WAYS[way]({"speakers": TWO, **fields})
    found = str(caught.value).removeprefix(f"game.{way}: ")
    assert found.startswith(sentence)
    assert "\n" not in found


@pytest.mark.parametrize(("fields", "sentence"), BAD)
def test_no_model_is_called_for_it(fields: dict[str, Any], sentence: str) -> None:
    model = ScriptedChatModel(script=[])
    Path("game.toml").write_text(tomli_w.dumps({"kind": "group_solve", "speakers": TWO, **fields}))
    for source in ("game.toml", {"kind": "group_solve", "speakers": TWO, **fields}):
        with pytest.raises(SpecError) as caught:
            converse(source, model=model, store="memory:")
        assert sentence in str(caught.value)
    assert model.calls == []


@pytest.mark.parametrize("way", ["python", "dict", "json"])
def test_a_cap_of_none_needs_a_person(way: str) -> None:
    """Y2: only a conversation with a person may have no cap; TOML has no null for it."""
    with pytest.raises(
        SpecError, match=r"^(game.json: )?end_chat\.max_iterations: can be null only"
    ):
        WAYS[way]({"speakers": TWO, "end_chat": {"max_iterations": None}})


def test_a_price_table_without_the_default_model_is_refused_before_it_is_asked() -> None:
    """A price for the default model, known only at the run, is required before its first call."""
    model = ScriptedChatModel(script=[])
    conversation = group_solve(TWO, prices={"huge": PRICE})
    with pytest.raises(SpecError, match="prices: the model 'ScriptedChatModel' has no price"):
        converse(conversation, model=model, store="memory:")
    assert model.calls == []


# The same rules apply to a full conversation without the short form.

FULL: list[Any] = [
    pytest.param({"speakers": NO_STOPPER, "end_chat": {"mode": MODES[0]}}, "end_chat.mode: "),
    pytest.param({"opening": {"first_speaker": "Cy"}}, "opening.first_speaker: "),
    pytest.param({"speakers": TWO[:1]}, "speakers: needs at least 2"),
    pytest.param({"speakers": TASKLESS}, "task: is missing, and 'Bob' has no task either"),
    pytest.param(
        {"speakers": TASKLESS, "task": "Play.", "opening": {"answers": True}},
        "opening.answers: 'Bob' has no task to answer; set its task",
    ),
    pytest.param(
        {"opening": {"reconcile": True}},
        "opening.reconcile: needs opening.answers = true; set that, too",
    ),
    pytest.param({"model": "tiny", "prices": {"huge": PRICE}}, "prices: "),
    pytest.param({"end_chat": {"max_iterations": 0}}, "end_chat.max_iterations: "),
]


@pytest.mark.parametrize(
    ("fields", "sentence"), FULL, ids=[f"Y1-{param.values[1].split(':')[0]}" for param in FULL]
)
def test_a_whole_conversation_is_held_to_the_same(fields: dict[str, Any], sentence: str) -> None:
    whole = {"speakers": TWO, **fields}
    with pytest.raises(SpecError) as caught:
        errors.validate(Conversation, whole)
    assert str(caught.value).startswith(sentence)
    with pytest.raises(SpecError) as caught:
        load_conversation(whole)
    assert str(caught.value).startswith(sentence)
    Path("whole.toml").write_text(tomli_w.dumps(whole))
    with pytest.raises(SpecError) as caught:
        load_conversation("whole.toml")
    assert str(caught.value).startswith(f"whole.toml: {sentence}")


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
    possible = {"kind": "all", "of": [{"kind": "predicate", "name": "won"}, FOR_TWO]}
    assert group_solve(TWO, end_chat={"max_iterations": 2, "when": possible})
    assert group_solve(NO_STOPPER, end_chat={"mode": "max_iterations_only"})
    assert group_solve(TWO, shift_owner="Bob").order == ("Bob", "Ann")
    assert group_solve(TWO, model="huge", prices={"huge": PRICE})
