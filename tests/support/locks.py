"""Locks of SQLite stores that are lost while their processes live. No tests here."""

from pathlib import Path


def remove_locks(path: Path) -> None:
    """Remove the lock files beside a store, so that its owners seem dead to other processes."""
    for one in path.with_name(f"{path.name}.locks").iterdir():
        one.unlink()
