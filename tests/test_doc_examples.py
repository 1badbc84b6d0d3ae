"""Runs of the unmodified examples in the docstrings of public modules."""

import doctest
import importlib
import pkgutil
from collections.abc import Iterator

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
    for package in (duologue.graphs, duologue.nodes, duologue.tools):
        yield package.__name__
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.startswith(LEFT_OUT):
                yield found.name


def _tests(name: str) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name))
    # A synchronous function and its async twin have one docstring.
    return [*{test.docstring: test for test in found if test.examples}.values()]


WITH_EXAMPLES = [name for name in _modules() if _tests(name)]


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
