"""Row A7: the code of a message that is run, and its language."""

import pytest
from hypothesis import given, strategies as st

from duologue.graphs.log.parsing import RunnableBlock, code_blocks, infer_language, open_blocks
from support.tables import each_row


def fenced(code: str, label: str = "", fence: str = "```") -> str:
    return f"{fence}{label}\n{code}\n{fence}"


@each_row("labels")
def test_a_label_names_the_language(label: str, language: str) -> None:
    """A7: the label of a code block determines its language."""
    assert code_blocks(fenced("print(1)", label)) == [RunnableBlock(language, "print(1)")]


@each_row("inferred")
def test_without_a_label_it_is_inferred(code: str, language: str) -> None:
    """A7: the language of unlabelled code is inferred from its content."""
    assert infer_language(code) == language
    assert code_blocks(fenced(code)) == [RunnableBlock(language, code)]


def test_all_blocks_come_in_order_wherever_they_stand() -> None:
    """A7: all code blocks are found in order, at any position in the text."""
    text = "\n\n".join(
        [
            "First:",
            fenced("a = 1", "python"),
            "then, in a list:\n\n1. " + fenced("b = 2", "py").replace("\n", "\n   "),
            "> " + fenced("c = 3", "py", "~~~").replace("\n", "\n> "),
            fenced("", "python"),
            "```python\nd = 4",
        ]
    )
    assert [block.code for block in code_blocks(text)] == ["a = 1", "b = 2", "c = 3"]
    assert [block.code for block in open_blocks(text)] == ["d = 4"]


@pytest.mark.parametrize(
    "text", ["", "print(1)", "`print(1)`", "Use python.", "    indented", "````"]
)
def test_what_is_not_fenced_is_not_code(text: str) -> None:
    """A7: text without a fence is not code."""
    assert code_blocks(text) == []


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    """A7: no text causes an error."""
    for block in code_blocks(text):
        assert block.code.strip()
    for block in code_blocks(fenced(text.replace("`", "'"))):
        assert block.language in ("python", "shell", "")
