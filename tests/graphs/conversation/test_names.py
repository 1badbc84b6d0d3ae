"""Names with the same appearance are refused, because readers cannot distinguish them (R13)."""

import pytest

from duologue.graphs import Conversation, Speaker, SpecError, load_conversation
from support.tables import each_row


def named(*names: str) -> Conversation:
    speakers = [{"name": name} for name in names]
    return load_conversation({"task": "Plan.", "speakers": speakers})


@each_row("r13_names_that_differ_only_in_look_are_refused_in_one_sentence", "one", "other")
def test_r13_names_that_differ_only_in_look_are_refused_in_one_sentence(
    one: str, other: str
) -> None:
    with pytest.raises(SpecError) as raised:
        named(one, "Zoe", other)
    text = f"speakers: {one!r} and {other!r} look the same; give each a unique name"
    assert str(raised.value) == text


@pytest.mark.parametrize(("one", "other"), [("Ann", "Ann"), ("Ann", "ANN"), ("Аня", "АНЯ")])
def test_r13_case_makes_no_other_name_as_before(one: str, other: str) -> None:
    with pytest.raises(SpecError, match=f"two speakers are called '{other}'; give each a unique"):
        named(one, other)


@each_row("r13_names_that_can_be_told_apart_are_names", "one", "other")
def test_r13_names_that_can_be_told_apart_are_names(one: str, other: str) -> None:
    assert named(one, other).names == (one, other)


def test_r13_the_names_that_are_kept_are_as_given() -> None:
    speakers = (Speaker(name="Ann\u200b"), Speaker(name="Bob"))
    assert Conversation(task="Plan.", speakers=speakers).names == ("Ann\u200b", "Bob")
