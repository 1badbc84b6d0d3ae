"""Helpers for the tests of memory. No tests here."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from duologue.graphs import (
    Conversation,
    Result,
    converse,
)
from duologue.graphs.conversation.fields import SPEC_VERSION
from duologue.graphs.session.dump import DUMP_VERSION
from duologue.nodes.testing import Line, Reply, ScriptedChatModel
from support.fork_help import (
    FUNCTIONS,
)

SPEC = {"version": SPEC_VERSION, "task": "Plan", "speakers": [{"name": "Ann"}, {"name": "Ben"}]}
SESSION = {"format": "duologue.session", "version": DUMP_VERSION, "session": "one", "spec": SPEC}
MESSAGE = {"id": "m0000", "text": "Hi", "metadata": {"kind": "speech", "speaker": "Ann"}}


def stopped(conversation: Conversation, lines: Sequence[Line], store: str, session: str) -> None:
    """Leave a session unfinished after so many calls, because its model fails."""
    model = ScriptedChatModel(script=[*lines, Reply(error=500)])
    with pytest.raises(Exception, match="500"):
        converse(conversation, session=session, store=store, model=model, **FUNCTIONS)


def seen(result: Result, name: str) -> list[tuple[str, str]]:
    """Return a speaker's view without its system prompt."""
    return [(message.type, message.text) for message in result.viewpoint(name)[1:]]


def through_json(dump: dict[str, Any]) -> dict[str, Any]:
    """Return a dump after a round trip through JSON."""
    again: dict[str, Any] = json.loads(json.dumps(dump, allow_nan=False))
    return again
