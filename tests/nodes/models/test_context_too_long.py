"""Prompts that are too long for a model: how servers report them, and duologue's error."""

import tomllib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Literal

import httpx2
import openai
import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from drawn.player import too_long
from duologue.graphs import ContextTooLongError, ModelError, ask, chat, converse, stream
from duologue.nodes.testing import Reply, ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from support.cases import thorough
from support.replies_in_bytes import Server, chunk, stream_of, use_server
from support.tables import each_row, read_rows

SAID = r"of 3000 tokens .* limit is 2048"


class Sum(BaseModel):
    """A sum."""

    total: int


def greet(model: Any) -> None:  # noqa: ANN401  # a name or a chat model
    ask({"name": "Ann"}, "Hi", model=model, store="memory:")


def stream_greeting(model: Any) -> None:  # noqa: ANN401
    list(stream(chat("Hi", max_iterations=1), model=model, store="memory:long-prompts"))


def structured(model: Any) -> None:  # noqa: ANN401
    ask({"name": "Ann"}, "Hi", schema=Sum, model=model, store="memory:")


def ours(url: str) -> str:
    """Return the name of a model, which our own client calls."""
    return "scripted"


def stock(url: str) -> ChatOpenAI:
    """Return a plain client, as a user makes it in Python."""
    return ChatOpenAI(model="scripted", base_url=url, api_key=SecretStr("k"), max_retries=0)


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "0")


def call_at(server: ScriptedServer, run: Callable[[Any], None], made: Callable[[str], Any]) -> None:
    """Call a model at a server."""
    with use_server(server):
        run(made(server.url))


BODIES: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("long_prompts.toml").read_text("utf-8")
)
WAYS = tuple(product((greet, structured, stream_greeting), (ours, stock)))


@thorough
def test_every_servers_way_to_say_it_is_one_sentence_with_the_numbers(
    *, thorough: bool, subtests: pytest.Subtests
) -> None:
    """U5: context overflow. The quick run tries one way per body."""
    for number, (name, body) in enumerate(BODIES.items()):
        for run, made in WAYS if thorough else [WAYS[number % len(WAYS)]]:
            reply = Reply(error=body.get("status", 400), body=body["body"])
            with (
                subtests.test(f"{name}, {run.__name__}, {made.__name__}"),
                ScriptedServer([reply]) as server,
            ):
                with pytest.raises(ContextTooLongError) as caught:
                    call_at(server, run, made)
                assert len(server.calls) == 1
                numbers = (body.get("prompt"), body.get("limit"))
                assert (caught.value.prompt_tokens, caught.value.limit) == numbers
                sentence = str(caught.value)
                assert "\n" not in sentence
                assert "scripted" in sentence
                assert "context" in sentence
                assert all(str(number) in sentence for number in numbers if number is not None)


@pytest.mark.parametrize("like", ["openai", "llama.cpp"])
@pytest.mark.parametrize("made", [ours, stock])
def test_a_scripted_refusal_looks_like_the_servers(
    like: Literal["openai", "llama.cpp"], made: Callable[[str], Any]
) -> None:
    refusal = too_long(3000, 2048, like=like)
    with ScriptedServer([refusal]) as server, pytest.raises(ContextTooLongError, match=SAID):
        call_at(server, greet, made)
    with pytest.raises(ContextTooLongError, match=SAID):
        greet(ScriptedChatModel([refusal]))


OTHERS = read_rows(__file__, "other_reasons")


@pytest.mark.part(3)
@pytest.mark.parametrize("reason", OTHERS)
def test_what_is_wrong_for_another_reason_stays_what_it_is(reason: str) -> None:
    with ScriptedServer(lambda _: Reply(**OTHERS[reason])) as server:
        with pytest.raises(ModelError) as caught:
            call_at(server, greet, ours)
        assert not isinstance(caught.value, ContextTooLongError)
        # Errors of a user's own model object stay unchanged.
        with pytest.raises(openai.APIStatusError):
            call_at(server, greet, stock)


REQUEST = httpx2.Request("POST", "http://here/v1/chat/completions")
IN_STREAM = {"message": "Your input exceeds the context window of this model.", "code": None}


def test_a_users_own_model_may_raise_any_clients_error() -> None:
    overflow = ContextOverflowError("prompt is too long: 9 tokens > 8")
    with pytest.raises(ContextTooLongError, match="model ScriptedChatModel") as caught:
        greet(ScriptedChatModel([overflow]))
    assert (caught.value.prompt_tokens, caught.value.limit) == (9, 8)
    # The error of a stream that began with status 200 has no status.
    with pytest.raises(ContextTooLongError):
        greet(ScriptedChatModel([openai.APIError(str(IN_STREAM), REQUEST, body=IN_STREAM)]))
    for other in (
        openai.APIError("on fire", REQUEST, body=None),
        KeyError("maximum context length is 8"),
    ):
        with pytest.raises(type(other)) as passed:
            greet(ScriptedChatModel([other]))
        assert passed.value is other


@pytest.mark.parametrize("code", ["context_length_exceeded", None])
def test_it_is_recognised_in_the_middle_of_a_stream_and_not_asked_again(
    code: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some servers answer 200, and send the error as an event after the first tokens."""
    message = "the request exceeds the available context size"
    told = {"error": {"message": message, "type": "invalid_request_error", "code": code}}
    events = stream_of(chunk({"role": "assistant", "content": "We"}), told, done=False)
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "2")
    with (
        Server(events) as server,
        use_server(server),
        pytest.raises(ContextTooLongError),
    ):
        stream_greeting("scripted")
    assert len(server.asked) == 1


@each_row("an_answer_ran_out_of_room_where_it_was_cut_off_before_its_own_limit")
def test_an_answer_ran_out_of_room_where_it_was_cut_off_before_its_own_limit(
    reason: str | None, tokens: int | None, max_tokens: int | None, is_full: bool
) -> None:
    """The model is then asked again, with a shorter history."""
    answer = AIMessage("And so", response_metadata={"finish_reason": reason})
    if tokens is not None:
        answer.usage_metadata = {
            "input_tokens": 90,
            "output_tokens": tokens,
            "total_tokens": 90 + tokens,
        }
    lines = [AIMessage("One."), AIMessage("Two."), answer, AIMessage("Three."), AIMessage("Four.")]
    talk = {
        "task": "Tell a story.",
        "speakers": [
            {"name": "Ann", "model_settings": {"max_tokens": max_tokens}},
            {"name": "Bob", "replies": [{"kind": "text", "text": "Go on."}]},
        ],
        "end_chat": {"max_iterations": 3},
    }
    model = FakeMessagesListChatModel(responses=[*lines])
    result = converse(talk, model=model, store="memory:")
    said = [text for name, text in result.transcript if name == "Ann"]
    assert said[2] == ("Three." if is_full else "And so")
