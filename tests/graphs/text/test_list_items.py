"""The items of a list in a text."""

import pytest
from hypothesis import given, strategies as st

from duologue.graphs.text.list_items import find_list_items


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("1. Dig.\n2. Plant.", ["Dig.", "Plant."]),
        ("Here are two tasks:\n1) Dig.\n2) Plant.\n\nGood luck!", ["Dig.", "Plant."]),
        ("Tasks:\n- Dig.\n\n- **Plant** trees.\n", ["Dig.", "**Plant** trees."]),
        ("9. Dig.\n10. Plant.\n11. Water.", ["Dig.", "Plant.", "Water."]),
        ("1. Dig\n   a hole.\n2. Go.", ["Dig\na hole.", "Go."]),
        ("1. Plant:\n   - trees\n   - herbs", ["Plant:\n- trees\n- herbs"]),
        ("1. Dig.\nThat is all.", ["Dig."]),
        ("* Dig.\r\n* Plant.\r\n", ["Dig.", "Plant."]),
        ("1.\n2. Plant.", ["Plant."]),
        ("Dig.\nPlant.", []),
        ("Dig 1. and 2.", []),
        ("1.5 metres", []),
        ("```\n- Dig.\n```", []),
        ("", []),
    ],
)  # fmt: skip
def test_a_list_is_read_without_its_numbers_and_the_text_around_it(
    text: str, items: list[str]
) -> None:
    assert find_list_items(text) == items


@given(text=st.text(st.sampled_from("-*1.) \n\ta")))
def test_each_item_is_a_text_that_is_not_blank(text: str) -> None:
    assert all(item.strip() == item != "" for item in find_list_items(text))
