"""Replies that are JSON of a pydantic model (L5): its JSON schema, and possible errors."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Generic, Literal, TypeVar

import pytest
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.runnables import Runnable, RunnableLambda
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    computed_field,
    field_serializer,
    field_validator,
)

from duologue.graphs import Conversation, SpecError, converse
from duologue.nodes.testing import ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from support.shape_help import never, play, talk

T = TypeVar("T")


class Tree(BaseModel):
    value: int
    children: list["Tree"] = Field(default_factory=list)


class Box(BaseModel, Generic[T]):
    held: T


class Named(BaseModel):
    """A model whose field has another name in JSON, and that forbids other fields."""

    model_config = ConfigDict(extra="forbid")
    first: int = Field(alias="the first")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.first


class Free(BaseModel):
    prices: dict[str, Decimal]


class Pair(BaseModel):
    both: tuple[int, str]


class Anything(BaseModel):
    value: Any


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    value: int


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Pet(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")


class Endless(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="constants")
    number: float


class Empty(BaseModel):
    pass


class Refusing(BaseModel):
    value: int

    @field_validator("value")
    @classmethod
    def _fails(cls, value: int) -> int:
        raise RuntimeError("no disk")


class Unwritable(BaseModel):
    value: int

    @field_serializer("value")
    def _fails(self, value: int) -> int:
        raise RuntimeError("no disk")


class Callback(BaseModel):
    call: Callable[[int], int]


def asked(form: str = "structured") -> Conversation:
    """Return a conversation of a speaker with a schema and a speaker that answers."""
    answers = {"name": "Bob", "replies": [{"kind": "text", "text": "I see."}]}
    return talk({"name": "Ann", "format": {"name": "Wanted", "form": form}}, answers)


@pytest.mark.parametrize(
    ("model", "name", "strict"),
    [
        (Tree, "Tree", True),
        (Box[int], "Box_int", True),
        (Box[list[Tree]], "Box_list_Tree", True),
        *((Box[Tree | None], None, True), (Named, None, True), (Empty, None, True)),
        *((Free, None, False), (Pair, None, False), (Anything, None, False), (Open, None, False)),
        *((Pet, None, False), (Box[set[int]], None, False), (Box[dict[str, int]], None, False)),
        (Box[bytes], None, False),
        (type("Ä" * 3, (Empty,), {"__doc__": None}), "answer", True),
        (type("x" * 99, (Empty,), {}), "x" * 64, True),
    ],
)
def test_a_schema_has_a_plain_name_and_openais_strict_form_if_it_can_say_it_whole(
    model: type[BaseModel], name: str | None, strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L5: the strict form closes all objects, so an object with free keys would be empty."""
    with ScriptedServer(lambda prompt: "{}") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        converse(asked(), schemas={"Wanted": model}, store="memory:")
        form = server.calls[0].body["response_format"]["json_schema"]
    assert name in (None, form["name"])
    assert form["name"].replace("_", "").isalnum()
    assert (form["strict"], form["schema"]["type"]) == (strict, "object")


@pytest.mark.parametrize(
    ("model", "text", "read"),
    [
        (Tree, '{"value": 1, "children": [{"value": 2, "children": []}]}', None),
        (Box[int], '{"held": 1}', None),
        (Free, '{"prices": {"tea": "1.10"}}', None),
        (Named, '{"the first": 2}', {"first": 2, "double": 4}),
    ],
)
def test_each_kind_of_model_goes_over_the_wire(
    model: type[BaseModel], text: str, read: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L5: OpenAI's client can send every kind of model as a JSON schema."""
    with ScriptedServer([text]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        result = converse(asked(), schemas={"Wanted": model}, store="memory:")
        form = server.calls[0].body["response_format"]["json_schema"]
    free = form["schema"]["properties"].get("prices", {})
    assert free.get("additionalProperties") is not False
    wanted = model.model_validate_json(text).model_dump(mode="json") if read is None else read
    assert result.parsed("Ann") == [wanted]


def test_numbers_that_no_store_keeps_are_none_whatever_the_model_writes() -> None:
    result, _ = play(asked("text"), ['{"number": Infinity}'], schemas={"Wanted": Endless})
    assert result.parsed("Ann") == [{"number": None}]


def test_a_field_is_named_as_it_is_given() -> None:
    """L5: the problem shows the name that the reply must use."""
    script = ['{"first": 1}', '{"the first": 1}']
    _, model = play(asked("text"), script, schemas={"Wanted": Named})
    assert "did you mean 'the first'?" in model.calls[1].messages[-1].text


@pytest.mark.parametrize("form", ["structured", "text"])
@pytest.mark.parametrize("model", [Refusing, Unwritable])
def test_a_function_of_the_model_that_fails_is_named(model: type[BaseModel], form: str) -> None:
    """L5: an error in a model's function is raised; a resumed run parses the reply again."""
    with pytest.raises(SpecError) as caught:
        play(asked(form), ['{"value": 1}'], schemas={"Wanted": model})
    assert str(caught.value).startswith(f"the pydantic model {model.__name__!r} failed: ")
    assert "no disk" in str(caught.value)


@pytest.mark.parametrize("model", [Callback, BaseModel])
def test_what_has_no_json_schema_is_refused_before_any_model_is_called(
    model: type[BaseModel],
) -> None:
    with pytest.raises(SpecError) as caught:
        converse(asked("text"), model=never(), schemas={"Wanted": model}, store="memory:")
    words = f"schemas: 'Wanted': {model.__name__!r} can't be written as a JSON schema ("
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model", [RootModel[list[int]], RootModel[int | str]])
def test_models_are_held_to_objects_and_told_of_anything(model: type[BaseModel]) -> None:
    """L5: providers only support objects; as text, any value is parsed."""
    with pytest.raises(SpecError) as caught:
        converse(asked(), model=never(), schemas={"Wanted": model}, store="memory:")
    assert str(caught.value).startswith("speakers.0.format.name: 'Wanted' is not a JSON object, ")
    assert 'format.form = "text"' in str(caught.value)
    text = "[1]" if model is RootModel[list[int]] else "1"
    result, _ = play(asked("text"), [text], schemas={"Wanted": model})
    assert result.parsed("Ann") == [[1] if text == "[1]" else 1]


@pytest.mark.parametrize("text", ["", "I answer by the form."])
def test_an_answer_that_is_a_call_of_a_tool_is_said_as_it_was_given(text: str) -> None:
    """L5: an answer in a tool call, as some providers enforce schemas, keeps the JSON's names."""
    given = {"the first": 2}

    class Calling(ScriptedChatModel):
        def with_structured_output(self, *_: object, **__: object) -> Runnable[Any, Any]:
            answer = AIMessage(text, tool_calls=[ToolCall(name="Named", args=given, id="c1")])
            return RunnableLambda(lambda _: {"raw": answer, "parsed": given})

    model = Calling(script=[])
    result = converse(asked(), model=model, schemas={"Wanted": Named}, store="memory:")
    assert result.transcript[0] == ("Ann", '{"the first": 2}')
    assert result.parsed("Ann") == [{"first": 2, "double": 4}]
