"""Tests of the settings that are sent to a model, and of settings that it refuses (R24)."""

import tomllib
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from duologue.graphs import (
    Conversation,
    ModelError,
    ModelSettings,
    Speaker,
    SpecError,
    converse,
)
from duologue.nodes.testing import Reply, ScriptedChatModel
from duologue.nodes.testing.server import Request, ScriptedServer
from support.replies_in_bytes import use_server

ROWS = tomllib.loads(Path(__file__).with_name("settings.toml").read_text("utf-8"))

Fields = dict[str, Any]

TEMPERATURE = (
    "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) "
    "value is supported."
)
LIMIT = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
    "'max_completion_tokens' instead."
)
BOTH = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
VERDICT = '{"criterion_1": "met"}'
JUDGE = {"kind": "separate", "criteria": ["They greet."]}


def talk(rounds: int = 1, **fields: Any) -> Conversation:
    ann = {"name": "Ann", "model_settings": fields.pop("model_settings", {})}
    ends = {"max_iterations": rounds}
    given = {"task": "Greet.", "speakers": [ann, {"name": "Bob"}], "end_chat": ends}
    return Conversation(**(given | fields))


def held(server: ScriptedServer, model: str = "scripted", **fields: Any) -> list[Fields]:
    """Run a conversation with a server's model; return the request bodies."""
    with use_server(server):
        converse(talk(**fields), model=model, store="memory:")
    return [call.body for call in server.calls]


def refusing(
    name: str, message: str, text: str = "Hi."
) -> Callable[[object, Request], Reply | str]:
    """Return a script that refuses each request with a parameter, as a server does."""

    def answer(_: object, request: Request) -> Reply | str:
        if name in request.body:
            fault = {"message": message, "type": "invalid_request_error", "param": name}
            return Reply(error=400, body={"error": fault})
        return VERDICT if "response_format" in request.body else text

    return answer


def test_a_default_that_a_model_refuses_is_left_out_from_then_on() -> None:
    with ScriptedServer(refusing("temperature", TEMPERATURE)) as server:
        bodies = held(server, rounds=2)
        again = held(server)
    assert ["temperature" in body for body in bodies] == [True, False, False, False, False]
    assert not any("temperature" in body for body in again[len(bodies) :])


def test_a_setting_of_the_users_that_a_model_refuses_is_one_error() -> None:
    with (
        ScriptedServer(refusing("temperature", TEMPERATURE)) as server,
        pytest.raises(ModelError) as caught,
    ):
        held(server, model_settings={"temperature": 0.2})
    assert str(caught.value) == (
        "speakers.0.model_settings.temperature: the model 'scripted' refuses 0.2; remove it, or "
        f"choose another model: {TEMPERATURE}"
    )
    assert len(server.calls) == 1


def test_of_two_settings_that_exclude_each_other_the_default_is_left_out() -> None:
    def answer(_: object, request: Request) -> Reply | str:
        is_refused = {"temperature", "top_p"} <= {*request.body}
        return Reply(error=400, message=BOTH) if is_refused else "Hi."

    with ScriptedServer(answer) as server:
        bodies = held(server, model_settings={"top_p": 0.5})
    # Ann's call, its repetition, and Bob's call.
    assert [body.get("top_p") for body in bodies] == [0.5, 0.5, None]
    assert ["temperature" in body for body in bodies] == [True, False, False]


def test_a_limit_is_sent_by_the_name_that_a_server_knows() -> None:
    with ScriptedServer(lambda _: "Hi.") as server:
        older = held(server, model_settings={"max_tokens": 9})
    with ScriptedServer(refusing("max_tokens", LIMIT)) as server:
        newer = held(server, rounds=2, model_settings={"max_tokens": 9})
    names = ("max_tokens", "max_completion_tokens")
    assert [[body.get(name) for name in names] for body in older] == [[9, None], [None, None]]
    # The first call is refused once; after it, Ann and Bob speak in turn.
    assert [[body.get(name) for name in names] for body in newer] == [
        *([9, None], [None, 9], [None, None], [None, 9], [None, None])
    ]


def test_a_verdicts_default_limit_is_left_out_if_it_is_refused() -> None:
    message = "`max_tokens` must be greater than `thinking.budget_tokens`."
    with ScriptedServer(refusing("max_tokens", message)) as server:
        bodies = held(server, judge=JUDGE)
    verdicts = [body for body in bodies if "response_format" in body]
    assert ["max_tokens" in body for body in verdicts] == [True, False]


def test_no_temperature_is_sent_if_it_is_unset() -> None:
    judge = JUDGE | {"temperature": "unset"}
    with ScriptedServer(refusing("nothing", "")) as server:
        bodies = held(server, model_settings={"temperature": "unset"}, judge=judge)
    ann, bob, verdict = (body.get("temperature") for body in bodies)
    assert [ann, bob, verdict] == [None, 0.2, None]


def test_another_bad_request_is_made_once() -> None:
    error = Reply(error=400, message="The weather is bad.")
    with ScriptedServer(lambda _: error) as server, pytest.raises(ModelError, match="weather"):
        held(server)
    assert len(server.calls) == 1


def test_a_model_with_langchains_prefix_for_openai_is_asked_by_its_name() -> None:
    with ScriptedServer(lambda _: "Hi.", models=("gpt-4.1-mini",)) as server:
        bodies = held(server, model="openai:gpt-4.1-mini")
    assert {body["model"] for body in bodies} == {"gpt-4.1-mini"}


