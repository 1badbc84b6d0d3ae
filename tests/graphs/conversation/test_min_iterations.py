"""Conversations that may not end before so many rounds are complete (R5)."""

from itertools import product
from typing import Any

import pytest

from duologue.graphs import (
    EndChatMode,
    MaxMessages,
    Reason,
    Result,
    SpecError,
    converse,
    load_conversation,
)
from duologue.nodes.testing import ScriptedChatModel
from support.cases import thorough

from ..rules.test_end_chat_walk import (
    CALLS,
    DONE as SAID,
    NO_GUARDS,
    WON,
    each_mode,
    spec,
    stopping,
    walked,
)


def play(script: list[str], *, stops: str = "", **end_chat: Any) -> Result:
    speakers = [
        {"name": name, "checks_completion": name in stops.split()} for name in ("Ann", "Bob")
    ]
    spec = load_conversation({"task": "Plan.", "speakers": speakers, "end_chat": end_chat})
    return converse(spec, model=ScriptedChatModel(script=[*script]), store="memory:")


def ended(result: Result) -> tuple[str, int]:
    assert result.outcome is not None
    return result.outcome.reason.value, result.outcome.messages


DONE = {"kind": "done_token", "token": "DONE"}


@pytest.mark.parametrize(("least", "messages"), [(1, 2), (2, 4)])
def test_r5_a_token_waits(least: int, messages: int) -> None:
    """R5, R19: an early done token waits, and its message is not requested again."""
    script = ["DONE", "Really?", "Yes, I think so.", "Well then."]
    assert ended(play(script, when=DONE, min_iterations=least)) == ("done_token", messages)


def test_r5_a_guard_waits() -> None:
    script = ["Thank you!", "Bye!", "Goodbye!", "Bye bye!"]
    found = play(script, guards={"farewells": 2}, min_iterations=2)
    assert ended(found) == ("farewells", 4)


def test_r5_budgets_do_not_wait() -> None:
    found = play(["Hi there."], when={"kind": "max_calls", "limit": 1}, min_iterations=3)
    assert ended(found) == ("max_calls", 1)


@pytest.mark.parametrize(
    ("min_iterations", "when", "told"),
    [
        (4, None, "end_chat.min_iterations: 4 is more than max_iterations (3); lower it"),
        (
            2,
            {"kind": "max_messages", "limit": 3},
            "end_chat.min_iterations: 2 rounds have 4 messages, more than max_messages (3); "
            "lower it",
        ),
    ],
)
def test_r5_above_a_cap_it_is_refused(
    min_iterations: int, when: dict[str, Any] | None, told: str
) -> None:
    with pytest.raises(SpecError) as raised:
        play([], min_iterations=min_iterations, max_iterations=3, when=when)
    assert str(raised.value) == told


# Every path


@pytest.mark.part(1)
@pytest.mark.parametrize("answers", [False, True], ids=["no-opening", "opening"])
@each_mode
@thorough
def test_r5_no_path_ends_before_the_least_number_of_rounds(
    thorough: bool, mode: EndChatMode, answers: bool
) -> None:
    """R5: an end before the minimum number of rounds takes effect then, with last words."""
    guards = NO_GUARDS.model_copy(update={"blank_replies": 1})
    for least, stoppers in product((1, 2), [*stopping(mode, 2)][0 if thorough else -1 :]):
        conversation = spec(
            mode, 2, 2, stoppers, answers=answers, guards=guards, when=SAID | WON, least=least
        )
        walk = walked(conversation, texts=("plain", "blank"))
        assert walk.reasons >= {Reason.DONE_TOKEN, Reason.PREDICATE, Reason.BLANK_REPLIES}
        joined = spec(mode, 2, 2, stoppers, when=(SAID & MaxMessages(limit=1)) | CALLS, least=least)
        walked(joined)


@pytest.mark.part(1)
@each_mode
def test_r5_of_three_no_path_ends_before_the_least_number_of_rounds(mode: EndChatMode) -> None:
    for stoppers in stopping(mode, 3):
        walk = walked(spec(mode, 2, 3, stoppers, when=SAID, least=2))
        assert walk.reasons >= {Reason.DONE_TOKEN, Reason.MAX_ITERATIONS}
