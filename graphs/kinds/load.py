"""Short forms of conversations, and functions that read conversations from dicts and files.

A short form is a function whose parameters declare all options of one kind of conversation. From
it, `short_form` makes the function that users call, and a model with the same options for files,
Studio and batches. A dict contains either a whole `Conversation`, or ``kind = "role_play"`` and the
parameters of this short form. Specs of older versions are upgraded first.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache, wraps
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeAlias, get_args

from pydantic import Field, create_model
from typing_extensions import get_type_hints

from ..common.errors import SpecError, hide_frames, name_type, suggest_kind
from ..common.files import read_fields
from ..common.model_help import Shown, field_docs, format_default, type_name
from ..common.validation import check_depth
from ..conversation.conversation import Conversation, Form, restore_conversation
from ..conversation.conversation_options import ReadAs, mark_default
from ..conversation.fields import ConversationFields
from ..prompts.prompts import read_kind_prompt
from ..speakers.replies import ConversationReply
from . import KINDS

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
        @hide_frames
        def call(*args: P.args, **kwargs: P.kwargs) -> Conversation:
            # A mistyped argument is the reason why another one is missing.
            form.check_names(kwargs)
            try:
                passed = declared.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            options = passed.pop("options", {})
            return form.of({**passed, **options})

        hints = get_type_hints(function)
        (further,) = get_args(hints.pop("options"))
        call.__annotations__ = {**hints, **get_type_hints(further), "return": Conversation}
        vars(call).update(form=form, __signature__=_signature(function, call.__annotations__))
        return call

    return decorate


def mark_options(**values: object) -> Parts:
    """Return fields of a conversation that options with the same names set."""
    return {name: mark_default(value, name) for name, value in values.items()}


def read_small_model_prompt(name: str) -> dict[str, str]:
    """Return the short prompt of a speaker for small models."""
    prompt = f"{name}_small_model"
    return {
        "system_prompt": read_kind_prompt(prompt),
        "reminder": read_kind_prompt(f"{prompt}_reminder"),
    }


def form_of(function: Callable[..., Conversation]) -> type[Form]:
    """Return the pydantic model of a short form's options."""
    form: type[Form] = vars(function)["form"]
    return form


def _form(
    function: Callable[..., Parts], roles: Mapping[str, str], shown: Sequence[str]
) -> type[Form]:
    """Derive the model of a short form's options."""
    args = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", args, re.MULTILINE)
    described = {name: " ".join(text.split()) for name, text in entries}
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for name, one in _own_parameters(function).items():
        # A speaker's parameter is a field of the form only if it contains the speaker's name.
        if roles.get(name, name) == name:
            default = ... if one.default is Parameter.empty else one.default
            marks = getattr(hints[name], "__metadata__", ())
            read = next((mark.type for mark in marks if isinstance(mark, ReadAs)), hints[name])
            fields[name] = (read, Field(default, description=described.get(name)))
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


@cache
def _types_of_conversation() -> Mapping[str, Any]:
    return get_type_hints(Conversation)


ConversationLike = Conversation | Mapping[str, Any] | str | Path
"""A conversation, or a dict or file that contains one."""


@hide_frames
def load_conversation(source: Mapping[str, Any] | str | Path) -> Conversation:
    """Read a conversation.

    Args:
        source: A dict, or the path of a ``.toml`` or ``.json`` file.

    Returns:
        The conversation.

    Raises:
        SpecError: The file can't be read or does not contain a valid conversation; the message
            names the file and the field.
    """
    if isinstance(source, Mapping):
        check_depth(source)
        return _load_dict(_load_inner(source, "", None), where="")
    if not isinstance(source, str | Path):
        is_session = hasattr(source, "resume")
        remedy = "session.resume()" if is_session else "Conversation(task, [speaker, …])"
        raise TypeError(
            f"a conversation must be a Conversation, a dict or a file, not {name_type(source)}; "
            f"write {remedy}"
        )
    if isinstance(source, str) and " " in source.strip() and not Path(source).suffix:
        raise SpecError(
            f"{source}: is neither a conversation nor a file; a task needs speakers, as in "
            "role_play(task, user_role, assistant_role) or Conversation(task, [speaker, …])"
        )
    return _load_file(Path(source), ())


def _load_file(path: Path, outer: Sequence[Path]) -> Conversation:
    """Read a file. `outer` are the files that contain it, the outermost first."""
    place = path.resolve()
    if place in outer:
        raise SpecError(f"{path}: the conversation contains itself; name another file in it")
    data = read_fields(path, "conversation")
    if "conversation" in data:
        raise SpecError(f"{path}: is a batch; run it with `duologue batch run {path}`")
    check_depth(data, f"{path}: ")

    def read_path(name: str) -> Conversation:
        return _load_file(place.parent / name, (*outer, place))

    return _load_dict(_load_inner(data, f"{path}: ", read_path), where=f"{path}: ")


def _load_inner(
    data: Any,  # noqa: ANN401  # any part of the data
    where: str,
    read_path: Callable[[str], Conversation] | None,
) -> Any:  # noqa: ANN401
    """Read the inner conversations in the data of a conversation.

    Their fields may be a short form. If `read_path` is None, paths are left as they are.
    """
    if isinstance(data, list | tuple):
        return [_load_inner(one, where, read_path) for one in data]
    if not isinstance(data, Mapping):
        return data
    read = {name: _load_inner(one, where, read_path) for name, one in data.items()}
    inner = read.get("conversation")
    if read.get("kind") != ConversationReply.model_fields["kind"].default:
        return read
    if isinstance(inner, str) and read_path is not None:
        read["conversation"] = read_path(inner)
    elif isinstance(inner, Mapping) and "kind" in inner:
        read["conversation"] = _load_dict({**inner}, where)
    return read


def read_kind(path: Path) -> str | None:
    """Return the kind whose short form a file contains, or None for a whole conversation."""
    kind = read_fields(path, "conversation").get("kind")
    return kind if isinstance(kind, str) else None


def _load_dict(data: dict[str, Any], where: str) -> Conversation:
    kind = data.pop("kind", None)
    if kind is None:
        return restore_conversation(data, where)
    forms = forms_by_kind()
    if not isinstance(kind, str) or kind not in forms:
        raise SpecError(f"{where}kind: {kind!r} is unknown{suggest_kind(kind, forms)}")
    try:
        return forms[kind].of(data)
    except SpecError as error:
        raise SpecError(f"{where}{error}") from error


@cache
def forms_by_kind() -> Mapping[str, type[Form]]:
    """Import and return the short forms, by their kinds."""
    # The package of the public names, which imports each of them when it is used.
    functions = import_module(__name__.removesuffix(".kinds.load"))
    return {kind: form_of(getattr(functions, kind)) for kind in KINDS}