def test_further_settings_reach_the_request() -> None:
    further = {
        "extra_args": {"reasoning_effort": "low", "logit_bias": {"1": 2}},
        "extra_body": {"top_k": 3},
        "extra_headers": {"X-Team": "a"},
    }
    with ScriptedServer(lambda _: "Hi.") as server:
        ann, bob = held(server, model_settings=further)
        headers = [call.headers.get("x-team") for call in server.calls]
    assert {name: ann.get(name) for name in ("reasoning_effort", "logit_bias", "top_k")} == {
        "reasoning_effort": "low",
        "logit_bias": {"1": 2},
        "top_k": 3,
    }
    assert headers == ["a", None]
    assert not {"reasoning_effort", "logit_bias", "top_k"} & {*bob}


def test_a_further_setting_that_a_model_refuses_is_named() -> None:
    answer = refusing("reasoning_effort", "Unrecognized request argument: reasoning_effort")
    with ScriptedServer(answer) as server, pytest.raises(ModelError) as caught:
        held(server, model_settings={"extra_args": {"reasoning_effort": "low"}})
    start = (
        "speakers.0.model_settings.extra_args.reasoning_effort: the model 'scripted' refuses 'low'"
    )
    assert str(caught.value).startswith(start)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"extra_headers": {"Authorization": "x"}}, "is set by each call"),
        ({"extra_headers": {"a b": "x"}}, "is not a valid name of a header"),
        ({"extra_headers": {"a": "x\r\nb: y"}}, "one line of ASCII text"),
        ({"extra_args": {"user": "a"}, "extra_body": {"user": "b"}}, "set it only once"),
        ({"extra_args": {"user": object()}}, "extra_args.user"),
        ({"temperature": 3}, "temperature: input should be less than or equal to 2"),
        ({"temperature": "warm"}, "temperature: input should be a valid number"),
    ],
)
def test_settings_that_are_not_valid_are_refused(given: Mapping[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=r"^speakers\.0\.model_settings"):
        talk(model_settings=given)
    with pytest.raises(SpecError) as caught:
        ModelSettings(**given)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    ROWS["settings_that_collide_are_refused_before_the_first_call"],
)
def test_settings_that_collide_are_refused_before_the_first_call(
    given: Mapping[str, Any], message: str
) -> None:
    with ScriptedServer(lambda _: "Hi.") as server, pytest.raises(SpecError) as caught:
        held(server, model_settings=given)
    assert str(caught.value) == f"speakers.0.model_settings.{message}"
    with pytest.raises(SpecError) as caught:
        converse(talk(model_settings=given), model=strict(), store="memory:")
    assert str(caught.value) == f"speakers.0.model_settings.{message}"
    assert not server.calls


@pytest.mark.parametrize(
    ("name", "value", "extra"),
    [("stop", ["x"], {"use_responses_api": True}), ("seed", 1, {"reasoning": {"effort": "low"}})],
)
def test_settings_that_the_responses_api_lacks_are_refused_before_the_first_call(
    name: str, value: object, extra: dict[str, Any]
) -> None:
    further = {"extra_args": extra, name: value}
    with ScriptedServer(lambda _: "Hi.") as server, pytest.raises(SpecError) as caught:
        held(server, model_settings=further)
    assert str(caught.value).startswith(f"speakers.0.model_settings.{name}: OpenAI's Responses API")
    assert not server.calls


def strict() -> ScriptedChatModel:
    """Return a user's own model, whose calls accept few settings."""

    def ask(top_p: float = 1) -> str:
        return "Hi."

    return ScriptedChatModel(lambda prompt, call: ask(**call.kwargs))


def test_a_default_that_a_users_client_does_not_know_is_left_out() -> None:
    model = strict()
    result = converse(talk(model_settings={"top_p": 0.5}), model=model, store="memory:")
    assert len(result.transcript) == 2
    assert [call.kwargs for call in model.calls] == [
        {"temperature": 0.2, "top_p": 0.5},
        {"top_p": 0.5},
        {},
    ]


def test_a_setting_that_a_users_client_does_not_know_is_one_error() -> None:
    with pytest.raises(
        ModelError, match=r"speakers\.0\.model_settings\.seed: the model .* refuses 7"
    ):
        converse(
            talk(model_settings={"seed": 7}),
            model=strict(),
            store="memory:",
        )


@pytest.mark.parametrize(
    ("model_settings", "expected"),
    [({}, 0.9), ({"temperature": 0.4}, 0.4), ({"temperature": "unset"}, 0.9)],
)
@pytest.mark.parametrize("way", ["field", "bound", "fallback"])
def test_a_temperature_of_the_users_object_goes_before_a_default(
    way: str, model_settings: Fields, expected: float
) -> None:
    with ScriptedServer(lambda _: "Hi.") as server:

        def client(**settings: Any) -> ChatOpenAI:
            key = SecretStr("none")
            return ChatOpenAI(model="scripted", base_url=server.url, api_key=key, **settings)

        made: dict[str, Any] = {
            "field": lambda: client(temperature=0.9),
            "bound": lambda: client().bind(temperature=0.9),
            "fallback": lambda: client(temperature=0.9).with_fallbacks([client()]),
        }
        converse(talk(model_settings=model_settings), model=made[way](), store="memory:")
        assert server.calls[0].body["temperature"] == expected


def test_a_default_is_shared_by_no_two_speakers() -> None:
    """Models are frozen, but Python can change a dict inside one."""
    Speaker("A").model_settings.extra_headers["X-Key"] = "secret"
    assert Speaker("B").model_settings.extra_headers == {}
    inner: dict[str, Any] = {"b": 1}
    settings = ModelSettings(extra_body={"a": inner})
    copied: Any = deepcopy(settings).extra_body["a"]
    copied["b"] = 2
    assert settings.extra_body == {"a": {"b": 1}}
