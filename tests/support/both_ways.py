"""Conversations that are run as a whole, and by their streams. No tests here."""

from typing import Any, Final
from uuid import uuid4

from duologue.graphs import Conversation, Result, converse, stream


def run_whole(talk: Conversation, model: Any, **options: Any) -> Result:  # noqa: ANN401
    """Run a conversation with a model, or with a model's name."""
    return converse(talk, model=model, **{"store": f"memory:{uuid4().hex}", **options})


def run_streamed(talk: Conversation, model: Any, **options: Any) -> Result:  # noqa: ANN401
    """Run a conversation by its stream, and return its result."""
    options = {"model": model, "store": f"memory:{uuid4().hex}", **options}
    first, *_ = [*stream(talk, **options)]
    assert first.event == "session"
    return converse(talk, session=first.session, **options)


RUNS: Final = [run_whole, run_streamed]
