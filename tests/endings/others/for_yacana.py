"""Yacana's `GroupSolve`, with each of its modes: its own loop runs, and agents say the record.

Yacana asks the model after a message whether objectives are left. The record has no answer, so an
agent answers "no" if its last message contains its word, and "yes" otherwise. Yacana runs tools
within a message and fixes the order of the speakers, so a dialogue in another order does not apply.
"""

import queue
import threading
from collections.abc import Callable
from itertools import cycle
from typing import Any

from yacana import (
    EndChat,
    EndChatMode,
    GenericAgent,
    GroupSolve,
    Message,
    MessageRole,
    ReachedTaskCompletion,
    Task,
)
from yacana.model_settings import OllamaModelSettings

Rule = Callable[[dict[str, Any]], str | None]

MANY = 10_000
"""A cap that no record reaches."""
ASKS_OBJECTIVES = "In your opinion, what objectives"
ASKS_YES_OR_NO = "To summarize in one word"


class RecordOverError(BaseException):
    """The record has no more lines. It ends the thread of a loop that nobody feeds any more."""


class Record:
    """The lines that the loop's agents say next."""

    def __init__(self) -> None:
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.states: queue.Queue[str] = queue.Queue()

    def next_line(self) -> str:
        """Wait for the next line of the record."""
        self.states.put("waiting")
        line = self.lines.get()
        if line is None:
            raise RecordOverError
        return line


class RecordedAgent(GenericAgent):  # type: ignore[misc]
    """An agent that says the record."""

    def __init__(self, name: str, record: Record, words: list[str]) -> None:
        super().__init__(name, "record", OllamaModelSettings())
        self._record = record
        self._words = words
        self._said = ""

    def __deepcopy__(self, memo: dict[int, Any]) -> "RecordedAgent":
        return self  # Yacana copies tasks with their agents, and puts the agent back

    def _interact(self, task: str, *_: object) -> Message:
        prompt = task.removeprefix("[TaskManager]: ")
        if prompt.startswith(ASKS_OBJECTIVES):
            text = "See the conversation."
        elif prompt.startswith(ASKS_YES_OR_NO):
            text = "no" if any(word in self._said for word in self._words) else "yes"
        else:
            text = self._said = self._record.next_line()
        self.history.add_message(Message(MessageRole.USER, task))
        reply = Message(MessageRole.ASSISTANT, text)
        self.history.add_message(reply)
        return reply


_OPEN: list[Record] = []
"""The record of the last dialogue, whose loop may still wait for a line."""


def begin(variant: str, header: dict[str, Any]) -> Rule | None:
    """Return the rule for a dialogue, or None if Yacana has no such order of speakers."""
    names = header["speakers"]
    order = [speaker for speaker, calls in header["order"] if not calls]
    if len(names) < 2 or any(one != other for one, other in zip(order, cycle(names), strict=False)):
        return None
    words = {
        name: [word["token"] for word in header["words"] if word["by"] in (None, name)]
        for name in names
    }
    if not any(words.values()):
        variant = "MAX_ITERATIONS_ONLY"
    for left in _OPEN:
        left.lines.put(None)
    record = Record()
    _OPEN[:] = [record]
    tasks = [
        Task(
            "Talk.",
            RecordedAgent(name, record, words[name]),
            llm_stops_by_itself=bool(words[name]),
        )
        for name in names
    ]
    shift = {"shift_message_owner": tasks[0]} if len(tasks) == 2 else {}
    group = GroupSolve(tasks, EndChat(EndChatMode[variant], max_iterations=MANY), **shift)
    threading.Thread(target=_run, args=(group, record), daemon=True).start()
    record.states.get()
    return lambda turn: _after(record, turn)


def _run(group: GroupSolve, record: Record) -> None:
    try:
        group.solve()
    except (RecordOverError, ReachedTaskCompletion):
        return
    finally:
        record.states.put("over")


def _after(record: Record, turn: dict[str, Any]) -> str | None:
    if turn["calls"]:
        return None
    record.lines.put(turn["text"])
    return "completion" if record.states.get() == "over" else None
