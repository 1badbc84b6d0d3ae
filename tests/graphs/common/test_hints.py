"""Remedies for wrong guesses of new users."""

from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda

from duologue.graphs import (
    Batch,
    Conversation,
    DoneToken,
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
from duologue.graphs.common.errors import function_error
from duologue.graphs.common.settings import load_settings
from duologue.graphs.session.fork import apply_changes
from duologue.nodes.testing import ScriptedChatModel
from support.tables import check_rows, each_row, read_rows


def speak(turn: object) -> str:
    return "Hi."


class Thing:
    """An object that is neither a function nor an agent."""


PUBLIC = (Batch, Conversation, DoneToken, Scenario, SeparateJudge, Session, Speaker, Thing)


def names() -> dict[str, Any]:
    one, two = Speaker("One"), Speaker("Two")
    return {
        "agent": RunnableLambda(lambda messages: "Hi."),
        "model": ScriptedChatModel([]),
        "speak": speak,
        "one": one,
        "two": two,
        "talk": Conversation("Talk.", [one, two]),
        **{kind.__name__: kind for kind in PUBLIC},
        "chat": chat,
        "converse": converse,
        "simulate": simulate,
        "run": lambda fields: build_graph().invoke({"conversation": fields}),
        "role_play": role_play,
        "apply_changes": apply_changes,
    }


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
        load_settings()


def test_an_unknown_model_of_a_server_that_is_an_agent_is_explained() -> None:
    class NotFoundError(Exception):
        status_code = 404
        request = type("Request", (), {"url": "http://127.0.0.1:1/v1"})

    told = str(function_error("agent", "shop", NotFoundError("no model")))
    assert told.endswith("; name the model of this server by agent_model (--agent-model)")
    assert "agent_model" not in str(function_error("tool", "shop", NotFoundError("no model")))
