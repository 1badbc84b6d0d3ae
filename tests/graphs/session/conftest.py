"""Fixtures of the tests of sessions."""

from uuid import uuid4

import pytest


@pytest.fixture
def store() -> str:
    """Return the address of a new store in memory."""
    return f"memory:{uuid4().hex}"
