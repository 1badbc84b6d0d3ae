"""The fixture of all tests that draw faults."""

import pytest

from drawn_faults import Faults


@pytest.fixture
def faults(request: pytest.FixtureRequest) -> Faults:
    """How many faults this test draws; see `--faults` and `--faults-seed`."""
    config = request.config
    return Faults(config.getoption("--faults"), config.getoption("--faults-seed"))
