"""Helpers for the tests of speakers' options: conversations, runs, and reads of their logs."""

from collections.abc import Iterable, Sequence
from itertools import cycle, islice, pairwise
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

from duologue.graphs import Conversation, Result, converse, load_conversation
from duologue.graphs.events import Event, MessageSaid, MessageStarted, MessageToken, ReplyRejected
from duologue.nodes.testing import Call, Line as Said, Script, ScriptedChatModel
from support.log import fields_of


def talk(*speakers: dict[str, Any] | str, rounds: int = 1, **fields: Any) -> Conversation:
    """Return a conversation of these speakers, each with its fields or its name only.

    The speakers are Ann and Bob if there are none.
    """
    named = speakers or ("Ann", "Bob")
    given = [{"name": one} if isinstance(one, str) else one for one in named]
    end_chat = {"max_iterations": rounds} | fields.pop("end_chat", {})
    return load_conversation({"task": "Plan.", "speakers": given, "end_chat": end_chat} | fields)


def play(
    conversation: Conversation | dict[str, Any],
    script: Sequence[Said],
    **options: Any,
) -> tuple[Result, ScriptedChatModel]:
    """Run a conversation on a script that must be used up; return the result and the model."""
    model = ScriptedChatModel(script=list(script))
    options = {"store": f"memory:{uuid4().hex}"} | options
    result = converse(conversation, model=model, **options)
    assert len(model.calls) == len(script)
    return result, model


def tokens_by_message(events: Iterable[Event]) -> list[str]:
    """Return the joined tokens of each message, without those before its newest start."""
    found: list[str] = []
    told = ""
    for event in events:
        if isinstance(event, MessageStarted):
            told = ""
        elif isinstance(event, MessageToken):
            told += event.text
        elif isinstance(event, MessageSaid | ReplyRejected):
            found.append(told)
            told = ""
    return found


def never() -> ScriptedChatModel:
    """Return a model that must not be called."""
    return scripted([])


def scripted(script: Script) -> ScriptedChatModel:
    return ScriptedChatModel(script=script)


def texts(call: Call) -> list[str]:
    """Return a model call's prompt as roles and texts, without the system prompt."""
    return shown(call.messages[1:])


def shown(messages: Sequence[BaseMessage]) -> list[str]:
    """Return messages as their roles and texts."""
    roles = {"human": "u", "ai": "a", "tool": "t", "system": "s"}
    return [f"{roles[message.type]}:{message.text}" for message in messages]


def kinds(result: Result) -> list[str]:
    """Return the kinds of all messages of a log."""
    return [fields_of(message).kind for message in result.messages]


def calls_of(message: BaseMessage) -> list[str]:
    if not isinstance(message, AIMessage):
        return []
    return [str(call["id"]) for call in [*message.tool_calls, *message.invalid_tool_calls]]


def has_accepted_order(prompt: Sequence[BaseMessage]) -> None:
    """Check that Mistral's API and its chat template accept the order of a prompt, too."""
    well_formed(prompt)
    pairs = [(before.type, after.type) for before, after in pairwise(prompt)]
    assert ("tool", "human") not in pairs
    assert ("tool", "system") not in pairs
    counted = [
        one.type
        for one in prompt
        if not isinstance(one, SystemMessage | ToolMessage) and not calls_of(one)
    ]
    assert counted == [*islice(cycle(["human", "ai"]), len(counted))]


def well_formed(view: Sequence[BaseMessage]) -> None:
    """Check that every provider accepts a prompt."""
    expected: list[str] = []
    seen: set[str] = set()
    before: str | None = None
    for place, message in enumerate(view):
        assert not isinstance(message, SystemMessage) or place == 0
        if isinstance(message, ToolMessage):
            assert message.tool_call_id == expected.pop(0)
        else:
            assert expected == []
            assert message.type != before
            assert message.text or calls_of(message)
        if isinstance(message, AIMessage):
            expected = calls_of(message)
            assert len(expected) == len({*expected})
            assert not seen & {*expected}
            seen |= {*expected}
        before = message.type
    assert expected == []
