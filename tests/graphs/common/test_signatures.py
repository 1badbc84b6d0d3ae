"""Editors, consoles and `help` show the arguments before any object is made."""

import inspect
import pydoc
from collections.abc import Callable
from inspect import Parameter
from typing import Annotated, Any, get_args

import pytest
from IPython.core.completer import IPCompleter, provisionalcompleter
from pydantic import BaseModel, Field

import duologue
import duologue.graphs as graphs
from duologue.graphs.events import CodeBlock, Event
from support.tables import read_rows

PUBLIC = {name: getattr(graphs, name) for name in dir(graphs)}
MODELS = {
    name: found
    for name, found in PUBLIC.items()
    if inspect.isclass(found) and issubclass(found, BaseModel)
}
FUNCTIONS = {name: found for name, found in PUBLIC.items() if inspect.isfunction(found)}


@pytest.fixture(scope="module")
def complete() -> Callable[[str], set[str]]:
    """Return IPython's completion of arguments after an opening bracket."""
    completer = IPCompleter(namespace=PUBLIC, use_jedi=False)  # type: ignore[no-untyped-call]

    def options(name: str) -> set[str]:
        with provisionalcompleter():
            found = completer.completions(f"{name}(", len(name) + 1)
            return {one.text[:-1] for one in found if one.text.endswith("=")}

    return options


@pytest.mark.parametrize("name", MODELS)
def test_each_field_of_a_model_is_completed(name: str, complete: Callable[[str], set[str]]) -> None:
    assert complete(name) == {*MODELS[name].model_fields}


@pytest.mark.parametrize("name", MODELS)
def test_a_signature_shows_types_and_defaults_as_users_write_them(name: str) -> None:
    shown = str(inspect.signature(MODELS[name]))
    internal = ("Annotated", "Field", "PydanticUndefined", "factory", "object at", "duologue.")
    assert not [word for word in internal if word in shown.replace("FieldInfo", "")], shown
    assert {*inspect.signature(MODELS[name]).parameters} == {*MODELS[name].model_fields}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_option_of_a_function_is_completed(
    name: str, complete: Callable[[str], set[str]]
) -> None:
    parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
    assert not [one.name for one in parameters if one.kind is Parameter.VAR_KEYWORD]
    named = {
        one.name
        for one in parameters
        if one.kind in (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    }
    assert complete(name) == named


def test_a_signature_builds_no_validators_and_outlives_them() -> None:
    class Tag(duologue.ModelSettings):
        """A mark on a thing."""

        words: tuple[str, ...] = ()
        """The words. None are allowed."""
        size: Annotated[int, Field(gt=0)] | None = Field(default=None)
        name: str

    shown = str(inspect.signature(Tag))
    added = "words: tuple[str, ...] = (), size: int | None = None, name: str, )"
    assert " ".join(shown.split()).endswith(added)
    assert not Tag.__pydantic_complete__
    assert Tag(name="a").words == ()
    assert Tag.__pydantic_complete__
    assert str(inspect.signature(Tag)) == shown
    assert (Tag.__doc__ or "").startswith("A mark on a thing.\n\nFields:\n")
    assert "\n    words: The words. None are allowed." in (Tag.__doc__ or "")
    assert Tag.model_json_schema()["description"] == "A mark on a thing."


def test_a_function_in_a_field_is_shown_with_the_types_of_its_arguments() -> None:
    class Check(duologue.ModelSettings):
        read: Callable[[str], Any]

    assert "read: Callable[[str], Any]" in str(inspect.signature(Check))


def test_help_begins_with_a_signature_of_one_line_for_each_argument() -> None:
    shown = pydoc.plain(pydoc.render_doc(duologue.Conversation))
    assert (
        " |  Conversation(\n"
        " |      task: str | None,\n"
        " |      speakers: tuple[Speaker, ...],\n"
        " |      *,\n"
    ) in shown
    assert " |      speakers: The speakers, in the order of a round." in shown


def test_a_default_is_shown_by_what_differs_from_its_own_defaults() -> None:
    parameters = inspect.signature(duologue.Speaker).parameters
    assert repr(parameters["model_settings"].default) == "ModelSettings()"
    assert repr(parameters["replies"].default) == "(ModelReply(),)"
    assert repr(inspect.signature(duologue.EndChat).parameters["mode"].default) == (
        "'max_iterations_only'"
    )


@pytest.mark.parametrize("event", [*get_args(Event), CodeBlock], ids=lambda one: one.__name__)
def test_each_event_and_each_of_its_fields_is_described(event: type[BaseModel]) -> None:
    schema = event.model_json_schema()
    assert schema["description"]
    assert [one for one in schema["properties"].values() if not one.get("description")] == []


def by_position(model: type[BaseModel]) -> list[str]:
    return [
        name
        for name, one in inspect.signature(model).parameters.items()
        if one.kind is Parameter.POSITIONAL_OR_KEYWORD
    ]


def test_the_obvious_first_fields_may_be_given_by_position() -> None:
    found = {name: " ".join(by_position(model)) for name, model in MODELS.items()}
    assert {name: fields for name, fields in found.items() if fields} == read_rows(
        __file__, "fields_by_position"
    )


def test_a_field_by_position_is_the_field_by_name() -> None:
    assert duologue.Speaker("Ann", "You lead.", task="Lead.") == duologue.Speaker(
        name="Ann", system_prompt="You lead.", task="Lead."
    )
    assert duologue.MaxSeconds(60) == duologue.MaxSeconds(limit=60)
