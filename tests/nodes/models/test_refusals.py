"""Failed model calls: whether to retry, how long to wait, and whether the model is available."""

import socket
import time
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from langchain_core.messages import HumanMessage

from duologue.graphs import ModelError, ModelUnavailableError
from duologue.graphs.common.settings import Settings
from duologue.graphs.log.metadata import Speech
from duologue.nodes.models.adapters.langchain import ProviderModel
from duologue.nodes.models.refusals import (
    find_refusal,
    is_for_now,
    is_outage,
    is_unavailable,
    read_retry_seconds,
)
from duologue.nodes.testing import Reply, Script, ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from support.models import Models, chosen


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "1.5", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "1.5", "retry-after-ms": "soon"}, 1.5),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:00 GMT"}, None),
        ({"retry-after": formatdate(4e9, usegmt=True)}, pytest.approx(4e9 - time.time(), rel=0.01)),
    ],
)
def test_how_long_a_server_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert read_retry_seconds(httpx2.Headers(headers)) == seconds


class RaisedError(Exception):
    """An error that some client raises."""

    def __init__(self, text: str = "no", **fields: Any) -> None:
        super().__init__(text)
        self.__dict__.update(fields)


def response(status: int, **headers: str) -> SimpleNamespace:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return SimpleNamespace(status_code=status, headers=httpx2.Headers(sent))


def aws(status: int) -> dict[str, Any]:
    return {"ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": "4"}}}


def wrapped(error: Exception) -> Exception:
    outer = RaisedError("It failed.")
    outer.__cause__ = error
    return outer


def round_and_round() -> Exception:
    error = RaisedError()
    error.__cause__ = wrapped(error)
    return error


@pytest.mark.parametrize(
    ("error", "waits", "is_lost"),
    [
        (RaisedError(response=response(429, retry_after="4")), 4, False),
        (RaisedError(response=response(429)), "untold", False),
        (RaisedError(response=response(503, retry_after="4")), 4, False),
        (RaisedError(response=response(503)), None, False),
        (RaisedError(response=response(500, retry_after="4")), None, False),
        (RaisedError(status_code=529), "untold", False),
        (RaisedError(code=429), "untold", False),
        (RaisedError(code="429"), "untold", False),
        (RaisedError(code="rate_limit_exceeded"), "untold", False),
        (RaisedError(code="invalid_request_error"), None, False),
        (RaisedError(response=aws(429)), 4, False),
        (RaisedError(response={}), None, False),
        (wrapped(RaisedError(response=response(429, retry_after="4"))), 4, False),
        (round_and_round(), None, False),
        (RaisedError(code="insufficient_quota", response=response(429)), None, True),
        (RaisedError(type="insufficient_quota", response=response(429)), None, True),
        (
            RaisedError(
                body={"error": {"message": "Your credit balance is too low to use the API."}},
                response=response(400),
            ),
            None,
            True,
        ),
        (RaisedError(response=response(401)), None, True),
        (RaisedError(response=response(402)), None, True),
        (RaisedError(response=response(403)), None, True),
        (RaisedError("Your input was Flagged.", response=response(403)), None, False),
        (
            RaisedError(body={"metadata": {"flagged_input": "x"}}, response=response(403)),
            None,
            False,
        ),
        (RaisedError(status_code=404), None, True),
        (RaisedError(response=aws(403)), None, True),
        (RaisedError(response=response(400)), None, False),
        (wrapped(ModelUnavailableError("There is none.")), None, True),
        (ValueError("404"), None, False),
        (RaisedError(code=0, status_code=200), None, False),
    ],
)
def test_what_clients_raise(error: Exception, waits: float | str | None, is_lost: bool) -> None:
    assert is_for_now(error) == (waits is not None)
    assert is_unavailable(error) == is_lost
    if waits is not None:
        found = find_refusal(error)
        assert found is not None
        assert (read_retry_seconds(found.headers) or "untold") == waits


def silent(_: str) -> None:
    """Ignore all notices."""


async def asked(models: Models, name: str | None = None) -> None:
    model = await models.get(name, silent)
    await model.answer([HumanMessage("Hi")], chosen(), purpose=Speech, speaker="Ann")


@pytest.mark.part(4)
@pytest.mark.parametrize(
    ("script", "fields", "lasts"),
    [
        ([], {"api_key": "wrong"}, True),
        ([], {"model": "missing"}, True),
        ([], {"base_url": "http://127.0.0.1:9/v1"}, True),
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
async def test_an_error_of_a_server_tells_whether_other_calls_would_fail_as_well(
    script: Script, fields: dict[str, str], lasts: bool
) -> None:
    with ScriptedServer(script, api_key="k") as server:
        given = {"base_url": server.url, "model": "scripted", "api_key": "k", "max_retries": 0}
        models = Models(settings=Settings.model_validate(given | fields))
        with pytest.raises(ModelError) as caught:
            await asked(models)
    assert isinstance(caught.value, ModelUnavailableError) is lasts


@pytest.mark.parametrize("status", [401, 404, 429, 500])
async def test_an_error_of_a_provider_tells_it_too(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(name: str, _: Settings) -> ProviderModel:
        return ProviderModel(name, ScriptedChatModel([Reply(error=status)]), 1000)

    monkeypatch.setattr("duologue.nodes.models.adapters.families.make_model", made)
    with pytest.raises(ModelError) as caught:
        await asked(Models(settings=Settings()), "anthropic:claude")
    assert isinstance(caught.value, ModelUnavailableError) is (status < 429)


async def test_where_there_is_no_model_at_all_it_is_such_an_error() -> None:
    with pytest.raises(ModelUnavailableError, match="needs a server"):
        await asked(Models(settings=Settings()), "gpt-9")
    with pytest.raises(ModelUnavailableError, match="needs more packages"):
        await asked(Models(settings=Settings()), "cohere:command")


class TimedOutError(httpx2.ReadTimeout):
    """A client's own timeout."""


@pytest.mark.parametrize(
    ("error", "is_down"),
    [
        (RaisedError(response=response(503)), True),
        (RaisedError(response=response(503, retry_after="4")), True),
        (RaisedError(response=response(502)), True),
        (RaisedError(response=aws(503)), True),
        (RaisedError(response=response(500)), False),
        (RaisedError(response=response(429)), False),
        (RaisedError(response=response(401)), False),
        (wrapped(httpx2.ConnectError("no")), True),
        (wrapped(httpx2.ConnectTimeout("no")), True),
        (wrapped(wrapped(httpx2.ReadError("no"))), True),
        (httpx2.RemoteProtocolError("no"), True),
        (ConnectionResetError("no"), True),
        (wrapped(socket.gaierror("no")), True),
        (wrapped(httpx2.ReadTimeout("no")), False),
        (TimedOutError("no"), False),
        (httpx2.UnsupportedProtocol("no"), False),
        (httpx2.DecodingError("no"), False),
        (ValueError("ConnectError"), False),
        (round_and_round(), False),
    ],
)
def test_whether_a_server_is_down(error: Exception, is_down: bool) -> None:
    assert is_outage(error) is is_down
