"""Docstrings, comments, pages, prompts and messages use plain words, as CONTRIBUTING.md asks.

Each rule counts a habit that makes sentences hard to read. It allows a few uses, since a word such
as "what" has good ones.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

USES_PER_1000_WORDS: Final = {
    r"\bwhat(ever)?\b": 2.2,
    r"\bwhere\b": 1.8,
    r"\b(stands?|stood)\b": 0.08,
    r"\b(told|tells?)\b": 0.32,
}
"""Twice the highest rate that was measured in seven well-written Python projects."""

NO_VERB: Final = re.compile(
    r"(Gives?|Say|Tell|What|Whatever|Whether|How|Why|Where|When|Who|Those|That|Which)\b"
)
"""First words of a function's docstring that are no verb, or a verb that hides another one."""


class Text(NamedTuple):
    """A text for people or models, and its place."""

    place: str
    text: str


@cache
def _product() -> list[tuple[Path, str, ast.Module]]:
    """Return the modules of the product, with their source and its syntax tree."""
    found = []
    for folder in ("graphs", "nodes", "tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            found.append((path, source, ast.parse(source)))
    return found


def _of_product() -> Iterator[Text]:
    """Yield docstrings, comments, prompts, and strings such as errors and help texts."""
    for path in (ROOT / "graphs" / "prompts" / "texts").rglob("*.txt"):
        yield Text(str(path), path.read_text(encoding="utf-8"))
    for path, source, tree in _product():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and len(re.findall("[A-Za-z']+", str(node.value))) > 2
            ):
                yield Text(f"{path}:{node.lineno}", str(node.value))
        for number, line in enumerate(source.splitlines(), 1):
            if comment := re.search(r"(?:^|  )# (.*)$", line):
                yield Text(f"{path}:{number}", comment[1])


def _of_page(path: Path) -> Iterator[Text]:
    page = path.read_text(encoding="utf-8")
    prose = re.sub(
        r"^```.*?^```$", lambda code: "\n" * code[0].count("\n"), page, flags=re.M | re.S
    )
    for number, line in enumerate(prose.splitlines(), 1):
        yield Text(f"{path}:{number}", line)


def _of_notebook(path: Path) -> Iterator[Text]:
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            yield Text(str(path), "".join(cell["source"]))


def _of_pages() -> Iterator[Text]:
    for path in PAGES:
        yield from _of_page(path)
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        yield from _of_notebook(path)


@pytest.mark.parametrize("texts_of", [_of_product, _of_pages])
def test_vague_words_are_rare(texts_of: Callable[[], Iterator[Text]]) -> None:
    texts = [*texts_of()]
    count = sum(len(re.findall("[A-Za-z']+", text.text)) for text in texts)
    assert count > 1000
    for words, rate in USES_PER_1000_WORDS.items():
        uses = [text.place for text in texts for _ in re.findall(words, text.text, re.IGNORECASE)]
        assert 1000 * len(uses) / count <= rate, (words, uses)


def test_the_docstring_of_a_function_begins_with_a_verb() -> None:
    functions = [
        (path, node, doc)
        for path, _, tree in _product()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (doc := ast.get_docstring(node))
    ]
    assert len(functions) > 1000
    assert not [
        f"{path}:{node.lineno}: {doc.splitlines()[0]}"
        for path, node, doc in functions
        if NO_VERB.match(doc)
    ]
