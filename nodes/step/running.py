"""What is read of a session that runs, at its steps: of each step, only what is new."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from langchain_core.messages import AnyMessage

from ...graphs.log.channels import GrowingLog
from ...graphs.rules.end_chat import Decision, decide
from ...graphs.rules.position import Position
from ...graphs.rules.reader import Reader
from ...graphs.spec.conversation import Conversation
from ...graphs.spec.versions import restored

_MOST: Final = 256
"""The sessions of one graph that are kept in mind. Others are read from their beginning."""


class RunningSession:
    """One session's state, as its steps read it. The state's values are never changed in place."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.reader = Reader(conversation)
        self._log = GrowingLog()
        self._position: tuple[object, Position] = (None, Position())
        self._turn: tuple[Position | None, Decision | None] = (None, None)

    def log(self, state: Mapping[str, Any]) -> list[AnyMessage]:
        """Give everything ever said."""
        return self._log.of(state)

    def edited(self, state: Mapping[str, Any]) -> list[int]:
        """Give the places of messages that are still to be read again."""
        self._log.of(state)
        return self._log.edited()

    def position(self, state: Mapping[str, Any]) -> Position:
        """Give where it is."""
        given = state["position"]
        if given is not self._position[0]:
            self._position = (given, Position.model_validate(given))
        return self._position[1]

    def turn(self, position: Position) -> Decision:
        """Give whose turn it is at a position, by the rules."""
        known, turn = self._turn
        if turn is None or known is not position:
            turn = decide(self.conversation, position)
            self._turn = (position, turn)
        return turn


class RunningSessions(threading.local):
    """The sessions that one graph runs; each thread keeps its own in mind.

    Runs without an id share what is kept: in one loop no other step begins while a log is read.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str | None, tuple[object, RunningSession]] = OrderedDict()

    def of(self, session: str | None, state: Mapping[str, Any]) -> RunningSession:
        """Give the session of this id, whose task stands."""
        spec = state["spec"]
        known = self._known.pop(session, None)
        # Compared by value, since LangGraph gives a copy of it to each node. That is quick: what is
        # inside of the copies is the same objects.
        if known is None or known[0] != spec:
            known = (spec, RunningSession(restored(spec)))
        self._known[session] = known
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        return known[1]

    def begin(self, session: str | None, spec: object, running: RunningSession) -> None:
        """Keep a session in mind whose first step is made: the next one need not read its spec."""
        self._known[session] = (spec, running)

    def forget(self, session: str | None) -> None:
        """Forget a session that has ended."""
        self._known.pop(session, None)
