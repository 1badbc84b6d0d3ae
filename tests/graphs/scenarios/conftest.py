"""Fixtures of the tests of simulations."""

import pytest
import vcr.cassette  # noqa: F401

# `pytester` forgets modules that its runs import, so they are imported here.
import duologue.graphs.scenarios.pytest_report
import duologue.graphs.scenarios.recording
import duologue.graphs.scenarios.simulate
import duologue.nodes.testing.chat_model  # noqa: F401


@pytest.fixture
def plain(pytester: pytest.Pytester) -> pytest.Pytester:
    """Return a folder for runs of pytest in this process."""
    pytester.makeini(
        "[pytest]\naddopts = -p no:langsmith_plugin -p no:nbmake -p no:xdist\n"
        "asyncio_default_fixture_loop_scope = function\nsimulate_filter =\n  customer-\\d+\n"
    )
    return pytester
