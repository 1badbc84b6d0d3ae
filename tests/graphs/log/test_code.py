"""Row A7: the code of a message that is run, and its language."""

import pytest
from hypothesis import given, strategies as st

from duologue.graphs.log.parsing import RunnableBlock, code_blocks, inferred, open_blocks


def fenced(code: str, label: str = "", fence: str = "```") -> str:
    return f"{fence}{label}\n{code}\n{fence}"


@pytest.mark.parametrize(
    ("label", "language"),
    [
        *((label, "python") for label in ("python", "Python", "py", "python3", "{.python}")),
        *((label, "python") for label in ("python:main.py", "python title=x", "ipython")),
        *((label, "shell") for label in ("sh", "bash", "shell", "zsh", "console", "Bash -e")),
        *((label, label) for label in ("rust", "javascript", "json", "text", "c++", "sql")),
    ],
)
def test_a_label_names_the_language(label: str, language: str) -> None:
    """A7: the label of a code block determines its language."""
    assert code_blocks(fenced("print(1)", label)) == [RunnableBlock(language, "print(1)")]


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("print(1)", "python"),
        ("x = 1\nx + 1", "python"),
        ("import os\nfor name in os.listdir():\n    print(name)", "python"),
        ("test = 3\ntest", "python"),
        ("date = 1", "python"),
        ("test(1)", "python"),
        ("def f():\n    return 1", "python"),
        ("# a comment\n1", "python"),
        ("ls", "shell"),
        ("ls -l", "shell"),
        ("pip install numpy", "shell"),
        ("python main.py", "shell"),
        ("echo hello", "shell"),
        ("cat a.txt | sort", "shell"),
        ("$ ls", "shell"),
        ("#!/bin/sh\nprintf 1", "shell"),
        ("#!/usr/bin/env python3\nprint(1)", "python"),
        ("fn main() {}", ""),
        ("for i in 1 2 3; do echo $i; done", ""),
        ("let x = 1;", ""),
        ("SELECT * FROM t;", ""),
    ],
)
def test_without_a_label_it_is_inferred(code: str, language: str) -> None:
    """A7: the language of unlabelled code is inferred from its content."""
    assert inferred(code) == language
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
