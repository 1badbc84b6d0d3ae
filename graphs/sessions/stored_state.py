"""What a store holds of a session, read and checked: after it all goes by the rules."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..build import Graph
from ..common.errors import SpecError
from ..log.state import State
from ..spec.conversation import Conversation
from ..spec.versions import restored
from ..store.reading import reading_store
from ..store.rows import SessionRow
from .dumps.dump import whole


@contextmanager
def reading_session(graph: Graph, session: str) -> Iterator[None]:
    """Turn whatever is raised inside the block into a `StoreError` about a session."""
    with reading_store(getattr(graph.checkpointer, "store_url", "memory:"), session):
        yield


def stored_conversation(row: SessionRow, url: str) -> Conversation:
    """Make the conversation of a session out of its row."""
    with reading_store(url, row.session):
        return restored(json.loads(row.spec))


def check_state(session: str, conversation: Conversation | None, state: State) -> None:
    """Make sure that a session can be shown, and gone on with, from a state that was read."""
    given = [state["conversation"]] if state.get("conversation") else []
    known = [state["spec"]] if state.get("spec") else []
    # Most are just what is stored of it, and need not be read to be compared.
    stored = None if conversation is None else conversation.stored()
    specs = [
        restored(spec) if conversation is None or spec != stored else conversation
        for spec in (*given, *known)
    ]
    if conversation is not None and any(spec != conversation for spec in specs):
        raise SpecError("its conversation is not the one that is listed")
    begun = [name for name in _BEGUN if state.get(name)]
    if known:
        whole(session, specs[-1], [state])
    elif begun:
        raise SpecError(f"it has {begun[0]}, but no conversation")


_BEGUN: Final = ("position", "usage", "outcome", "messages", "unspoken")
