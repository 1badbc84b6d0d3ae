"""What the tests of shaped speakers share: conversations, running them, reading what they left."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

from duologue.graphs import Conversation, Result, converse, load_conversation
from duologue.graphs.log.messages import metadata
from duologue.graphs.log.metadata import MessageMetadata
from duologue.nodes.testing import Call, Line as Said, Script, ScriptedChatModel


def talk(*speakers: dict[str, Any] | str, rounds: int = 1, **fields: Any) -> Conversation:
    """A conversation of these speakers, each its fields or its name alone."""
    given = [{"name": one} if isinstance(one, str) else one for one in speakers]
    end_chat = {"max_iterations": rounds} | fields.pop("end_chat", {})
    return load_conversation({"task": "Plan.", "speakers": given, "end_chat": end_chat} | fields)


def play(
    conversation: Conversation,
    script: Sequence[Said],
    **options: Any,
) -> tuple[Result, ScriptedChatModel]:
    """Run it on a script that must be used up. Gives what came of it, and the model."""
    model = ScriptedChatModel(script=list(script))
    options = {"store": f"memory:{uuid4().hex}"} | options
    result = converse(conversation, model=model, **options)
    assert len(model.calls) == len(script)
    return result, model


def never() -> ScriptedChatModel:
    """A model that may not be asked."""
    return scripted([])


def scripted(script: Script) -> ScriptedChatModel:
    return ScriptedChatModel(script=script)


def texts(call: Call) -> list[str]:
    """What a model was sent, in roles, behind the system prompt."""
    return shown(call.messages[1:])


def shown(messages: Sequence[BaseMessage]) -> list[str]:
    """Messages as their roles and texts."""
    roles = {"human": "u", "ai": "a", "tool": "t", "system": "s"}
    return [f"{roles[message.type]}:{message.text}" for message in messages]


def of_kind(result: Result, kind: type[MessageMetadata]) -> list[BaseMessage]:
    """The lines of a kind that a log holds."""
    return [message for message in result.messages if type(metadata(message)) is kind]


def kinds(result: Result) -> list[str]:
    """The kinds of all lines of a log."""
    return [metadata(message).kind for message in result.messages]


def calls_of(message: BaseMessage) -> list[str]:
    if not isinstance(message, AIMessage):
        return []
    return [str(call["id"]) for call in [*message.tool_calls, *message.invalid_tool_calls]]


def well_formed(view: Sequence[BaseMessage]) -> None:
    """What every provider must be able to read."""
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
