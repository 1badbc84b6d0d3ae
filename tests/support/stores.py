"""The kinds of stores and their addresses. No tests here."""

from pathlib import Path

import pytest

EACH_STORE = ["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.live)]
"""The parameters of a fixture that opens a store of each kind."""
SHARED_STORES = EACH_STORE[1:]
"""The kinds that other processes can open, too."""
STORE_KINDS = {"memory", "sqlite", "postgresql"}


def store_address(kind: str, request: pytest.FixtureRequest, name: str = "sessions") -> str:
    """Return the address of an empty store for this test alone, but for others of that name."""
    folder: Path = request.getfixturevalue("tmp_path")
    if kind == "memory":
        return f"memory:{folder.name}-{Path(name).name}"
    if kind == "sqlite":
        return f"sqlite:///{folder / name}.db"
    return str(request.getfixturevalue("postgres_url"))
