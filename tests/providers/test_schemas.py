"""Structured answers and arguments of tools with each kind of schema, at each provider's API."""

import json
import re
import tomllib
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Optional
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator
from langchain_core.tools import StructuredTool
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model

from duologue.graphs import ask, converse
from duologue.graphs.speakers.formats import schema_of
from duologue.graphs.speakers.structured_answers import (
    CLAUDE,
    GEMINI,
    LLAMA,
    OPENAI,
    find_unsupported,
)
from duologue.nodes.testing import Line, Reply, ScriptedToolCall

from .base import FakeServer
from .fakes import FAKES, client_of, fake


class Item(BaseModel):
    name: str
    n: int


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class FreeDict(BaseModel):
    prices: dict[str, float]


class ListOfDicts(BaseModel):
    rows: list[dict[str, int]]


class PlainDict(BaseModel):
    data: dict  # type: ignore[type-arg]


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")

    a: int


class Whatever(BaseModel):
    value: Any


class ListOfWhatever(BaseModel):
    values: list[Any]


class Tree(BaseModel):
    name: str
    children: list["Tree"]


class Forest(BaseModel):
    first: Tree


class Chain(BaseModel):
    n: int
    rest: Optional["Chain"] = None


class Ping(BaseModel):
    pong: Optional["Pong"]


class Pong(BaseModel):
    ping: Annotated[Ping | None, Field(description="The other one.")]


class Union(BaseModel):
    pet: Cat | Dog


class Discriminated(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Optionals(BaseModel):
    a: int | None = None
    b: str = "x"


class Bounded(BaseModel):
    n: Annotated[int, Field(ge=1, le=5)]
    s: Annotated[str, Field(min_length=2, max_length=9, pattern="^[a-z]+$")]
    items: Annotated[list[int], Field(min_length=2, max_length=3)]


class Anywhere(BaseModel):
    s: Annotated[str, Field(pattern="[0-9]")]


class Lookahead(BaseModel):
    price: Annotated[str, WithJsonSchema({"type": "string", "pattern": "^(?!0)[0-9.]+$"})]


class Pair(BaseModel):
    both: tuple[int, str]


class Choices(BaseModel):
    one: Literal["a", "b", 3]
    colour: Colour


class Described(BaseModel):
    colour: Colour = Field(default=Colour.RED, description="The colour of the item.")
    item: Item = Field(description="The item.")


class Matrix(BaseModel):
    rows: list[list[int]]


class Formats(BaseModel):
    price: Decimal
    at: datetime
    day: date
    id: UUID


class Empty(BaseModel):
    pass


Deep: Any = Item
for level in range(12):
    Deep = create_model(f"Level{level}", inner=(Deep, ...))

Wide: Any = create_model("Wide", **{f"f{n}": (int, 0) for n in range(30)})  # type: ignore[call-overload]
Unions: Any = create_model("Unions", **{f"u{n}": (int | str, ...) for n in range(20)})  # type: ignore[call-overload]


DATA: Final = tomllib.loads(Path(__file__).with_name("schemas.toml").read_text("utf-8"))
MODELS: Final[dict[str, Any]] = {
    name: found
    for name, found in vars().items()
    if isinstance(found, type) and issubclass(found, BaseModel)
}


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
        assert json.dumps(schema_of(model)) in json.dumps(body).replace('\\"', '"')


RULED: Final = ("openai_chat", "anthropic", "google", "ollama")
"""The APIs with rules of their own for schemas. The others are tried with some kinds of schema."""


def kinds_for(
    api: str, kinds: Sequence[type[BaseModel]], *, whole: bool = True
) -> list[type[BaseModel]]:
    """Return the kinds of schema to try at an API: all, or every fourth one in turn."""
    place = [*FAKES].index(api)
    return [*kinds] if whole and api in RULED else [*kinds[place % 4 :: 4]]


@pytest.mark.part(3)
@pytest.mark.parametrize("api", FAKES)
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


RULES: Final = {"CLAUDE": CLAUDE, "OPENAI": OPENAI, "GEMINI": GEMINI, "LLAMA": LLAMA}


@pytest.mark.parametrize("rules", RULES)
def test_a_part_that_a_provider_does_not_support_is_found(rules: str) -> None:
    rows = DATA["unsupported"][rules] | dict.fromkeys(DATA["supported"][rules])
    found = {name: find_unsupported(schema_of(MODELS[name]), RULES[rules]) for name in rows}
    assert found == rows


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
