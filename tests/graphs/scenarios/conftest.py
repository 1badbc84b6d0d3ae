"""Fixtures of the tests of simulations."""

import pytest


@pytest.fixture
def plain(pytester: pytest.Pytester) -> pytest.Pytester:
    """Return a folder for runs of pytest in this process."""
    pytester.makeini(
        "[pytest]\naddopts = -p no:langsmith_plugin -p no:nbmake -p no:xdist\n"
        "asyncio_default_fixture_loop_scope = function\nsimulate_filter =\n  customer-\\d+\n"
    )
    return pytester
