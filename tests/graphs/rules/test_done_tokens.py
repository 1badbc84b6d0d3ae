"""Done tokens in conversations: their listeners, the end, and the comparison of specs."""

from typing import Any

import pytest

from duologue.graphs import (
    Conversation,
    DoneToken,
    EndChat,
    Guards,
    SessionError,
    Speaker,
    converse,
    load_conversation,
    role_play,
    stream,
)
from duologue.graphs.events import MessageSaid, MessageToken
from duologue.nodes.testing import Reply, ScriptedChatModel
from support.ends import End
from support.tables import each_row

STOP = "###STOP###"
ANN, BOB = DoneToken(token=STOP, by="Ann"), DoneToken(token=STOP, by="Bob")


def talk(when: End, **end_chat: Any) -> Conversation:
    return Conversation(
        task="Plan.",
        speakers=(Speaker(name="Ann"), Speaker(name="Bob")),
        end_chat=EndChat(when=when, guards=Guards(same_replies=0, farewells=0), **end_chat),
    )


DONE = "<CAMEL_TASK_DONE>"


@pytest.mark.part(4)
@each_row("instructions")
@pytest.mark.parametrize("size", [1, 3, 100])
def test_r1_a_token_that_is_the_whole_of_an_instruction_ends_it(
    said: str, heard: str | None, size: int
) -> None:
    spec = role_play(
        "Plan.",
        "Lead",
        "Solver",
        specify_task=False,
        max_iterations=1,
        end_chat={"allow_unanswered_end": True},
    )
    chunks = tuple(said[at : at + size] for at in range(0, len(said), size))
    model = ScriptedChatModel(script=[Reply(text=said, chunks=chunks), "Solution: So it is."])
    events = [*stream(spec, model=model, store="memory:")]
    assert len(model.calls) == (2 if heard is None else 1)
    message = next(one for one in events if isinstance(one, MessageSaid))
    assert message.heard_text == heard
    told = [one.text for one in events if isinstance(one, MessageToken) and one.speaker == "Lead"]
    assert "".join(told) == (message.text if heard is None else heard)


@each_row("heard")
def test_r1_nothing_odd_is_heard_of_a_message_with_a_token(said: str, heard: str) -> None:
    model = ScriptedChatModel(
        script=["Hi.", "Hello.", Reply(text=said, chunks=tuple(said)), "Really?", "Yes.", STOP]
    )
    events = [*stream(talk(ANN & BOB), model=model, store="memory:")]
    assert model.calls[3].prompt[-1]["content"] == heard
    message = [one for one in events if isinstance(one, MessageSaid)][2]
    told = [one.text for one in events if isinstance(one, MessageToken) and one.speaker == "Ann"]
    assert "".join(told) == f"Hi.{message.heard_text}Yes."
    assert message.heard_text == ("" if heard == "(empty message)" else heard)


# Comparisons with the spec of a stored session

OLD: dict[str, Any] = {
    "task": "Plan.",
    "speakers": [{"name": "Ann"}, {"name": "Bob"}],
    "end_chat": {"when": {"kind": "done_token", "token": STOP}},
}


def test_what_was_not_set_is_not_compared_and_the_stored_holds() -> None:
    """Fields that were not set are not compared, at any depth: their defaults may have changed."""
    store = "memory:unset"
    guarded = {"max_iterations": 2, "guards": {"farewells": 9}}
    first = load_conversation({**OLD, "end_chat": {**OLD["end_chat"], **guarded}})
    converse(first, session="t", store=store, model=ScriptedChatModel(script=["A."] * 4))
    same: list[dict[str, Any]] = [{}, {"guards": {"farewells": 9}}, {"max_iterations": 2}]
    for end_chat in same:
        again = converse(
            {**OLD, "end_chat": {**OLD["end_chat"], **end_chat}}, session="t", store=store
        )
        assert again.conversation == first
    others: list[tuple[dict[str, Any], str]] = [
        ({"max_iterations": 5}, "end_chat.max_iterations"),
        ({"guards": {"farewells": 4}}, "end_chat.guards.farewells"),
        ({"when": {"kind": "done_token", "token": "X"}}, "end_chat.when.token"),
        ({"when": {"kind": "done_token", "token": STOP, "match": "last"}}, "end_chat.when.match"),
        ({"when": {"kind": "max_messages", "limit": 9}}, "end_chat.when"),
    ]
    for end_chat, field in others:
        given = {**OLD, "end_chat": {**OLD["end_chat"], **end_chat}}
        with pytest.raises(SessionError, match=f"{field} differs"):
            converse(given, session="t", store=store)
