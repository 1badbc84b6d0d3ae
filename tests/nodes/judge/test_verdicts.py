"""Verdicts as models write them (R4, R17): the first word of a verdict's line decides."""

# Signs of many languages.
# ruff: noqa: RUF001

import pytest
from hypothesis import given, strategies as st

from corpus.reading import rows
from duologue.graphs.conversation.judges import Finding
from duologue.nodes.judge.self_judge import read_lines, yes_or_no


@pytest.mark.parametrize("text", rows("verdicts", "complete"))
def test_r4_a_yes_counts_whatever_follows(text: str) -> None:
    assert yes_or_no(text) is True


@pytest.mark.parametrize("text", rows("verdicts", "not_complete"))
def test_r4_a_no_counts_whatever_follows(text: str) -> None:
    assert yes_or_no(text) is False


@pytest.mark.parametrize("text", rows("verdicts", "unreadable"))
def test_r4_what_does_not_begin_with_a_verdict_is_unreadable(text: str) -> None:
    assert yes_or_no(text) is None


CRITERIA = ("They agree on a plant.", "A price is named.")
M, N, I = Finding.MET, Finding.NOT_MET, Finding.INCONCLUSIVE  # noqa: E741


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("1: met - Ann said so\n2: not met - no number was said", (M, N)),
        ("1: met. Ann said so.\n2: met (40 euros)", (M, M)),
        ("1: met because Ann said so\n2: inconclusive as it may be a joke", (M, I)),
        ("1: Met – both say beans\n2: Not met – Bob only asks", (M, N)),
        ("Here is how it stands:\n\n1: met\n2: met", (M, M)),
        ("Looking at 2 criteria:\n1: met\n2: not met", (M, N)),
        ("2 met, 0 not met\n1: not met\n2: met", (N, M)),
        ("**Criterion 1**: met, they agree\n**Criterion 2**: not met, no price", (M, N)),
        ("1. **Met** – beans\n   Ann said so.\n2. **Not met**\n   Nobody said a price.", (M, N)),
        ("1： met。\n2： not met，没有价格", (M, N)),
        ("１：met\n２：inconclusive", (M, I)),
        ("1、met\n2、met", (M, M)),
        ("1 — met\n2 — not-met", (M, N)),
        ("| 1 | met | Ann said so |\n| 2 | not met | nobody did |", (M, N)),
        ("1. They agree on a plant: met\n2. A price is named: not met", (M, N)),
        ("Criterion 1 (They agree on a plant.): met\nCriterion 2 (A price is named.): met", (M, M)),
        ("1: met\n2: met\nIn short, all is well.", (M, M)),
        ("1: met\n2: not met, but they are close", (M, N)),
        ("1: met\n2: met\n3: inconclusive", (M, M)),
        ("0: met\n1: met\n2: not met\n7: nonsense", (M, N)),
        ("1: met\n2: met\n2: met", (M, M)),
        ("1: met\n2: met\n2: not met", None),
        ("1: met\n2: met, but not by Bob", None),
        ("1: met\n2: met?", None),
        ("1: met\n2: met or not met", None),
        ("1: met\n2: met/not met", None),
        ("1: met, assuming Ann agrees\n2: met", None),
        ("1: met\n2: met, provided that Bob pays", None),
        ("1: met\n2: met if Bob pays", None),
        ("1: met, the plant is named, the pot is not\n2: met", None),
        ("1: met for the day, not for the hour\n2: met", None),
        ("1: met in the third message\n2: met on Friday, for 40 euros", (M, M)),
        ("1: met, nothing is left\n2: met. If you need more, ask.", (M, M)),
        ("1: not met, unless Bob pays\n2: inconclusive if he does not", (N, I)),
        ("1: met\n2: partly met", None),
        ("1: met\n2: not yet", None),
        ("1: met\n2: I would say met", None),
        ("1: met\n2: metal is named", None),
        ("1: met\n12: met", None),
        (f"{'1' * 5000}: met", None),
        ("1: met", None),
        ("2 met", None),
        ("met, met", None),
        ("All are met: 1 and 2.", None),
        ("I do not know.", None),
        ("3: met\n4: met", None),
    ],
)
def test_r4_r17_the_first_word_of_a_criterions_line_decides(
    text: str, read: tuple[Finding, ...] | None
) -> None:
    expected = None if read is None else dict(zip(CRITERIA, read, strict=True))
    assert read_lines(text, CRITERIA) == expected


@given(st.text())
def test_r4_reading_a_verdict_never_fails(text: str) -> None:
    assert yes_or_no(text) in (True, False, None)
    read_lines(text, (text, "A price is named."))


@given(st.sampled_from(["yes", "no"]), st.text(alphabet=" .,;!。、*_`«»“”\t", max_size=4))
def test_r4_signs_around_the_word_change_nothing(word: str, signs: str) -> None:
    assert yes_or_no(f"{signs}{word}{signs}") is (word == "yes")
