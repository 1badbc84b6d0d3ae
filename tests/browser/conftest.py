"""Fixtures of the tests in a browser."""

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Yield the distribution's Chromium."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if found is None:
        assert "CI" not in os.environ, "chromium is not installed"
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # As root, Chromium does not start in its own sandbox.
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        started = driver.chromium.launch(executable_path=found, args=arguments)
        yield started
        started.close()
