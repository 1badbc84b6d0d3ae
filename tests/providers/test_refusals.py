"""Each fake refuses the same requests as the provider, in its words and form.

The fakes' rules name their sources.
"""

import json
import re
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from .base import FakeServer
from .fakes import FAKES, WITHOUT_CLIENT, fake

DATA: Final = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, FakeServer[Any]]]:
    """Yield the servers of the cases, each started once."""
    started: dict[str, FakeServer[Any]] = {}
    yield started
    for server in started.values():
        server.close()


def expand(value: Any) -> Any:  # noqa: ANN401
    """Return a value of the data in which parts replace their names."""
    match value:
        case str():
            return expand(DATA["parts"][value]) if value in DATA["parts"] else value
        case list():
            return [*map(expand, value)]
        case dict():
            return {name: expand(each) for name, each in value.items()}
    return value


def send(servers: dict[str, FakeServer[Any]], case: dict[str, Any]) -> tuple[int, Any, str]:
    """Send a changed body to a fake; return the answer's status and JSON, and the last refusal."""
    options = case.get("options", {})
    name = f"{case['api']} {options}"
    if name not in servers:
        servers[name] = fake(case["api"], lambda prompt: "Fine.", **options).__enter__()
    base = DATA["bases"][case["api"]]
    body = expand(base["body"] | case.get("change", {}))
    for field in case.get("left_out", ()):
        del body[field]
    headers = {
        "Content-Type": "application/json",
        "Authorization": "Bearer any",
        "anthropic-version": "2023-06-01",
        "x-goog-api-key": "any",
    }
    request = urllib.request.Request(  # noqa: S310
        servers[name].origin + case.get("path", base["path"]), json.dumps(body).encode(), headers
    )
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return answer.status, json.load(answer), ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error), servers[name].refused[-1]


def test_what_a_provider_refuses(
    servers: dict[str, FakeServer[Any]], subtests: pytest.Subtests
) -> None:
    for case in DATA["refused"]:
        with subtests.test(f"{case['api']}: {case['words']}"):
            status, body, refused = send(servers, case)
            assert status == case.get("status", 400), body
            said = message_in(case["api"], body)
            assert case["words"] in said, said
            assert refused == said or case["api"] == "mistral"


def test_what_a_provider_accepts(
    servers: dict[str, FakeServer[Any]], subtests: pytest.Subtests
) -> None:
    for case in DATA["accepted"]:
        with subtests.test(f"{case['api']}: {case['change']}"):
            status, body, _ = send(servers, case)
            assert status == 200, body


@pytest.mark.parametrize("api", [*FAKES, *WITHOUT_CLIENT])
def test_the_body_that_each_case_changes_is_accepted(
    servers: dict[str, FakeServer[Any]], api: str
) -> None:
    status, body, _ = send(servers, {"api": api})
    assert status == 200, body
    assert "Fine." in json.dumps(body)


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
