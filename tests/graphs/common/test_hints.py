"""Remedies for wrong guesses of new users."""

from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda

from duologue.graphs import (
    Batch,
    Conversation,
    DoneToken,
    DuologueError,
    EndChat,
    Guards,
    MaxMessages,
    Price,
    Scenario,
    SeparateJudge,
    Session,
    Speaker,
    SpecError,
    build_graph,
    chat,
    converse,
    role_play,
    simulate,
)
from duologue.nodes.testing import ScriptedChatModel
from support.tables import check_rows, each_row, read_rows


def speak(turn: object) -> str:
    return "Hi."


class Thing:
    """An object that is neither a function nor an agent."""


PUBLIC = (Batch, Conversation, DoneToken, EndChat, Guards, MaxMessages, Price, Scenario)
OTHERS = (SeparateJudge, Session, Speaker, Thing)


TALK = Conversation("Talk.", [Speaker("One"), Speaker("Two")])


def names() -> dict[str, Any]:
    return {
        "agent": RunnableLambda(lambda messages: "Hi."),
        "model": ScriptedChatModel([]),
        "speak": speak,
        "one": TALK.speakers[0],
        "two": TALK.speakers[1],
        "talk": TALK,
        **{kind.__name__: kind for kind in (*PUBLIC, *OTHERS)},
        "chat": chat,
        "converse": converse,
        "simulate": simulate,
        "run": lambda fields: build_graph().invoke({"conversation": fields}),
        "role_play": role_play,
        "fork": begin_session().fork,
    }


def begin_session() -> Session:
    store = "memory:guesses"
    with pytest.raises(RuntimeError):
        converse(TALK, session="s", model=ScriptedChatModel([RuntimeError()]), store=store)
    return Session("s", store=store)


def test_a_wrong_guess_gets_the_right_form() -> None:
    def check(code: str, said: str) -> None:
        with pytest.raises((SpecError, TypeError)) as caught:
            eval(code, names())  # noqa: S307  # code of the table
        assert str(caught.value) == said

    check_rows(read_rows(__file__, "guesses"), check)


def test_a_value_whose_attributes_raise_does_not_hide_the_error() -> None:
    class Proxy:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError("outside of a request")

    with pytest.raises(SpecError, match=r"^checks\.0: input should be callable, not Proxy$"):
        Scenario("Get a refund.", checks=[Proxy()])


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "DUOLOGUE_API_KEY"])
@each_row("placeholders")
def test_a_key_that_is_still_a_placeholder_is_refused(
    key: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, key)
    with pytest.raises(SpecError, match="is still a placeholder; set your own key"):
        converse(TALK, model=ScriptedChatModel([]), store="memory:")


def test_an_unknown_model_of_a_server_that_is_an_agent_is_explained() -> None:
    class NotFoundError(Exception):
        status_code = 404
        request = type("Request", (), {"url": "http://127.0.0.1:1/v1"})

    def shop(turn: object) -> str:
        raise NotFoundError("no model")

    def find_error(speaker: Speaker) -> str:
        with pytest.raises(DuologueError) as caught:
            converse(Conversation("Talk.", [speaker, Speaker("Two")]), store="memory:")
        return str(caught.value)

    remedy = "; name the model of this server by agent_model (--agent-model)"
    agent = Speaker("One", replies=[RunnableLambda(shop, name="shop")])
    assert find_error(agent).endswith(remedy)
    assert "agent_model" not in find_error(Speaker("One", replies=[shop]))
