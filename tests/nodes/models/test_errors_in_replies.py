"""An error in a reply with status 200 is treated like the same error with an HTTP status (R25)."""

import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import (
    Batch,
    BatchRun,
    ModelError,
    ModelUnavailableError,
    chat,
    converse,
    run_batch,
    stream,
)
from duologue.nodes.testing import Reply, Script
from duologue.nodes.testing.server import ScriptedServer
from support.cases import thorough
from support.faulty_server import Body, Sent
from support.replies_in_bytes import EVENTS, Server, chunk, json_of, say, stream_of, use_server

TALK = chat("Say hi.", assistant="Clerk", max_iterations=1)


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MODEL": "m", "API_KEY": "k", "STORE": "memory:errors-in-replies"}.items():
        monkeypatch.setenv(f"DUOLOGUE_{name}", value)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list of the waits before repeated calls, which take no time."""
    found: list[float] = []

    async def note(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr("duologue.nodes.models.client.failures.sleep", note)
    return found


def run(server: Server, *, streams: bool) -> None:
    with use_server(server):
        if streams:
            list(stream(TALK))
        else:
            converse(TALK)


ERRORS = tomllib.loads(Path(__file__).with_name("reported_errors.toml").read_text("utf-8"))
TEMPORARY, FINAL = ERRORS["temporary"], ERRORS["final"]


def in_body(error: object) -> Callable[[Body], Sent]:
    return lambda _: json_of({"error": error})


def in_list(error: object) -> Callable[[Body], Sent]:
    return lambda _: json_of([{"error": error}])


def in_choice(error: object) -> Callable[[Body], Sent]:
    broken = {"message": {"content": "I am"}, "error": error}
    return lambda _: json_of({"choices": [broken]})


def in_first_event(error: object) -> Callable[[Body], Sent]:
    return lambda _: stream_of({"error": error}, done=False)


def in_later_event(error: object) -> Callable[[Body], Sent]:
    return lambda _: stream_of(chunk({"content": "I am"}), {"error": error})


def in_choice_of_event(error: object) -> Callable[[Body], Sent]:
    broken = chunk({"content": ""}, "error", error=error)
    return lambda _: stream_of(chunk({"content": "I am"}), broken)


FORMS = [in_body, in_list, in_choice, in_first_event, in_later_event, in_choice_of_event]


def in_turn(names: Iterable[str]) -> list[Any]:
    """Return names of errors, each with a form of the reply and with whether it is streamed."""
    return [*zip(names, cycle(product(FORMS, [False, True])), strict=False)]


@thorough
def test_a_temporary_error_is_repeated_wherever_it_is(
    *, thorough: bool, subtests: pytest.Subtests, waits: list[float]
) -> None:
    for name, (form, streams) in in_turn(TEMPORARY)[:: 1 if thorough else 3]:
        waits.clear()
        sent = form(TEMPORARY[name][0])
        with subtests.test(f"{name}, {form.__name__}"), Server(sent, sent) as server:
            run(server, streams=streams)
            assert len(server.asked) == 3
            assert [0.3 < wait <= 1 for wait in waits] == [True, True]


@thorough
def test_a_final_error_is_not_repeated(*, thorough: bool, subtests: pytest.Subtests) -> None:
    for name, (form, streams) in in_turn(FINAL)[:: 1 if thorough else 3]:
        sent = form(FINAL[name][0])
        with subtests.test(f"{name}, {form.__name__}"), Server(*[sent] * 9) as server:
            with pytest.raises(ModelError):
                run(server, streams=streams)
            assert len(server.asked) == 1


@pytest.mark.parametrize("streams", [False, True])
def test_the_wait_of_a_reply_is_respected(streams: bool, waits: list[float]) -> None:
    """It is in the header of the response, or in the error."""
    error = {"error": {"code": 429, "message": "slow"}}
    within = {"error": {"code": 429, "metadata": {"retry_after": 8}}}
    event = Sent(stream_of(chunk({"content": "I"}), within).body, headers=EVENTS)
    with Server(json_of(error, **{"Retry-After": "7"}), event, json_of(within)) as server:
        run(server, streams=streams)
    assert waits == [7, 8, 8]


def test_a_server_that_asks_for_a_long_wait_is_not_waited_for(waits: list[float]) -> None:
    """As OpenAI's client does."""
    busy = json_of({"error": {"code": 429, "message": "slow", "retry_after": 900}})
    with Server(busy) as server, pytest.raises(ModelError, match=r"refusing calls \(429\): slow"):
        run(server, streams=True)
    assert len(server.asked) == 1
    assert waits == []


