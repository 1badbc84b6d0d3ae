"""Short forms: functions whose parameters declare all options of one kind of conversation.

From such a function, `short_form` makes the function that users call, and a model with the same
options for files, Studio and batches.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache, wraps
from inspect import Parameter, Signature
from typing import Annotated, Any, Final, ParamSpec, TypeAlias, get_args, get_origin

from pydantic import Field, create_model
from typing_extensions import get_type_hints

from ..common.model_help import Shown, field_docs, format_default, type_name
from ..conversation.conversation import Conversation, Form
from ..conversation.conversation_options import ReadAs
from ..conversation.fields import ConversationFields

P = ParamSpec("P")

Parts: TypeAlias = dict[str, Any]
"""Fields of a conversation as a short form fills them in."""

_IN_EVERY_FORM: Final = ("seed", "model", "prompts")
"""The fields of a conversation that the form of every kind has."""

_FILLED_IN: Final = ("title", "task_specification", "opening", "end_chat")
"""The fields of a conversation whose default depends on the short form."""


def short_form(
    *,
    roles: Mapping[str, str] | None = None,
    message: str | None = None,
    beside_message: Mapping[str, str] | None = None,
    shown: Sequence[str] = (),
) -> Callable[[Callable[P, Parts]], Callable[P, Conversation]]:
    """Return a decorator that turns a function into a short form.

    The parameters of the function are the options of the form, with their types, their defaults and
    their descriptions below ``Args``. A call validates the caller's values, runs the function with
    them, merges the other fields of the conversation and of its speakers, and returns the
    conversation.

    Args:
        roles: The parameters that accept a speaker's name or fields, in the order of the speakers,
            each with the parameter that contains the speaker's name.
        message: The parameter that receives the user's message if the input of a run is only a
            message.
        beside_message: The values of other required parameters in that case.
        shown: Fields of a conversation that Studio's form of this kind has in addition.

    Returns:
        The decorator.
    """

    def decorate(function: Callable[P, Parts]) -> Callable[P, Conversation]:
        form = _form(function, roles or {}, shown)
        form.message_field, form.beside_message = message, beside_message or {}
        declared = inspect.signature(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Conversation:
            try:
                passed = declared.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            options = passed.pop("options", {})
            return form.of({**passed, **options})

        call.__annotations__ = _hints(function)
        vars(call).update(form=form, __signature__=_signature(function, call.__annotations__))
        return call

    return decorate


def form_of(function: Callable[..., Conversation]) -> type[Form]:
    """Return the pydantic model of a short form's options."""
    form: type[Form] = vars(function)["form"]
    return form


def _form(
    function: Callable[..., Parts], roles: Mapping[str, str], shown: Sequence[str]
) -> type[Form]:
    """Derive the model of a short form's options."""
    described = _described(function)
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for name, one in _own_parameters(function).items():
        # A speaker's parameter is a field of the form only if it contains the speaker's name.
        if roles.get(name, name) == name:
            default = ... if one.default is Parameter.empty else one.default
            fields[name] = (
                _type_read(hints[name]),
                Field(default, description=described.get(name)),
            )
    parameters = (*fields,)
    for name in (*shown, *_IN_EVERY_FORM):
        field = copy(Conversation.model_fields[name])
        field.description = field_docs(ConversationFields)[name]
        fields[name] = (field.annotation, field)
    name = function.__name__
    form = create_model(
        f"{name.title().replace('_', '')}Form",
        __base__=Form,
        __module__=function.__module__,
        __doc__=f"The options of `{name}` as data, for files and Studio.",
        **fields,
    )
    form.fill_in, form.parameters, form.roles = function, parameters, roles
    return form


def _own_parameters(function: Callable[..., Parts]) -> dict[str, Parameter]:
    """Return the parameters that a function declares explicitly."""
    declared = inspect.signature(function).parameters.items()
    return {name: one for name, one in declared if one.kind is not Parameter.VAR_KEYWORD}


def _type_read(annotation: Any) -> Any:  # noqa: ANN401  # a type
    if get_origin(annotation) is Annotated:
        for one in get_args(annotation)[1:]:
            if isinstance(one, ReadAs):
                return one.type
    return annotation


def _described(function: Callable[..., Parts]) -> dict[str, str]:
    """Return the descriptions of the parameters in a function's docstring."""
    section = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _signature(function: Callable[..., Parts], hints: Mapping[str, Any]) -> Signature:
    """Return the signature for users, which includes the other fields of a conversation."""
    declared = _own_parameters(function)
    parameters = [
        one.replace(annotation=Shown(type_name(hints[name])), default=format_default(one.default))
        for name, one in declared.items()
    ]
    for name in hints:
        field = Conversation.model_fields.get(name)
        if field is not None and name not in declared:
            value = field.get_default(call_default_factory=True)
            default = Shown("...") if name in _FILLED_IN else format_default(value)
            shown = Shown(type_name(_types_of_conversation()[name]))
            parameters.append(
                Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=shown)
            )
    return Signature(parameters, return_annotation=Shown(type_name(hints["return"])))


def _hints(function: Callable[..., Parts]) -> dict[str, Any]:
    """Return the types of all arguments that callers may pass, and of the result."""
    hints = get_type_hints(function)
    (options,) = get_args(hints.pop("options"))
    return {**hints, **get_type_hints(options), "return": Conversation}


@cache
def _types_of_conversation() -> Mapping[str, Any]:
    return get_type_hints(Conversation)
