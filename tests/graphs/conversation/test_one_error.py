"""An error in a spec is one sentence, a `SpecError`, however the spec is created."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

import duologue
from duologue.graphs import (
    Conversation,
    EndChat,
    EndChatMode,
    Sandbox,
    Session,
    Speaker,
    SpecError,
    StopRequested,
    coder,
    group_solve,
    load_conversation,
    role_play,
    user_proxy,
)
from support.shape_help import play
from support.spec_help import minimal
from support.tables import each_row, read_rows

PAIR = (Speaker(name="Ann", task="a", checks_completion=True), Speaker(name="Bob", task="b"))
FIRST = EndChatMode.END_CHAT_AFTER_FIRST_COMPLETION

MISTAKES: list[tuple[str, dict[str, Any], str]] = read_rows(__file__, "mistakes")
"""The name of a class, its fields, and the beginning of the error."""


@pytest.mark.parametrize(("made", "fields", "said"), MISTAKES)
def test_what_is_made_in_python_says_what_is_wrong(
    made: str, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError) as caught:
        getattr(duologue, made)(**fields)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)
    # Models that embed a spec get pydantic's own errors with their paths.
    with pytest.raises(ValidationError):
        getattr(duologue, made).model_validate(fields)


@pytest.mark.parametrize(
    "fields",
    read_rows(__file__, "python_and_a_file_say_the_same"),
)
def test_python_and_a_file_say_the_same(fields: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as in_python:
        Conversation(**minimal(**fields))
    with pytest.raises(SpecError) as in_a_file:
        load_conversation(minimal(**fields))
    assert str(in_python.value) == str(in_a_file.value)


def test_all_that_is_wrong_inside_is_collected() -> None:
    """Only the outermost model raises a `SpecError`; pydantic reads the models inside it."""
    with pytest.raises(SpecError) as caught:
        Conversation(**minimal(speakers=[{"nam": "Ann"}, {"name": "Bob", "labels": "x"}]))
    cause = caught.value.__cause__
    assert isinstance(cause, ValidationError)
    assert [fault["loc"] for fault in cause.errors()] == [
        ("speakers", 0, "name"),
        ("speakers", 0, "nam"),
        ("speakers", 1, "labels"),
    ]


def test_data_that_is_nested_too_deep_is_the_same_error() -> None:
    end: Any = {"kind": "stop_requested"}
    for _ in range(300):
        end = {"kind": "any", "of": [end]}
    with pytest.raises(SpecError, match="nested too deeply"):
        EndChat(when=end)
    with pytest.raises(SpecError, match="nested too deeply"):
        load_conversation(minimal(end_chat={"when": end}))


@each_row("a_field_of_a_part_points_to_its_place", "name", "place")
def test_a_field_of_a_part_points_to_its_place(name: str, place: str) -> None:
    wrong: dict[str, Any] = {name: 3}
    with pytest.raises(SpecError) as caught:
        group_solve(PAIR, **wrong)
    assert str(caught.value) == f"{name}: there is no such field; did you mean {place!r}?"
    # Each of these places is a field.
    data: dict[str, Any] = {}
    at = data
    *parts, last = place.split(".")
    for part in parts:
        at = at.setdefault(part, {})
    at[last] = {"when": "stop_requested", "mode": FIRST}.get(name, 3)
    assert group_solve(PAIR, **data)


@pytest.mark.parametrize("given", list(EndChatMode))
@pytest.mark.parametrize("written", [str, str.upper, str.title])
def test_a_mode_is_read_in_any_case(given: EndChatMode, written: Callable[[str], str]) -> None:
    """A mode is read in any case, because its name in Python is in upper case."""
    assert EndChat(mode=written(given)).mode is given
    assert EndChatMode[given.name] is EndChat(mode=given.name).mode
    made = role_play("Plan", "Owner", "Gardener", mode=written(given))
    assert made.end_chat.mode is given
    assert load_conversation(made.stored()) == made


@pytest.mark.parametrize("given", ["never", "Never", "NEVER"])
def test_when_a_person_is_asked_is_read_in_any_case(given: str) -> None:
    human = user_proxy("Hi.", human_input_mode=given).speakers[0].human
    assert human is not None
    assert human.human_input_mode == "NEVER"


@pytest.mark.parametrize("given", [FIRST, FIRST.value, FIRST.name])
def test_a_mode_alone_is_an_end_chat(given: str) -> None:
    whole = EndChat(mode=FIRST)
    made = Conversation(task="Plan", speakers=PAIR, end_chat=given)
    assert made.end_chat == whole
    assert load_conversation(made.stored()) == made
    assert load_conversation(minimal(speakers=PAIR, end_chat=given)).end_chat == whole
    assert group_solve(PAIR, end_chat=given).end_chat.mode is FIRST


def test_a_mode_alone_changes_nothing_else_in_a_fork() -> None:
    made = Conversation(
        task="Plan", speakers=PAIR, end_chat=EndChat(max_iterations=9), sandbox=Sandbox(seconds=7)
    )
    with pytest.raises(RuntimeError):
        play(made, [RuntimeError("stopped")], store="memory:forked", session="s")
    forked = Session("s", store="memory:forked").fork(end_chat=FIRST.name, sandbox="monty")
    found = forked.state().conversation
    assert (found.end_chat.mode, found.end_chat.max_iterations) == (FIRST, 9)
    assert (found.sandbox.level, found.sandbox.seconds) == ("monty", 7)


def test_a_level_alone_is_a_sandbox() -> None:
    assert coder("Add.", sandbox="monty") == coder("Add.", sandbox={"level": "monty"})


def test_a_kind_alone_is_an_end() -> None:
    assert EndChat(when="stop_requested").when == StopRequested()
