"""Text in front of the messages that a speaker hears: prefixes for others, and labels (L9, Y20)."""

from typing import Any

import pytest

from duologue.graphs import SpecError, converse
from support.prompts import PROMPTS, fill
from support.shape_help import never, play, talk, texts
from support.tables import each_row

PREFIXES = {"Bob": "B> ", "Cid": "C> "}
NEWEST = {"when": {"kind": "max_messages", "limit": 4}}


@each_row("l9_between_two_a_prefix_stands_in_front_of_each_line")
def test_l9_between_two_a_prefix_stands_in_front_of_each_line(
    labels: bool | None, heard: str
) -> None:
    """L9, Y20: between two speakers, a message has its prefix, and by default no label."""
    ann = {"name": "Ann", "prefixes": {"Bob": "B> "}, "labels": labels}
    said = ["One.", "Two.", "Three.", "Four."]
    result, model = play(talk(ann, "Bob", rounds=2), said)
    assert texts(model.calls[2])[-1] == f"u:{heard}"
    # No other speaker hears the prefix.
    assert texts(model.calls[3])[-1] == "u:Three."
    assert [text for _, text in result.transcript] == said


@each_row("l9_among_three_each_line_has_the_prefix_for_who_said_it")
def test_l9_among_three_each_line_has_the_prefix_for_who_said_it(
    labels: bool | None, heard: str
) -> None:
    """L9, Y20: labels follow prefixes, unless they are switched off."""
    ann = {"name": "Ann", "prefixes": PREFIXES, "labels": labels}
    said = ["One.", "Two.", "Three.", "Four."]
    _, model = play(talk(ann, "Bob", "Cid", rounds=2, end_chat=NEWEST), said)
    told = fill(PROMPTS["your_turn"], name="Ann")
    if labels is False:
        told = fill(PROMPTS["moderator_label"], text=told)
    assert texts(model.calls[3])[-1] == f"u:{heard}\n\n{told}"


@each_row("a_prefix_for_nobody_is_refused_before_any_call", "prefixes", "words")
def test_a_prefix_for_nobody_is_refused_before_any_call(prefixes: Any, words: str) -> None:  # noqa: ANN401
    spec = {"task": "x", "speakers": [{"name": "Ann", "prefixes": prefixes}, {"name": "Bob"}]}
    with pytest.raises(SpecError) as caught:
        converse(spec, model=never(), store="memory:")
    assert str(caught.value) == f"speakers.0.prefixes{words}"
