"""Structured answers and arguments of tools with each kind of schema, at each provider's API."""

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator
from langchain_core.tools import StructuredTool
from pydantic import BaseModel

from duologue.graphs import ask, converse
from duologue.nodes.testing import Line, Reply, ScriptedToolCall

from .base import FakeServer
from .fakes import FAKES, client_of, fake
from .schema_kinds import (
    MODELS,
    Bounded,
    Chain,
    Deep,
    Described,
    Discriminated,
    Empty,
    Forest,
    Formats,
    FreeDict,
    ListOfDicts,
    Optionals,
    Pair,
    Ping,
    PlainDict,
    Union,
    Unions,
    Whatever,
    Wide,
)

DATA: Final = tomllib.loads(Path(__file__).with_name("schemas.toml").read_text("utf-8"))


def nested(levels: int) -> object:
    return {"inner": nested(levels - 1)} if levels else {"name": "a", "n": 1}


ANSWERS: Final[dict[type[BaseModel], Any]] = {
    **{MODELS[name]: json.loads(answer) for name, answer in DATA["answers"].items()},
    Deep: nested(12),
    Wide: {f"f{n}": n for n in range(30)},
    Unions: {f"u{n}": n for n in range(20)},
}
"""A valid answer for each kind of schema."""


def sent_schema(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema to which a request binds the answer, or None."""
    form = body.get("response_format") or (body.get("text") or {}).get("format") or {}
    found: dict[str, Any] | None = form.get("json_schema", form).get("schema")
    found = found or (body.get("output_config") or {}).get("format", {}).get("schema")
    found = found or body.get("format")
    found = found or (body.get("generationConfig") or {}).get("responseJsonSchema")
    function = (body.get("tools") or [{}])[0]
    (function,) = function.get("functionDeclarations", [function.get("function", function)])
    for name in ("parameters", "input_schema", "parameters_json_schema"):
        found = found or function.get(name)
    return found


def check_binding(server: FakeServer[Any], model: type[BaseModel]) -> None:
    """Check that the answer is possible by the newest request, in a schema or in the prompt."""
    assert server.refused == []
    body = server.requests[-1].body
    schema = sent_schema(body)
    if schema is not None:
        assert [*Draft202012Validator(schema).iter_errors(ANSWERS[model])] == []
    else:
        # The prompt ends with the schema.
        prompt = server.requests[-1].prompt[0]["content"]
        described = json.loads(prompt[prompt.index("{") : prompt.rindex("}") + 1])
        assert [*Draft202012Validator(described).iter_errors(ANSWERS[model])] == []
        assert set(described.get("properties", ())) == set(model.model_fields)


UNBOUND: Final = DATA["unbound"]
"""The kinds that an API can't be held to, for the APIs that have rules for schemas."""


def kinds_for(
    api: str, kinds: Sequence[type[BaseModel]], *, whole: bool = True
) -> list[type[BaseModel]]:
    """Return the kinds of schema to try at an API: all, or every fourth one in turn."""
    place = [*FAKES].index(api)
    return [*kinds] if whole and api in UNBOUND else [*kinds[place % 4 :: 4]]


def is_bound(api: str, body: dict[str, Any]) -> bool:
    """Return whether a request binds the answer: at OpenAI by a strict schema."""
    if api == "openai_chat":
        return bool(body["response_format"]["json_schema"].get("strict"))
    return sent_schema(body) is not None


@pytest.mark.parametrize(
    "api",
    [api if api in UNBOUND else pytest.param(api, marks=pytest.mark.exhaustive) for api in FAKES],
)
def test_each_kind_of_answer_is_possible_at_each_provider(
    api: str, subtests: pytest.Subtests
) -> None:
    """The request allows the answer, the provider accepts it, and the answer is the output."""
    for model in kinds_for(api, [*ANSWERS]):
        answer = ANSWERS[model]
        with subtests.test(model.__name__), fake(api, [json.dumps(answer)]) as server:
            chat = client_of(api, server)
            result = ask({"name": "Ann"}, "Answer.", model=chat, schema=model, store="memory:")
            check_binding(server, model)
            assert result.output == model.model_validate(answer).model_dump(mode="json")
            if api in UNBOUND:
                found = is_bound(api, server.requests[-1].body)
                assert found == (model.__name__ not in UNBOUND[api])


def test_a_format_in_a_file_may_have_any_kind_of_schema(tmp_path: Path) -> None:
    """An answer that does not fit the schema is requested once more."""
    file = tmp_path / "talk.toml"
    file.write_text(
        """
        task = "List the prices."
        [[speakers]]
        name = "Ann"
        format = { name = "FreeDict" }
        writes_output = true
        [[speakers]]
        name = "Ben"
        replies = [{ kind = "text", text = "Thanks." }]
        [end_chat]
        max_iterations = 1
        allow_unanswered_end = true
        """,
        encoding="utf-8",
    )
    lines = iter(['{"prices": {"tea": "dear"}}', '```json\n{"prices": {"tea": 1.5}}\n```'])
    with fake("anthropic", lambda prompt: next(lines)) as server:
        chat = client_of("anthropic", server)
        result = converse(file, model=chat, schemas={"FreeDict": FreeDict}, store="memory:")
    assert server.refused == []
    assert result.output == {"prices": {"tea": 1.5}}


ARGUMENTS: Final = (
    *(FreeDict, ListOfDicts, PlainDict, Whatever, Forest, Chain, Ping, Union, Discriminated),
    *(Optionals, Bounded, Pair, Described, Formats, Empty, Deep),
)


BOUND: Final = (
    *("openai_chat", "openai_responses", "anthropic", "google", "ollama", "mistral", "vllm"),
    "litellm",
)
"""The APIs whose clients bind an answer to a schema that is not a pydantic model."""


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("api", "calling"),
    [*((api, "native") for api in FAKES), *((api, "schema") for api in BOUND)],
)
def test_a_tool_may_have_each_kind_of_arguments(
    api: str, calling: str, subtests: pytest.Subtests
) -> None:
    for model in kinds_for(api, ARGUMENTS, whole=calling == "native"):
        with subtests.test(model.__name__):
            check_arguments(api, model, calling)


