"""Fixtures of the tests of servers."""

import pytest


@pytest.fixture
def store(request: pytest.FixtureRequest) -> str:
    """Return the address of a new store in memory."""
    return f"memory:{abs(hash(request.node.nodeid))}"