@pytest.mark.parametrize("streams", [False, True])
def test_an_error_that_stays_ends_in_the_sentence_of_its_status(
    streams: bool, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUOLOGUE_MAX_RETRIES", "2")
    for error, said in (
        ({"code": "429", "message": "slow"}, "keeps refusing calls (429): slow; try again later"),
        ({"code": 502, "message": "down"}, "sent an error instead of an answer: down"),
        ({"code": 401, "message": "no"}, "rejected the key; check OPENAI_API_KEY"),
    ):
        with Server(*[in_body(error)] * 9) as server, pytest.raises(ModelError) as caught:
            run(server, streams=streams)
        assert said in str(caught.value)
        assert len(server.asked) == (1 if error["code"] == 401 else 3)
        assert isinstance(caught.value, ModelUnavailableError) is (error["code"] == 401)


@pytest.mark.part(4)
@pytest.mark.parametrize(
    ("script", "environ", "lasts"),
    [
        ([], {"DUOLOGUE_API_KEY": "wrong"}, True),
        ([], {"DUOLOGUE_MODEL": "missing"}, True),
        ([], {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, True),
        ([Reply(error=403, message="Your key may not.")], {}, True),
        ([Reply(error=403, message="Your input was flagged.")], {}, False),
        ([Reply(error=402)], {}, True),
        ([Reply(error=429, code="insufficient_quota")], {}, True),
        ([Reply(error=429)], {}, False),
        ([Reply(error=500)], {}, False),
        ([Reply(error=400)], {}, False),
        ([Reply(error="drop")], {}, False),
    ],
)
def test_an_error_of_a_server_tells_whether_other_calls_would_fail_as_well(
    script: Script, environ: dict[str, str], lasts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer(script, models=("m",), api_key="k") as server:
        given = {"OPENAI_BASE_URL": server.url, "DUOLOGUE_MAX_RETRIES": "0", **environ}
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ModelError) as caught:
            converse(TALK, store="memory:")
    assert isinstance(caught.value, ModelUnavailableError) is lasts


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_an_error_of_a_provider_tells_it_too(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with ScriptedServer(lambda _: Reply(error=status), models=("deepseek-chat",)) as server:
        monkeypatch.setenv("DEEPSEEK_API_BASE", server.url)
        with pytest.raises(ModelError) as caught:
            converse(TALK, model="deepseek:deepseek-chat", store="memory:")
    assert isinstance(caught.value, ModelUnavailableError) is (status < 429)


def test_if_there_is_no_model_at_all_it_is_such_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUOLOGUE_API_KEY")
    for name, words in (("gpt-9", "needs a server"), ("cohere:command", "needs more packages")):
        with pytest.raises(ModelUnavailableError, match=words):
            converse(TALK, model=name, store="memory:")


NO_REPLIES = {
    "a page": Sent(b"<html>Bad gateway</html>", headers={"Content-Type": "text/html"}),
    "a page called JSON": Sent(b"<!doctype html>"),
    "a page called a stream": Sent(b"<html>\n\n</html>", headers=EVENTS),
    "nothing": Sent(),
    "white space": Sent(b" \n "),
    "half of the JSON": Sent(b'{"choices": [{"message": {"content": "I a'),
    "plain text": Sent(b"upstream connect error", headers={"Content-Type": "text/plain"}),
    "null": Sent(b"null"),
    "no UTF-8": Sent(b"\xff\xfe{"),
}


def test_no_reply_is_an_outage_after_an_answer_and_a_wrong_address_before(
    subtests: pytest.Subtests, waits: list[float]
) -> None:
    for place, (name, nothing) in enumerate(NO_REPLIES.items()):
        go = partial(run, streams=place % 2 == 0)
        sent = (nothing, say("Fine."), nothing, nothing)
        with subtests.test(name), Server(*sent) as server:
            if name != "a page called a stream":
                with pytest.raises(ModelError, match="check its address"):
                    go(server)
                assert len(server.asked) == 1
            # The lines of that page are no fields of a stream, so that it has no message.
            go(server)
            assert len(server.asked) == 2
            go(server)
            assert len(server.asked) == 5


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("nothing", [{"choices": []}, {"choices": None, "usage": None}, {}])
def test_a_whole_reply_without_a_choice_is_repeated(
    nothing: Body, streams: bool, waits: list[float]
) -> None:
    with Server(json_of(nothing), stream_of(nothing)) as server:
        run(server, streams=streams)
    assert len(server.asked) == 3


def test_an_account_without_credit_is_one_error_at_once(subtests: pytest.Subtests) -> None:
    for place, (name, (body, status)) in enumerate(ERRORS["credit"].items()):
        lacking = Sent(json_of(body).body, status=status)
        with subtests.test(name), Server(*[lacking] * 9) as server:
            with pytest.raises(ModelUnavailableError, match="check the credit and the") as caught:
                run(server, streams=place % 2 == 0)
            assert len(server.asked) == 1
            assert "try again" not in str(caught.value)


def test_a_limit_of_the_rate_that_speaks_of_a_quota_is_temporary() -> None:
    """Gemini's sentence for a limit per minute is OpenAI's for an account without credit."""
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Check your plan and billing."}
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.01s"}]
    busy = Sent(json_of([{"error": {**error, "details": details}}]).body, status=429)
    with Server(busy, busy) as server:
        run(server, streams=False)
    assert len(server.asked) == 3


def batch_of(server: Server, path: Path) -> list[str]:
    """Run a batch of three sessions; return the statuses of its rows."""
    talk = {
        "task": "Say hi",
        "speakers": [{"name": "Ann"}, {"name": "Bob"}],
        "end_chat": {"max_iterations": 1},
    }
    store = f"sqlite:///{path / 'b.db'}"
    batch = Batch(conversation=talk, vary={"labels.n": [1, 2, 3]})
    with use_server(server), suppress(ModelUnavailableError):
        run_batch(batch, name="b", store=store, concurrency=1)
    return [str(row["status"]) for row in BatchRun("b", store=store).rows()]


AT_GATE: list[Sent | Callable[[Body], Sent]] = [
    in_body({"code": "rate_limit_exceeded", "message": "no", "retry_after": 0.01}),
    in_choice({"code": "503", "retry_after_ms": 10}),
    in_later_event({"code": 429, "retry_after": 0.01}),
    json_of({"choices": []}, **{"Retry-After": "0.01"}),
    NO_REPLIES["a page"],
    NO_REPLIES["half of the JSON"],
    stream_of(chunk({"content": "I a"}), done=False),
]


@pytest.mark.part(4)
@pytest.mark.parametrize("place", range(len(AT_GATE)))
def test_a_temporary_error_ends_no_session_of_a_batch(place: int, tmp_path: Path) -> None:
    sound = [say("Fine.")] * 3
    with Server(*sound, AT_GATE[place], AT_GATE[place]) as server:
        assert batch_of(server, tmp_path) == ["finished"] * 3
    # An unended reply is accepted at its second try.
    assert len(server.asked) == (7 if place == len(AT_GATE) - 1 else 8)


def test_an_account_without_credit_pauses_a_batch(tmp_path: Path) -> None:
    lacking = Sent(json_of({"error": {"code": "insufficient_quota"}}).body, status=429)
    with Server(*[say("Fine.")] * 3, lacking) as server:
        assert batch_of(server, tmp_path)[:2] == ["finished", "paused"]
        assert len(server.asked) == 4
        assert batch_of(server, tmp_path) == ["finished"] * 3