def check_arguments(api: str, model: type[BaseModel], calling: str) -> None:
    """Check that the provider accepts a tool's schema, and that the schema allows the arguments."""
    received = []

    def note(**arguments: object) -> str:
        received.append(arguments)
        return "Noted."

    tool = StructuredTool.from_function(note, name="note", description="Notes.", args_schema=model)
    answer = ANSWERS[model]
    script: list[Line] = [
        Reply(tool_calls=[ScriptedToolCall(name="note", args=answer, id="abcdefgh1")]),
        "Done.",
    ]
    if calling == "schema":
        answer = {"tool": "note", "arguments": answer}
        script = [json.dumps(answer), json.dumps({"reply": "Done."})]
    ann = {"name": "Ann", "tools": [tool], "tool_calling": calling}
    with fake(api, script) as server:
        result = ask(ann, "Note it.", model=client_of(api, server), store="memory:")
    assert server.refused == []
    assert len(received) == 1
    assert result.text == "Done."
    if (schema := sent_schema(server.requests[0].body)) is not None:
        # Google writes types in capitals.
        text = re.sub('"type": "[A-Z]+"', lambda kind: kind[0].lower(), json.dumps(schema))
        schema = json.loads(text)
        assert [*Draft202012Validator(schema).iter_errors(answer)] == []


@pytest.mark.parametrize("model", [FreeDict, Union])
def test_our_client_sends_no_schema_that_claude_behind_a_gateway_would_close(
    model: type[BaseModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake("openrouter", lambda prompt: json.dumps(ANSWERS[model])) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        name = "anthropic/claude-sonnet-4.5"
        result = ask({"name": "Ann"}, "Answer.", model=name, schema=model, store="memory:")
    check_binding(server, model)
    assert ("response_format" in server.requests[0].body) is (model is Union)
    assert result.output == ANSWERS[model]
