"""Names of speakers as models write them."""

from duologue.graphs.text.names import read_name
from support.tables import each_row

NAMES = ("Reviewer", "Coder", "Senior Coder")
LAST = ("Planner",)
"""The speaker of the last turn, who can't be chosen."""


@each_row("choices")
def test_an_answer_that_names_one_speaker_is_read(text: str, name: str | None) -> None:
    """R30: an answer in any accepted form names a speaker, and an ambiguous one names none."""
    assert read_name(text, NAMES, LAST) == name


@each_row("numbers")
def test_a_number_is_read_if_the_prompt_numbers_the_names(text: str, name: str | None) -> None:
    """A number with two meanings, or of a speaker who can't be chosen, is unreadable."""
    listed = "You choose.\n1. Planner\n2. Coder (writes)\n- 3) Senior Coder\n4. Coder\n4. Reviewer"
    assert read_name(text, NAMES, LAST, listed=listed) == name


@each_row("unusual")
def test_unusual_names_are_read_whole(text: str, name: str | None) -> None:
    """Names that differ only in marks or case must be written exactly."""
    unusual = ("C", "C++", "小明", "小红", "Dr. Smith", "Smith", "O'Brien", "José", "🤖", "Ann")
    assert read_name(text, (*unusual, "ann", "Agent 1", "Agent 12")) == name
