"""Each fake refuses the same requests as the provider, in its words and form.

The fakes' rules name their sources.
"""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

import pytest

from .base import FakeServer
from .cases import BASES, Case
from .cases_anthropic import ANTHROPIC
from .cases_openai import OPENAI, RESPONSES
from .cases_others import ACCEPTED, DEEPSEEK, GEMINI_OPENAI, GOOGLE, MISTRAL, OLLAMA, OTHERS
from .fakes import FAKES, OLDER, WITHOUT_CLIENT, fake


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, FakeServer[Any]]]:
    """Yield the servers of the cases, each started once."""
    started: dict[str, FakeServer[Any]] = {}
    yield started
    for server in started.values():
        server.close()


def send(servers: dict[str, FakeServer[Any]], case: Case) -> tuple[int, Any]:
    """Send a changed body to a fake; return the status and the JSON of the answer."""
    name = f"{case.api} {case.options}"
    if name not in servers:
        servers[name] = fake(case.api, lambda prompt: "Fine.", **case.options).__enter__()
    path, base = BASES[case.api]
    body = {k: v for k, v in {**deepcopy(base), **case.change}.items() if v is not None}
    headers = {
        "Content-Type": "application/json",
        "Authorization": "Bearer any",
        "anthropic-version": "2023-06-01",
        "x-goog-api-key": "any",
    }
    request = urllib.request.Request(  # noqa: S310
        servers[name].origin + (case.path or path), json.dumps(body).encode(), headers
    )
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


ALL: Final = [
    *OPENAI,
    *RESPONSES,
    *ANTHROPIC,
    *GOOGLE,
    *GEMINI_OPENAI,
    *OLLAMA,
    *MISTRAL,
    *DEEPSEEK,
    *OTHERS,
]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_what_a_provider_refuses(servers: dict[str, FakeServer[Any]], case: Case) -> None:
    status, body = send(servers, case)
    assert status == case.status, body
    said = message_in(case.api, body)
    assert case.words in said, said
    assert servers[f"{case.api} {case.options}"].refused[-1] == said or case.api == "mistral"


@pytest.mark.parametrize("api", [*FAKES, *OLDER, *WITHOUT_CLIENT])
def test_what_every_other_case_changes_is_accepted(
    servers: dict[str, FakeServer[Any]], api: str
) -> None:
    status, body = send(servers, Case(api=api, change={}, words=""))
    assert status == 200, body
    assert "Fine." in json.dumps(body)


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: f"{case.api}: {case.change}"[:80])
def test_what_a_provider_accepts(servers: dict[str, FakeServer[Any]], case: Case) -> None:
    status, body = send(servers, case)
    assert status == 200, body


def message_in(api: str, body: Any) -> str:  # noqa: ANN401
    """Return the text of an error, which each API puts elsewhere."""
    match api:
        case "ollama":
            assert set(body) == {"error"}
            return str(body["error"])
        case "mistral":
            assert body["object"] == "error"
            return json.dumps(body["message"])
        case "gemini_openai":
            return str(body[0]["error"]["message"])
        case "google":
            assert body["error"]["status"] in ("INVALID_ARGUMENT", "NOT_FOUND")
        case "anthropic":
            assert body["type"] == "error"
            assert re.fullmatch("(invalid_request|not_found)_error", body["error"]["type"])
        case "openrouter" | "vllm":
            assert isinstance(body["error"]["code"], int)
        case "litellm":
            assert body["error"]["code"].isdigit()
        case _:
            assert body["error"]["type"] == "invalid_request_error"
    return str(body["error"]["message"])
