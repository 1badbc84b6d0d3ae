"""Kinds of stores and their addresses. No tests here."""

from pathlib import Path

import pytest

from duologue.graphs.store.batches import (
    BatchRow as BatchRow,
    CellRow as CellRow,
    CellsWanted as CellsWanted,
)
from duologue.graphs.store.open import (
    SessionLease as SessionLease,
    Store as Store,
    open_store as open_store,
)
from duologue.graphs.store.session_lease import BatchLease as BatchLease

EACH_STORE = ["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.live)]
"""Parameters of a fixture that opens a store of each kind."""
SHARED_STORES = EACH_STORE[1:]
"""Kinds of stores that several processes can open."""
STORE_KINDS = {"memory", "sqlite", "postgresql"}


def store_address(kind: str, request: pytest.FixtureRequest, name: str = "sessions") -> str:
    """Return the address of a store that is empty at first and that only this test uses."""
    folder: Path = request.getfixturevalue("tmp_path")
    if kind == "memory":
        return f"memory:{folder.name}-{Path(name).name}"
    if kind == "sqlite":
        return f"sqlite:///{folder / name}.db"
    return str(request.getfixturevalue("postgres_url"))
