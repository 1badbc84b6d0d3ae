"""Conversations of every kind for the tests of forks, and their scripts. No tests here."""

from typing import Any

from duologue import Conversation, Result
from duologue.nodes.testing import Line, Reply

from .fork_help import run, with_verdicts
from .tables import read_rows


def _read_line(given: Any) -> Line:  # noqa: ANN401
    has_calls = isinstance(given, dict) and "tool_calls" in given
    line: Line = Reply(**given) if has_calls else given
    return line


TALKS: dict[str, tuple[Conversation, list[Line]]] = {
    name: (
        Conversation.model_validate(row["spec"]),
        with_verdicts([_read_line(one) for one in row["script"]]),
    )
    for name, row in read_rows(__file__, "fork_talks").items()
}


def run_talk(name: str, store: str) -> tuple[Result, list[Line]]:
    """Run a conversation as session "one"; return its result and its script."""
    conversation, lines = TALKS[name]
    return run(conversation, lines, session="one", store=store), lines
