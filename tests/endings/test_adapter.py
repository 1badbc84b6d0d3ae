"""duologue's rules as the benchmark feeds them, and the same conversations in the graph."""

from collections.abc import Iterator
from functools import partial

import pytest

from duologue.graphs import DoneToken
from endings.adapter import Rules, conversation_of
from endings.dialogue import Case, Dialogue, half_of
from endings.readers import texts
from endings.scoring import Outcome, score
from endings.whole import stop_of, tellable
from support.cases import thorough
from support.tables import check_rows, read_rows

OURS = {one.id: one for one in texts.read() if tellable(one)}


STOPS = {row["name"]: row for row in read_rows(__file__, "stops")}


@pytest.mark.part(3)
@pytest.mark.parametrize("case", STOPS)
def test_the_rules_stop_a_dialogue_as_the_graph_does(case: str) -> None:
    row = STOPS[case]
    dialogue, expected = texts.dialogue_of(row, "any", "own"), (row.get("stop"), row.get("reason"))
    found = score(dialogue, Rules)
    assert (found.stop, found.reason) == expected
    assert stop_of(dialogue) == expected


def cases(thorough: bool) -> Iterator[Dialogue]:
    """Return our own texts: the first of each kind of ending if it is short, or all."""
    seen: dict[Case, int] = {}
    for one in OURS.values():
        seen[one.label.case] = seen.get(one.label.case, 0) + 1
        if thorough or (seen[one.label.case] == 1 and len(one.turns) < 20):
            yield one


@thorough
def test_the_rules_and_the_graph_agree_on_our_own_texts(thorough: bool) -> None:
    differ = [
        (one.id, (fed.stop, fed.reason), whole)
        for one in cases(thorough)
        if ((fed := score(one, Rules)).stop, fed.reason) != (whole := stop_of(one))
    ]
    assert differ == []


def test_tool_calls_are_ended_by_the_guard_of_their_row() -> None:
    """R21, Y19: loops in any order and failures end, calls that bring something new do not."""

    def check(reason: str | None, dialogue: Dialogue) -> None:
        found = score(dialogue, Rules)
        assert found.reason == reason
        assert found.outcome is not Outcome.PREMATURE

    check_rows(texts.of_calls(), check)


EARLY = [one for one in OURS.values() if one.label.case is Case.EARLY_WORD]


@pytest.mark.part(3)
@pytest.mark.parametrize("dialogue", EARLY, ids=[one.id for one in EARLY])
def test_a_word_that_has_to_be_answered_ends_after_the_work(dialogue: Dialogue) -> None:
    answered = score(dialogue, partial(Rules, answered=True))
    assert (answered.stop, answered.reason) == (dialogue.label.end, "done_token")
    assert stop_of(dialogue, answered=True) == (answered.stop, answered.reason)
    at_once = score(dialogue, Rules)
    assert at_once.outcome is Outcome.PREMATURE
    assert stop_of(dialogue) == (at_once.stop, at_once.reason)


def test_our_own_texts_have_every_kind_of_ending_in_both_halves() -> None:
    ours = list(texts.read())
    assert {one.label.case for one in ours} == set(Case)
    assert len({one.id for one in ours}) == len(ours)
    assert {one.half for one in ours} == {"tune", "report"}


def test_the_last_byte_of_the_ids_hash_decides_its_half() -> None:
    # The SHA-256 of "a" ends with bb, of "b" with 9d, of "c" with c6.
    assert [half_of(one) for one in ("a", "b", "c")] == ["report", "report", "tune"]


def test_a_conversation_has_the_words_of_its_dialogue() -> None:
    conversation = conversation_of(texts.dialogue_of(STOPS["a done token"], "any", "own"))
    assert conversation.end_chat.when == DoneToken("STOP", by="Ann")
