"""Agents behind HTTP: servers with a key and a model, and endpoints with JSON of any form."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langgraph.pregel.remote import RemoteGraph

from duologue import AgentError, Scenario, SpecError, simulate
from duologue.graphs.scenarios import HttpAgent, SimulationResult, run_suite
from duologue.nodes.testing import Line, Prompt, ScriptedChatModel
from support.cli_help import duologue
from support.faulty_server import Body, FaultyServer, Sent

ORDER = "You want order 7 refunded."


class Request(NamedTuple):
    path: str
    body: Any
    headers: dict[str, str]


@contextmanager
def served(answer: Callable[[Request], object]) -> Iterator[tuple[str, list[Request]]]:
    """Serve JSON; yield the server's address and the requests."""
    asked: list[Request] = []

    def reply(path: str, body: Body) -> Sent:
        asked.append(Request(path, body, server.headers))
        found = answer(asked[-1])
        status, found = found if isinstance(found, tuple) else (200, found)
        return Sent((found if isinstance(found, str) else json.dumps(found)).encode(), status)

    with FaultyServer(reply) as server:
        yield server.url.removesuffix("/v1"), asked


def play(agent: object, *says: str, **options: Any) -> SimulationResult:
    model = ScriptedChatModel([*(says or ("Refund order 7.",)), "###STOP###"])
    return simulate(Scenario(ORDER), agent, model=model, store="memory:", **options)


def answer_as_openai(request: Request) -> object:
    if request.headers.get("authorization") != "Bearer s3cret-of-the-shop":
        return 401, {"error": {"message": "no key"}}
    message = {"role": "assistant", "content": f"{request.body['model']}: refunded."}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


@pytest.mark.parametrize("path", ["/v1", "/agents/shop:v1"])
def test_a_server_gets_its_key_and_its_model_s_name(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("SHOP_KEY", "s3cret-of-the-shop")
    with served(answer_as_openai) as (url, asked):
        result = play(f"{url}{path}", agent_key_env="SHOP_KEY", agent_model="shop-2")
        assert result.transcript[1] == ("Agent", "shop-2: refunded.")
        assert asked[0].path == f"{path}/chat/completions"
        with pytest.raises(AgentError, match="no key"):
            play(f"{url}/v1", agent_model="shop-2")
    assert "s3cret" not in str(result.conversation.conversation.model_dump())


@pytest.mark.parametrize("agent", [lambda messages: "Done.", "a2a:http://127.0.0.1:1/"])
def test_only_a_url_has_a_key_that_is_set_and_a_model(agent: object) -> None:
    for name in ("agent_key_env", "agent_model"):
        with pytest.raises(SpecError, match=f"{name}: only an agent that is a URL"):
            play(agent, **{name: "SHOP_KEY"})
    with pytest.raises(SpecError, match="agent_key_env: the environment variable 'NO_SUCH_KEY'"):
        play("http://127.0.0.1:1/v1", agent_key_env="NO_SUCH_KEY")


def test_the_command_has_options_for_the_key_and_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "s3cret-of-the-shop")
    monkeypatch.chdir(tmp_path)
    Path("shop.toml").write_text(f'[scenarios.refund]\ngoal = "{ORDER}"\nmax_iterations = 1\n')
    with served(answer_as_openai) as (url, asked):
        options = ["--agent-key-env", "SHOP_KEY", "--agent-model", "shop-2"]
        store = f"sqlite:///{tmp_path}/s.db"
        found = duologue(
            "simulate", "shop.toml", "--agent", f"{url}/v1", *options, "--store", store
        )
    assert asked, found.output
    assert {one.body["model"] for one in asked} == {"shop-2"}
    assert b"s3cret" not in Path("s.db").read_bytes()


def test_an_endpoint_of_any_json_form_is_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "s3cret-of-the-shop")

    def answer(request: Request) -> object:
        return {"answers": [{"text": f"{len(request.body['history'])} known: {{message}}"}]}

    with served(answer) as (url, asked):
        agent = HttpAgent(
            f"{url}/ask",
            request={
                "question": "User says: {message}",
                "session": {"id": "s-{conversation}"},
                "history": "{messages}",
                "lists": ["{message}", 1, None],
            },
            reply="answers.0.text",
            headers_env={"X-Api-Key": "SHOP_KEY"},
        )
        first = play(agent, "Refund {conversation}.", "Now.")
        play(agent)
    assert [text for name, text in first.transcript if name == "Agent"] == [
        "1 known: {message}",
        "3 known: {message}",
    ]
    assert asked[0].body["question"] == "User says: Refund {conversation}."
    assert asked[0].body["lists"] == ["Refund {conversation}.", 1, None]
    assert asked[1].body["history"][1] == {"role": "assistant", "content": "1 known: {message}"}
    ids = [one.body["session"]["id"] for one in asked]
    assert ids[0] == ids[1] != ids[2], "each simulation is a conversation of its own"
    assert asked[0].headers["x-api-key"] == "s3cret-of-the-shop"


