"""Helpers for the tests of forks and memory: runs that must use their whole script, and views."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import tool

from duologue import Conversation, Hook, Outcome, Result, Session, converse
from duologue.graphs.store.in_memory import MemorySaver
from duologue.graphs.store.saver import SqlSaver
from duologue.nodes.testing import Line, Reply, ScriptedChatModel
from duologue.tools import Turn
from support.log import Source, fields_of, kind_of, place_of, without_ids

YES: dict[str, Any] = {"objectives_left": [], "complete": True}
NO: dict[str, Any] = {"objectives_left": ["water"], "complete": False}


@tool
def weather(day: str) -> str:
    """Tell the weather."""
    return f"{day}: sun"


def backwards(said: Sequence[BaseMessage], names: tuple[str, ...]) -> str:
    """Choose the speaker before the last one, as a turn function."""
    last = str(said[-1].name)
    return names[names.index(last) - 1]


def enough(said: Sequence[BaseMessage]) -> bool:
    """Check, as an end's predicate, that somebody says it is enough."""
    return "Enough." in said[-1].text


def whisper(turn: Turn) -> HumanMessage:
    """Put brackets around each message that the speaker hears."""
    return HumanMessage(f"({turn.heard})")


def sign(turn: Turn, reply: AIMessage) -> AIMessage:
    """Add the speaker's name to each message."""
    return AIMessage(f"{reply.text} — {turn.speaker}")


def tomorrow(turn: Turn, call: ToolCall) -> ToolCall:
    """Change a tool call to ask for another day."""
    return ToolCall(name=call["name"], args={"day": "Tuesday"}, id=call["id"])


def in_doubt(turn: Turn, call: ToolCall, result: ToolMessage) -> ToolMessage:
    """Add doubt to each tool result."""
    return ToolMessage(f"{result.text}?", tool_call_id="any", status=result.status)


def once(turn: Turn) -> str | None:
    """Reply to every message except the first."""
    return None if len(turn.messages) == 2 else f"I heard: {turn.heard}"


FUNCTIONS: dict[str, Any] = {
    "tools": [weather],
    "functions": {"once": once},
    "hooks": {
        "all": Hook(
            before_speaker=whisper,
            after_speaker=sign,
            before_tool=tomorrow,
            after_tool=in_doubt,
        )
    },
    "orders": {"backwards": backwards},
    "predicates": {"enough": enough},
}


def plain(**fields: Any) -> Conversation:
    """Return a conversation of two speakers who alternate until the cap."""
    return Conversation.model_validate(
        {
            "task": "Plan a garden",
            "speakers": [{"name": "Ann"}, {"name": "Ben", "checks_completion": True}],
            "end_chat": {"max_iterations": 2},
            **fields,
        }
    )


def calls_in_log(log: Sequence[BaseMessage]) -> int:
    """Return the number of a log's messages that come from a model: one for each call."""
    calls, waits = 0, False
    for message in log:
        about = fields_of(message)
        if waits and about.kind in ("speech", "tool_calls"):
            # This message is the reply that hooks made from the answer before it.
            waits = False
            continue
        waits = waits or (about.kind == "unheard_reply" and isinstance(message, AIMessage))
        calls += _is_call(message)
    return calls


def _is_call(message: BaseMessage) -> bool:
    about = fields_of(message)
    if about.kind == "speaker_choice":
        # A turn function returns the name itself, without a model call.
        return bool(message.text != about.to)
    if about.kind in ("draft", "speech", "tool_calls", "unheard_reply"):
        return bool(about.source is Source.MODEL)
    return kind_of(message) in ("specified_task", "reflection")


def calls_in(result: Result) -> int:
    """Return the number of model calls in a session."""
    return calls_in_log(result.messages)


def run(conversation: Conversation, lines: Sequence[Line], **options: Any) -> Result:
    """Run a conversation on a script, all of whose lines must be used."""
    model = ScriptedChatModel(script=lines)
    result = converse(conversation, model=model, **FUNCTIONS, **options)
    assert len(model.calls) == len(lines)
    return result


def go_on(session: Session, lines: Sequence[Line]) -> Result:
    """Resume a session on a script, all of whose lines must be used."""
    model = ScriptedChatModel(script=lines)
    result = session.resume(model=model, **FUNCTIONS)
    assert len(model.calls) == len(lines)
    return result


def finish(session: Session, lines: Sequence[Line]) -> Result:
    """Resume a session on the part of a script that its log does not contain yet."""
    return go_on(session, lines[calls_in(session.state()) :])


def assert_same(one: Result, other: Result) -> None:
    """Check that two conversations have said the same and ended alike."""
    assert without_ids(one.messages) == without_ids(other.messages)
    assert timeless(one.outcome) == timeless(other.outcome)


def texts(result: Result) -> list[str]:
    """Return the texts that were said."""
    return [text for _, text in result.transcript]


def ids(result: Result) -> list[str]:
    return [place_of(message) for message in result.messages]


def told(result: Result, name: str) -> list[str]:
    """Return the instructions to this speaker only."""
    return [
        message.text
        for message in result.messages
        if kind_of(message) == "instruction" and fields_of(message).audience == (name,)
    ]


class KilledError(RuntimeError):
    """A simulated kill."""


@contextmanager
def killed_before_checkpoint(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """End a run between the writes of a step and the step's checkpoint.

    Args:
        monkeypatch: Undoes the change after the test.
        number: Number of the checkpoint that is not written, from 1.
    """
    numbers = count(1)

    def dying(put: Any) -> Any:  # noqa: ANN401
        async def aput(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if next(numbers) == number:
                raise KilledError
            return await put(*args, **kwargs)

        return aput

    with monkeypatch.context() as patch:
        for saver in (MemorySaver, SqlSaver):
            patch.setattr(saver, "aput", dying(saver.aput))
        with pytest.raises(KilledError):
            yield


def timeless(ended: Outcome | None) -> Outcome:
    """Return an outcome without its duration, which differs from run to run."""
    assert ended is not None
    return ended.model_copy(update={"seconds": 0})


def stopped(
    conversation: Conversation, lines: Sequence[Line], store: str, session: str = "one"
) -> Session:
    """Leave a session unfinished after so many calls, because its model fails."""
    model = ScriptedChatModel(script=[*lines, Reply(error=500)])
    with pytest.raises(Exception, match="500"):
        converse(conversation, session=session, store=store, model=model, **FUNCTIONS)
    return Session(session, store=store)


def seen(result: Result, name: str) -> list[tuple[str, str]]:
    """Return a speaker's view without its system prompt."""
    return [(message.type, message.text) for message in result.viewpoint(name)[1:]]


def through_json(dump: dict[str, Any]) -> dict[str, Any]:
    """Return a dump after a round trip through JSON."""
    again: dict[str, Any] = json.loads(json.dumps(dump, allow_nan=False))
    return again


def with_verdicts(lines: Sequence[Line]) -> list[Line]:
    """Return a script in which the words YES and NO are verdicts."""
    verdicts: dict[str, Line] = {"YES": YES, "NO": NO}
    return [verdicts.get(str(one), one) for one in lines]
