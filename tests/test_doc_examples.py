"""Runs of the unmodified examples in the docstrings of public modules."""

import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import duologue.graphs
import duologue.nodes
import duologue.tools

# These need the packages of an extra, and users do not import them.
LEFT_OUT = (
    "duologue.graphs.batch.ray.",
    "duologue.graphs.store.postgres",
    "duologue.nodes.models.adapters.embedded_server",
)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _modules() -> Iterator[str]:
    """Yield the names of the modules whose text contains a prompt of Python."""
    for package in (duologue.graphs, duologue.nodes, duologue.tools):
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((package.__name__, *parts)).removesuffix(".__init__")
            # The text tells it without an import of all modules and their docstrings.
            if not name.startswith(LEFT_OUT) and ">>> " in path.read_text(encoding="utf-8"):
                yield name


def _tests(name: str) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name))
    # A synchronous function and its async twin have one docstring.
    return [*{test.docstring: test for test in found if test.examples}.values()]


WITH_EXAMPLES = [*_modules()]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module_give_what_they_show(name: str) -> None:
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    for test in _tests(name):
        runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0


def test_the_first_functions_a_user_meets_have_examples() -> None:
    assert {
        "duologue.graphs.build",
        "duologue.graphs.session.converse",
        "duologue.graphs.kinds.role_play",
        "duologue.nodes.testing.chat_model",
    } <= set(WITH_EXAMPLES)
