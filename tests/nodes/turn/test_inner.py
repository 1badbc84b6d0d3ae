"""Inner conversations: as the source of a speaker's replies, and as a tool."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import ToolMessage
from openai import BadRequestError

from duologue.graphs import (
    AnswerError,
    Conversation,
    MaxCalls,
    MaxCost,
    MaxTokens,
    ModelError,
    Price,
    Session,
    aconverse,
    as_tool,
    converse,
)
from duologue.graphs.log.metadata import Source
from duologue.graphs.session.stored_session import StoredSession
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from support.fields import fields_of

YES = {"name": "Bob", "replies": [{"kind": "text", "text": "Yes."}]}
ASKS = {"name": "Bob", "replies": [{"kind": "text", "text": "Do it."}]}


def inner(*, rounds: int = 1, **fields: Any) -> Conversation:
    """Return a conversation of two models."""
    given = {"task": "Think.", "speakers": [{"name": "Iris"}, {"name": "Jay"}]}
    return Conversation.model_validate({**given, "end_chat": {"max_iterations": rounds}, **fields})


def outer(reply: Any, *, rounds: int = 1, **fields: Any) -> Conversation:  # noqa: ANN401
    """Return a conversation of Bob, who asks, and Ann, who replies by a conversation."""
    end_chat = {"max_iterations": rounds, **fields.pop("end_chat", {})}
    ann = {"name": "Ann", "replies": [reply]}
    return Conversation.model_validate(
        {"task": "Plan.", "speakers": [ASKS, ann], "end_chat": end_chat, **fields}
    )


def calling(*tools: Any, **fields: Any) -> Conversation:
    """Return a conversation of Ann, who may call tools, and Bob, who agrees."""
    ann = {"name": "Ann", "tools": tools}
    end_chat = {"max_iterations": 1, **fields.pop("end_chat", {})}
    return Conversation.model_validate(
        {"task": "Plan.", "speakers": [ann, YES], "end_chat": end_chat, **fields}
    )


def call(name: str = "research", number: int = 1, **args: Any) -> Reply:
    return Reply(tool_calls=[ScriptedToolCall(name=name, args=args, id=f"c{number}")])


def kinds(messages: Any) -> list[str]:  # noqa: ANN401
    return [fields_of(one).kind for one in messages]


def calls_of(result: StoredSession) -> int:
    """Return the number of model calls that a session has counted."""
    assert result.outcome is not None
    return sum(one.calls for one in result.outcome.usage.values())


# As a speaker.


def test_a_speaker_replies_by_an_inner_conversation() -> None:
    model = ScriptedChatModel(script=["One.", "Two.", "Three.", "Four."])
    result = converse(outer(inner(), rounds=2), store="memory:", model=model)
    assert result.transcript == [
        *[("Bob", "Do it."), ("Ann", "Two.")],
        *[("Bob", "Do it."), ("Ann", "Four.")],
    ]
    assert result.output == "Four."
    tasks = [one.prompt[0]["content"].partition("The task: ")[2] for one in model.calls]
    second = "Bob: Do it.\n\nAnn: Two.\n\nBob: Do it."
    assert tasks == ["Do it.", "Do it.", second, second]
    assert result.outcome is not None
    assert sum(one.calls for one in result.outcome.usage.values()) == 4
    said = [one for one in result.messages if fields_of(one).speaker == "Ann"]
    assert kinds(said) == ["inner_session", "speech", "inner_session", "speech"]
    assert fields_of(said[1]).source is Source.CONVERSATION


def test_a_failure_inside_is_resumed_inside() -> None:
    store = f"memory:{uuid4()}"
    model = ScriptedChatModel(script=["One.", Reply(error=400, message="no")])
    with pytest.raises(BadRequestError):
        converse(outer(inner()), session="s", store=store, model=model)
    again = ScriptedChatModel(script=["Two."])
    result = Session("s", store=store).resume(model=again)
    assert result.transcript == [("Bob", "Do it."), ("Ann", "Two.")]
    assert len(again.calls) == 1
    assert calls_of(result) == 2


@pytest.mark.parametrize("as_a_tool", [False, True])
async def test_a_run_that_is_broken_off_inside_is_resumed_inside(
    as_a_tool: bool, tmp_path: Path
) -> None:
    store = tmp_path / "s.db"
    tool = as_tool(inner(), name="research")
    first = [call(task="Beans.")] if as_a_tool else []
    model = ScriptedChatModel(script=[*first, "One.", Reply(text="Late.", delay=60)])
    talk = calling(tool) if as_a_tool else outer(inner())
    run = asyncio.create_task(aconverse(talk, session="s", store=store, model=model))
    while len(model.calls) < len(first) + 2:
        await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    rest = [*["Two."], *(["Done."] if as_a_tool else [])]
    again = ScriptedChatModel(script=rest)
    result = await Session("s", store=store).aresume(model=again, tools=[tool])
    assert len(again.calls) == len(rest)
    assert calls_of(result) == len(first) + 1 + len(rest)
    (found,) = result.inner_sessions.values()
    assert found.transcript == [("Iris", "One."), ("Jay", "Two.")]


# People inside.


@pytest.mark.parametrize("as_a_tool", [False, True])
def test_a_person_inside_is_asked_by_the_outer_session(as_a_tool: bool) -> None:
    store = f"memory:{uuid4()}"
    interview = inner(speakers=[{"name": "Pat", "replies": ["human"]}, {"name": "Jay"}], rounds=2)
    tool = as_tool(interview, name="research")
    tools = [tool] if as_a_tool else []
    talk = calling(tool) if as_a_tool else outer(interview)
    first = [call(message="Beans?")] if as_a_tool else []
    model = ScriptedChatModel(script=[*first, "One."])
    result = converse(talk, session="s", store=store, model=model)
    (question,) = result.pending
    assert question.speaker == "Pat"
    assert question.heard == "One."
    with pytest.raises(AnswerError):
        result.session.answer(3, model=model, tools=tools)
    rest = ScriptedChatModel(script=["Two.", *(["Done."] if as_a_tool else [])])
    result = Session("s", store=store).answer("Peas?", model=rest, tools=tools)
    assert result.pending == ()
    said = result.transcript
    assert said == (
        [("Ann", "Done."), ("Bob", "Yes.")] if as_a_tool else [("Bob", "Do it."), ("Ann", "Two.")]
    )
    (about,) = [one for one in map(fields_of, result.messages) if one.kind == "inner_session"]
    (found,) = result.inner_sessions.values()
    assert found.transcript == [
        ("Pat", "Beans?" if as_a_tool else "Do it."),
        *[("Jay", "One."), ("Pat", "Peas?"), ("Jay", "Two.")],
    ]


# Limits, usage and ends.


@pytest.mark.parametrize(
    ("limit", "reason"),
    [(MaxCalls(3), "max_calls"), (MaxTokens(30), "max_tokens"), (MaxCost(3e-5), "max_cost")],
)
@pytest.mark.parametrize("as_a_tool", [False, True])
def test_a_hard_limit_of_the_outer_conversation_stops_the_inner_one(
    limit: Any,  # noqa: ANN401
    reason: str,
    as_a_tool: bool,
) -> None:
    long = inner(rounds=50)
    tool = as_tool(long, name="research")
    script = ["Some words."] * 20
    first = [call(task="Beans.")] if as_a_tool else []
    model = ScriptedChatModel(script=[*first, *script])
    made = calling if as_a_tool else outer
    talk = made(
        tool if as_a_tool else long,
        end_chat={"when": limit},
        prices={"ScriptedChatModel": Price(input=1, output=1)},
    )
    result = converse(talk, store="memory:", model=model)
    assert result.stop_reason == reason
    assert len(model.calls) <= 4
    assert calls_of(result) == len(model.calls)
    (found,) = result.inner_sessions.values()
    assert found.stop_reason == reason


def test_the_inner_conversation_has_its_own_limits() -> None:
    bounded = inner(rounds=50, end_chat={"max_iterations": 50, "when": MaxCalls(2)})
    model = ScriptedChatModel(script=["One.", "Two."])
    result = converse(outer(bounded), store="memory:", model=model)
    assert result.stop_reason == "max_iterations"
    (found,) = result.inner_sessions.values()
    assert found.stop_reason == "max_calls"


def test_a_failure_inside_is_a_sentence_for_the_speaker_that_called_the_tool() -> None:
    tool = as_tool(inner(), name="research")
    model = ScriptedChatModel(
        script=[call(task="Beans."), "One.", Reply(error=400, message="no"), "Done."]
    )
    result = converse(calling(tool), store="memory:", model=model)
    assert result.transcript == [("Ann", "Done."), ("Bob", "Yes.")]
    (told,) = [one for one in result.messages if isinstance(one, ToolMessage)]
    assert told.status == "error"
    assert told.text == "research failed: BadRequestError: Error code: 400 - no"
    assert calls_of(result) == 3


def test_an_inner_conversation_without_an_output_is_an_error() -> None:
    silent = inner(
        speakers=[{"name": "Iris", "replies": [{"kind": "text", "text": "DONE"}]}, {"name": "Jay"}],
        end_chat={"when": {"kind": "done_token", "token": "DONE"}, "allow_unanswered_end": True},
    )
    with pytest.raises(ModelError, match="inner conversation of 'Ann' has ended without an output"):
        converse(outer(silent), store="memory:")
    model = ScriptedChatModel(script=[call(task="Beans."), "Done."])
    result = converse(calling(as_tool(silent, name="research")), store="memory:", model=model)
    (told,) = [one for one in result.messages if isinstance(one, ToolMessage)]
    assert told.text.startswith("research failed: its conversation has ended without an output: ")
