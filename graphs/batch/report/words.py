"""Why conversations end, as one says it of many of them."""

from collections.abc import Mapping
from typing import Final

from ...ends.all_ends import Reason
from ...rules.ends.met_ends import ENDS

NOT_ENDED: Final[Mapping[str, str]] = {
    "failed": "It failed",
    "waiting": "It waits for a person",
    "paused": "It is paused",
    "running": "It runs, or was broken off",
    "not_begun": "It has not begun",
}
"""What is said of cells that have not ended, by their status."""


def said_of(kind: str) -> str:
    """Say in words why sessions ended, or where they stand."""
    if kind in ENDS:
        return ENDS[Reason(kind)].report
    # A newer version may have left reasons in the store.
    return NOT_ENDED.get(kind, kind.replace("_", " "))
