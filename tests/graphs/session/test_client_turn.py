"""A stored session that a client continues by messages waits for its person as any other does."""

from pathlib import Path
from typing import Any

import pytest

from duologue import Result, Session, SessionError, aconverse, chat
from duologue.graphs.build import build_graph
from duologue.graphs.conversation.questions import MessageQuestion
from duologue.graphs.session.checkpoints import config_of
from duologue.graphs.store.open import open_store
from duologue.nodes.testing import ScriptedChatModel


def model(*script: str) -> ScriptedChatModel:
    return ScriptedChatModel([*script])


@pytest.fixture
async def session(tmp_path: Path) -> Session:
    """Return a chat that a client has continued by one message."""
    store = f"{tmp_path / 'chat.sqlite'}"
    await aconverse(chat(), session="chat", store=store, model=model())
    async with open_store(store) as opened, opened.lock("chat") as held:
        graph = build_graph(checkpointer=held.checkpointer, model=model("One."))
        given: Any = {"messages": ["1?"]}
        found: Any = await graph.ainvoke(given, config_of("chat"))
        assert "__interrupt__" not in found
        row = await opened.get("chat")
        assert row is not None
        assert row.status == "waiting"
    return Session("chat", store=store)


def said(result: Result) -> list[str]:
    return [text for _, text in result.transcript]


async def test_it_waits_for_the_persons_message(session: Session) -> None:
    found = await session.astate()
    (question,) = found.pending
    assert isinstance(question, MessageQuestion)
    assert (question.speaker, question.heard) == ("User", "One.")
    assert str(found).endswith("Waiting for User: User, it is your turn. exit: leave.")
    assert found.output == "One."


async def test_its_question_is_answered_as_any_other(session: Session) -> None:
    (question,) = (await session.astate()).pending
    found = await session.aanswer("2?", question=question.id, model=model("Two."))
    assert said(found) == ["1?", "One.", "2?", "Two."]
    (after,) = found.pending
    assert after.id != question.id
    with pytest.raises(SessionError, match="already answered"):
        await session.aanswer("3?", question=question.id, model=model())


async def test_it_is_resumed_with_a_message(session: Session) -> None:
    found = await session.aresume(message="2?", model=model("Two."))
    assert said(found) == ["1?", "One.", "2?", "Two."]
    assert (await session.aanswer("exit")).stop_reason == "quit"


async def test_it_waits_on_without_an_answer(session: Session) -> None:
    found = await session.aresume(model=model())
    assert (said(found), len(found.pending)) == (["1?", "One."], 1)
