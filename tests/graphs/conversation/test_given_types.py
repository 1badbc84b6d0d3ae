"""Argument types for type checkers agree with the types of the models."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from langchain_core.messages import BaseMessage, ToolCall
from pydantic import BaseModel, JsonValue
from typing_extensions import get_type_hints, is_typeddict

from duologue import graphs
from duologue.graphs import EndChatMode
from duologue.graphs.common.data import HasName, Spec
from duologue.graphs.conversation.conversation_options import Changes
from duologue.graphs.ends import end
from duologue.graphs.speakers.speaker import SpeakerChanges, SpeakerFields
from duologue.nodes.testing import script
from support.ends import End
from support.graphs import Form

MODELS = {
    name: found
    for module in (graphs, end, script)
    for name in dir(module)
    if inspect.isclass(found := getattr(module, name)) and issubclass(found, BaseModel)
}


def typed(of: object, name: str) -> Any:  # noqa: ANN401
    """Return the typed dict of this name in or imported by an object's module."""
    module = inspect.getmodule(of)
    found = getattr(module, name, None)
    return found if is_typeddict(found) else None


GIVEN = {
    name: fields
    for name, model in MODELS.items()
    if (fields := typed(model, f"{name}Options") or typed(model, f"{name}Fields"))
    and not issubclass(model, Form)
}


def test_the_models_whose_fields_are_given_in_other_types_are_these() -> None:
    assert {*GIVEN} == {"Conversation", "Speaker"}


@pytest.mark.parametrize("name", GIVEN)
def test_each_field_may_be_given_and_no_other(name: str) -> None:
    fields, model = GIVEN[name], MODELS[name]
    # Positional arguments are declared separately: `tests/typed` tests them.
    by_name = {
        name: field for name, field in model.model_fields.items() if field.kw_only is not False
    }
    assert {*fields.__annotations__} == {*by_name}
    assert fields.__required_keys__ == {n for n, field in by_name.items() if field.is_required()}
    agree(get_type_hints(fields, include_extras=False), model)


def test_each_field_of_a_conversation_and_of_a_speaker_may_be_changed() -> None:
    changed = {*get_type_hints(Changes)}
    assert changed == {*graphs.Conversation.model_fields} - {"version"}
    assert {*get_type_hints(SpeakerChanges)} == {*graphs.Speaker.model_fields}
    assert not SpeakerChanges.__required_keys__


def agree(hints: Mapping[str, object], model: type[BaseModel]) -> None:
    """Check that the arguments allow every type of a field."""
    every = {**graphs.Conversation.model_fields, **model.model_fields}
    for name, hint in hints.items():
        held, given = kinds_in(every[name].annotation), kinds_in(hint)
        missing = held - given - {one for one in held if _is_covered(one, given)}
        assert not missing, name
        # Additional types that are converted.
        assert given - held <= READ_AS_ANOTHER, name


def _is_covered(one: object, given: set[object]) -> bool:
    """Return whether the type is a kind of message and any message is allowed."""
    return BaseMessage in given and isinstance(one, type) and issubclass(one, BaseMessage)


def kinds_in(annotation: object) -> set[object]:
    """Return the types in an annotation; a list, a dict or a literal counts as its contents."""
    if get_origin(annotation) is Annotated:
        return kinds_in(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return {one for part in get_args(annotation) for one in kinds_in(part)}
    if get_origin(annotation) is Literal:
        return {*get_args(annotation)}
    if annotation is None or annotation is type(None):
        return {type(None)}
    origin = get_origin(annotation)
    if isinstance(origin, type) and issubclass(origin, Sequence | tuple):
        return kinds_in(get_args(annotation)[0])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {dict} | kinds_in(get_args(annotation)[1])
    if origin is not None:
        return {origin if origin is not Callable else Callable}
    return {object} if annotation in (Any, JsonValue) else {annotation}


READ_AS_ANOTHER = {
    *(str, dict, object, Callable, HasName, SpeakerFields, BaseMessage, ToolCall, EndChatMode),
    Spec,
    *("none", "all"),
    *kinds_in(End),
}
