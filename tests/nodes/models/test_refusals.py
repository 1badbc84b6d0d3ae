"""Failed model calls: whether to retry, how long to wait, and whether the model is available."""

import socket
import time
import tomllib
from copy import deepcopy
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from duologue.graphs import ModelError, ModelUnavailableError
from duologue.graphs.common.settings import Settings
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
from support.models import Models, greet, model_at, silent

ROWS = tomllib.loads(Path(__file__).with_name("refused_calls.toml").read_text("utf-8"))


def test_how_long_a_server_asks_to_wait() -> None:
    for row in ROWS["how_long_a_server_asks_to_wait"]:
        assert read_retry_seconds(httpx2.Headers(row["headers"])) == row.get("seconds"), row
    until = httpx2.Headers({"retry-after": formatdate(4e9, usegmt=True)})
    assert read_retry_seconds(until) == pytest.approx(4e9 - time.time(), rel=0.01)


class RaisedError(Exception):
    """An error that some client raises."""

    def __init__(self, text: str = "no", **fields: Any) -> None:
        super().__init__(text)
        self.__dict__.update(fields)


def raised(
    text: str = "no", retry_after: str | None = None, causes: int = 0, **fields: Any
) -> Exception:
    """Return the error that a row describes."""
    headers = {} if retry_after is None else {"retry-after": retry_after}
    if status := fields.pop("status", None):
        fields["response"] = SimpleNamespace(status_code=status, headers=httpx2.Headers(headers))
    if status := fields.pop("aws", None):
        about = {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": "4"}}
        fields["response"] = {"ResponseMetadata": about}
    error: Exception = RaisedError(text, **fields)
    for _ in range(causes):
        error = wrapped(error)
    return error


def wrapped(error: Exception) -> Exception:
    outer = RaisedError("It failed.")
    outer.__cause__ = error
    return outer


def round_and_round() -> Exception:
    error = RaisedError()
    error.__cause__ = wrapped(error)
    return error


def test_what_clients_raise(subtests: pytest.Subtests) -> None:
    rows = [(raised(**row.pop("error")), row) for row in deepcopy(ROWS["what_clients_raise"])]
    rows += [(round_and_round(), {}), (ValueError("404"), {})]
    rows += [(wrapped(ModelUnavailableError("There is none.")), {"is_lost": True})]
    for number, (error, row) in enumerate(rows):
        with subtests.test(f"{number}, {row}"):
            assert is_for_now(error) == ("waits" in row)
            assert is_unavailable(error) == row.get("is_lost", False)
            if "waits" in row:
                found = find_refusal(error)
                assert found is not None
                assert (read_retry_seconds(found.headers) or "untold") == row["waits"]


async def asked(name: str) -> None:
    model = await Models(settings=Settings()).get(name, silent)
    await greet(model, speaker="Ann")


@pytest.mark.part(4)
@pytest.mark.parametrize(
    ("script", "fields", "lasts"),
    [
        ([], {"api_key": "wrong"}, True),
        ([], {"model": "missing"}, True),
        ([], {"url": "http://127.0.0.1:9/v1"}, True),
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
    with ScriptedServer(script, api_key="k") as server, pytest.raises(ModelError) as caught:
        await greet(await model_at(fields.pop("url", server.url), max_retries=0, **fields))
    assert isinstance(caught.value, ModelUnavailableError) is lasts


@pytest.mark.parametrize("status", [401, 404, 429, 500])
async def test_an_error_of_a_provider_tells_it_too(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(name: str, _: Settings) -> ProviderModel:
        return ProviderModel(name, ScriptedChatModel([Reply(error=status)]), 1000)

    monkeypatch.setattr("duologue.nodes.models.adapters.families.make_model", made)
    with pytest.raises(ModelError) as caught:
        await asked("anthropic:claude")
    assert isinstance(caught.value, ModelUnavailableError) is (status < 429)


async def test_where_there_is_no_model_at_all_it_is_such_an_error() -> None:
    with pytest.raises(ModelUnavailableError, match="needs a server"):
        await asked("gpt-9")
    with pytest.raises(ModelUnavailableError, match="needs more packages"):
        await asked("cohere:command")


class TimedOutError(httpx2.ReadTimeout):
    """A client's own timeout."""


@pytest.mark.parametrize(
    ("error", "is_down"),
    [
        *((raised(**row), is_down) for row, is_down in ROWS["whether_a_server_is_down"]),
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
