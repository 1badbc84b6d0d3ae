"""duologue's rules as the benchmark feeds them, and the same conversations in the graph."""

from collections.abc import Iterator
from functools import partial

import pytest

from duologue.graphs.log.heard_text import done_tokens
from endings.adapter import Rules, conversation_of
from endings.dialogue import Call, Case, Dialogue, EndTool, Label, Origin, Turn, Word, half_of
from endings.readers import texts
from endings.scoring import Outcome, score
from endings.whole import stop_of, tellable
from support.cases import thorough
from support.tables import check_rows

OURS = {one.id: one for one in texts.read() if tellable(one)}


def talk(*turns: Turn, words: tuple[Word, ...] = (), tools: tuple[EndTool, ...] = ()) -> Dialogue:
    label = Label(Case.NO_END, len(turns) + 1, Origin.FIELD)
    return Dialogue("any", "source", turns, label, words, tools)


def called(tool: str, result: str = "ok", *, failed: bool = False) -> Turn:
    return Turn("Bob", "", (Call(tool, {"page": 1}, result, failed),))


ASKED = Turn("Ann", "Can you find the page?")
TRANSFER = (EndTool("transfer", "Bob"),)

STOPS = {
    "a done token": (
        talk(ASKED, Turn("Bob", "Here it is."), Turn("Ann", "STOP"), words=(Word("STOP", "Ann"),)),
        (3, "done_token"),
    ),
    "a done token of another speaker": (
        talk(ASKED, Turn("Bob", "STOP"), words=(Word("STOP", "Ann"),)),
        (None, None),
    ),
    "a termination word": (
        talk(ASKED, Turn("Bob", "Here. TERMINATE"), words=(Word("TERMINATE", terminates=True),)),
        (2, "termination"),
    ),
    "a tool": (talk(ASKED, called("transfer"), tools=TRANSFER), (2, "tool_called")),
    "a tool that failed": (
        talk(ASKED, called("transfer", failed=True), tools=TRANSFER),
        (None, None),
    ),
    "blank replies": (talk(ASKED, Turn("Bob", ""), Turn("Ann", "")), (3, "blank_replies")),
    "nothing": (talk(ASKED, Turn("Bob", "It is page 12.")), (None, None)),
}


@pytest.mark.part(3)
@pytest.mark.parametrize("case", STOPS)
def test_the_rules_stop_a_dialogue_as_the_graph_does(case: str) -> None:
    dialogue, expected = STOPS[case]
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
    conversation = conversation_of(STOPS["a done token"][0])
    assert done_tokens(conversation, "Ann", "STOP") == ["STOP"]
    assert done_tokens(conversation, "Bob", "STOP") == []
