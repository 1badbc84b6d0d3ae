"""Why conversations end, as one says it of many of them."""

from collections.abc import Mapping
from typing import Final

from ...spec.ends import Reason

ENDED: Final[Mapping[Reason, str]] = {
    Reason.STOP_REQUESTED: "Somebody asked it to stop",
    Reason.QUIT: "A person left",
    Reason.MAX_COST: "Its money was spent",
    Reason.MAX_TOKENS: "Its tokens were used up",
    Reason.MAX_SECONDS: "Its time was over",
    Reason.MAX_CALLS: "Its model calls were used up",
    Reason.CALL_ERRORS: "Calls of tools could not be run",
    Reason.TOOL_ERRORS: "Tools failed",
    Reason.DONE_TOKEN: "A speaker said a done token",
    Reason.PREDICATE: "A function of yours ended it",
    Reason.TOOL_CALLED: "A tool was called that ends it",
    Reason.NO_CODE_BLOCK: "A speaker whose code is run wrote none",
    Reason.TERMINATION: "A termination message came",
    Reason.COMPLETED: "The tasks were complete",
    Reason.UNREADABLE_VERDICTS: "Verdicts could not be read",
    Reason.ROLE_FLIPS: "A speaker kept speaking another's part",
    Reason.BLANK_REPLIES: "Replies were blank",
    Reason.SAME_REPLIES: "A speaker kept giving the same reply",
    Reason.ECHO: "A speaker kept repeating another",
    Reason.FAREWELLS: "Nothing but thanks and farewells was left",
    Reason.STANDSTILL: "Nobody said anything new",
    Reason.SAME_TOOL_CALLS: "A speaker kept making the same call",
    Reason.MAX_CONSECUTIVE_AUTO_REPLY: "Too many automatic replies for a person",
    Reason.MAX_MESSAGES: "The most messages were said",
    Reason.MAX_ITERATIONS: "The most rounds were held",
}

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
    if kind in ENDED:
        return ENDED[Reason(kind)]
    # A newer version may have left reasons in the store.
    return NOT_ENDED.get(kind, kind.replace("_", " "))
