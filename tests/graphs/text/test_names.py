"""Names of speakers as models write them."""

import pytest

from duologue.graphs.text.words import read_name

NAMES = ("Reviewer", "Coder", "Senior Coder")
LAST = ("Planner",)
"""The speaker of the last turn, who can't be chosen."""

CHOICES = {
    "Coder": [
        "Coder",
        " **coder** ",
        "CODER.",
        '"Coder"',
        "“Coder”",
        "[Coder]",
        "<Coder>",
        "@Coder",
        "### Coder:",
        "1. Coder",
        "2) Coder",
        "- Coder",
        "* **Coder**",
        "I think Coder should go next",
        "i think coder should go next.",
        "It's Coder's turn.",
        "Coder, as they have not spoken yet",
        "Next: Coder.",
        "**Next speaker:** Coder",
        "Coder: Here is my code.",
        "次はCoderです",
        "Coder\n\nPlanner has asked for code.",
        "Planner has asked for code.\n\n**Next:** Coder",
        "Coder. Planner has spoken.",
        '{"next": "Coder"}',
        '{"speaker": {"name": "Coder"}}',
        '["Coder"]',
        "{'next': 'Coder'}",
        '```json\n{"who": "coder"}\n```',
        "```\nCoder\n```",
        '{"answer": "I think Coder should go next"}',
        '{"previous": "Planner", "next": "Coder"}',
        '{"speaker": "Coder", "reason": "Planner waits for Reviewer."}',
        'Planner has spoken. {"next": "Coder"}',
    ],
    "Senior Coder": [
        "Senior Coder",
        "the senior coder, please",
        "Senior_Coder",
        '{"next": "SeniorCoder"}',
    ],
    None: [
        "",
        "Nobody",
        "Planner",
        "not Planner but Coder",
        "Planner or Coder",
        "Coder, Reviewer",
        "1. Reviewer\n2. Coder",
        "Planner: I agree.\nCoder: So do I.",
        "Not Coder",
        "Not next: Coder",
        "Anyone but Coder",
        "Coder should not go next",
        "Coder shouldn't speak",
        "Coders of the world",
        "2",
        '{"next": null}',
        '{"next": ["Coder", "Reviewer"]}',
        '{"next": "Coder"} {"next": "Reviewer"}',
        '{"Coder": false}',
        '{"next": "Coder", "next": "Reviewer"}',
    ],
}
"""Answers by the name that they choose."""


@pytest.mark.parametrize(
    ("text", "name"), [(text, name) for name, texts in CHOICES.items() for text in texts]
)
def test_an_answer_that_names_one_speaker_is_read(text: str, name: str | None) -> None:
    """R30: an answer in any accepted form names a speaker, and an ambiguous one names none."""
    assert read_name(text, NAMES, LAST) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("2", "Coder"),
        ("**3.**", "Senior Coder"),
        ("Option 2", "Coder"),
        ('{"next": 2}', "Coder"),
        ("1", None),
        ("4", None),
        ("7", None),
    ],
)
def test_a_number_is_read_if_the_prompt_numbers_the_names(text: str, name: str | None) -> None:
    """A number with two meanings, or of a speaker who can't be chosen, is unreadable."""
    listed = "You choose.\n1. Planner\n2. Coder (writes)\n- 3) Senior Coder\n4. Coder\n4. Reviewer"
    assert read_name(text, NAMES, LAST, listed=listed) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("C++", "C++"),
        ("**C**", "C"),
        ("I pick C++", None),
        ("我觉得小明应该说", "小明"),
        ("I pick Dr. Smith.", "Dr. Smith"),
        ("Smith", "Smith"),
        ("O’Brien speaks", "O'Brien"),  # noqa: RUF001
        ("jose", "José"),
        ("🤖", "🤖"),
        ("ann", "ann"),
        ("Let Agent 12 speak", "Agent 12"),
    ],
)
def test_unusual_names_are_read_whole(text: str, name: str | None) -> None:
    """Names that differ only in marks or case must be written exactly."""
    unusual = ("C", "C++", "小明", "小红", "Dr. Smith", "Smith", "O'Brien", "José", "🤖", "Ann")
    assert read_name(text, (*unusual, "ann", "Agent 1", "Agent 12")) == name
