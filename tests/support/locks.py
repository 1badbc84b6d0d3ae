"""Removal of the locks of SQLite stores whose processes still run. No tests here."""

from pathlib import Path


def remove_locks(path: Path) -> None:
    """Remove the lock files next to a store, so that other processes take its owners for dead."""
    for one in path.with_name(f"{path.name}.locks").iterdir():
        one.unlink()
