"""The examples in the documentation of the modules that users import, run as they stand."""

import doctest
import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import duologue.graphs
import duologue.nodes
import duologue.tools

# These need the packages of an extra, and are not for users to import.
LEFT_OUT = {"duologue.graphs.store.sql.postgres", "duologue.nodes.models.embedded.server"}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _modules() -> Iterator[str]:
    for package in (duologue.graphs, duologue.nodes, duologue.tools):
        yield package.__name__
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name not in LEFT_OUT:
                yield found.name


def _examples(name: str) -> int:
    finder = doctest.DocTestFinder(exclude_empty=True)
    return sum(len(test.examples) for test in finder.find(importlib.import_module(name)))


WITH_EXAMPLES = [name for name in _modules() if _examples(name)]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module_give_what_they_show(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert tried > 0
    assert failed == 0


def test_the_first_functions_a_user_meets_have_examples() -> None:
    assert {
        "duologue.graphs.build",
        "duologue.graphs.run.converse",
        "duologue.graphs.kinds.role_play",
        "duologue.nodes.testing.chat_model",
    } <= set(WITH_EXAMPLES)