@pytest.mark.parametrize("sent", ['"Refunded."', "Refunded."])
def test_a_response_may_be_the_reply_itself(sent: str) -> None:
    with served(lambda request: sent) as (url, _):
        assert play(HttpAgent(url, reply="")).transcript[1] == ("Agent", "Refunded.")


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ((500, "broken"), "does not reply: it answered 500 broken"),
        ("no JSON", "it answered no JSON: no JSON"),
        ({"other": 1}, "its response has no 'reply' of the path 'reply'"),
        ({"reply": 7}, "'reply' of its response is no text"),
        ([], "its response has no 'reply'"),
    ],
)
def test_a_wrong_response_is_one_error(sent: object, problem: str) -> None:
    with served(lambda request: sent) as (url, _), pytest.raises(AgentError, match=problem):
        play(HttpAgent(url))


def test_wrong_arguments_are_refused_when_the_agent_is_made() -> None:
    with pytest.raises(SpecError, match="agent: "):
        HttpAgent("shop.example/ask")
    with pytest.raises(SpecError, match="reply: must be a path"):
        HttpAgent("http://127.0.0.1:1/", reply=".")
    wrong: dict[str, Any] = {"request": "x", "reply": 5, "headers_env": ["X-Key"], "url": 5}
    for name, value in wrong.items():
        with pytest.raises(SpecError, match=f"^{name}: must be (text|a dict), not "):
            HttpAgent(**{"url": "http://127.0.0.1:1/"} | {name: value})


@pytest.mark.parametrize("variable", ["NO_SUCH_KEY", 5])
def test_a_missing_variable_is_an_error_before_a_model_is_called(variable: Any) -> None:  # noqa: ANN401
    agent, model = (
        HttpAgent("http://x.test/", headers_env={"X-Key": variable}),
        ScriptedChatModel([]),
    )
    suite = {"scenarios": {"refund": {"goal": ORDER}}}
    for run in (
        lambda: simulate(Scenario(ORDER), agent, model=model, store="memory:"),
        lambda: run_suite(suite, agent, name="x", model=model, store="memory:"),
    ):
        with pytest.raises(SpecError, match=rf"^headers_env.X-Key: .* {variable!r} is not set"):
            run()
    assert not model.calls


@pytest.mark.parametrize(
    ("agent", "shown"),
    [
        (HttpAgent("http://me:pass-1@127.0.0.1:1/ask?token=word-1"), "127.0.0.1:1/ask"),
        ("a2a:http://me:pass-1@127.0.0.1:1/a2a/shop?token=word-1", "127.0.0.1:1/a2a/shop"),
        ("http://me:pass-1@127.0.0.1:1/v1", "127.0.0.1:1/v1"),
        (RemoteGraph("shop", url="http://me:pass-1@127.0.0.1:1"), "127.0.0.1:1/threads"),
    ],
    ids=["any JSON", "A2A", "OpenAI", "LangGraph"],
)
def test_an_agent_that_is_down_is_one_line_with_its_address_and_no_password(
    agent: object, shown: str
) -> None:
    with pytest.raises(AgentError) as caught:
        play(agent)
    text = str(caught.value)
    assert shown in text
    assert not [one for one in ("pass-1", "word-1", "\n") if one in text]


def test_the_simulations_of_a_suite_are_conversations_of_their_own(tmp_path: Path) -> None:
    def play_user(prompt: Prompt) -> Line:
        is_first = not any(one["role"] == "assistant" for one in prompt)
        return "Refund order 7." if is_first else "###STOP###"

    with served(lambda request: {"reply": "Done."}) as (url, asked):
        agent = HttpAgent(url, request={"id": "{conversation}", "text": "{message}"})
        suite = {"scenarios": {"refund": {"goal": ORDER}}, "trials": 3}
        options: dict[str, Any] = {"store": f"memory:{tmp_path.name}", "name": "shop"}
        report = run_suite(suite, agent, model=ScriptedChatModel(play_user), **options)
    assert report.passed == 3
    assert len({one.body["id"] for one in asked}) == 3
