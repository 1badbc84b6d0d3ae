"""Validation of data: its depth, characters and fields. An error names the field and the remedy.

Functions import pydantic, which takes as long as the rest of `duologue --help`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .errors import SpecError, did_you_mean, list_names
from .sanitize import UNSTORABLE

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

M = TypeVar("M", bound="BaseModel")

DEEPEST: Final = 200
"""Maximum depth of nested data, in levels: deeper data can't be serialized or stored."""


def check_depth(data: object, where: str = "", deepest: int = DEEPEST) -> None:
    """Check that data is not nested too deep to be read, written and stored."""
    level: list[object] = [data]
    for _ in range(deepest + 1):
        # A text contains no other values, although it is a sequence.
        level = [
            inner
            for one in level
            if isinstance(one, Mapping | list | tuple)
            for inner in (one.values() if isinstance(one, Mapping) else one)
        ]
        if not level:
            return
    subject = where or "the data "
    raise SpecError(f"{subject}is nested too deeply; use at most {deepest} levels")


def check_data(data: object, where: str = "") -> None:
    """Check that any store can contain data: its depth and the characters of its texts."""
    check_depth(data, where)
    left = [("", data)]
    while left:
        path, value = left.pop()
        if isinstance(value, str) and (found := UNSTORABLE.search(value)):
            code = f"U+{ord(found[0]):04X}"
            raise SpecError(f"{where}{path}: contains {code}, which can't be stored; remove it")
        parts = (
            value.items()
            if isinstance(value, Mapping)
            else enumerate(value)
            if isinstance(value, list | tuple)
            else ()
        )
        left += [(f"{path}.{name}" if path else str(name), part) for name, part in parts]


def validate(
    model: type[M],
    data: Mapping[str, Any],
    where: str = "",
    check: Callable[[object, str], None] = check_data,
) -> M:
    """Build a model from data.

    Args:
        model: The model.
        data: Its fields.
        where: The beginning of an error, such as the file's name.
        check: The function that checks the data before the model reads it.

    Raises:
        SpecError: The data is not valid; the message names the field.
    """
    from pydantic import ValidationError

    check(data, where)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # The place in pydantic helps nobody.
        raise SpecError(where + explain_error(error, model)) from error.with_traceback(None)


_SIZES: Final = {
    "too_short": "needs at least {min_length}",
    "too_long": "may contain at most {max_length}, not {actual_length}; remove some",
}
"""The words for a list with a wrong number of items."""


def explain_error(error: ValidationError, model: type[BaseModel]) -> str:
    """Explain in one sentence why data does not fit a model."""
    from .hints import suggest_value

    first = first_fault(error)
    path, near_models = _path(model, first["loc"])
    field = ".".join(path)
    match first["type"]:
        case "extra_forbidden":
            unknown = str(first["loc"][-1])
            if len(path) > 1 and unknown in _given_names(model.model_fields):
                # In TOML, all fields after a table's header belong to that table.
                return (
                    f"{field}: there is no such field; did you mean to set {unknown!r} outside "
                    f"(in TOML: above) {path[0]!r}?"
                )
            return describe_unknown_field(
                field, unknown, [found.model_fields for found in near_models]
            )
        case "union_tag_invalid":
            context = first.get("ctx") or {}
            tag = str(context["tag"])
            return f"{field}.kind: {tag!r} is unknown{_near_kind(field, tag, context)}"
        case "union_tag_not_found" if isinstance(first["input"], Mapping):
            return f"{field}.kind: is missing{_suggest_kinds(near_models, path, first['input'])}"
        case "missing":
            return f"{field}: is missing"
        case "string_too_short" | "string_pattern_mismatch" if not str(first["input"]).strip():
            return f"{field}: must not be empty"
        case "string_pattern_mismatch":
            return f"{field}: must be on one line, not {first['input']!r}"
        case "too_short" | "too_long" as problem:
            return f"{field}: {_SIZES[problem].format_map(first.get('ctx') or {})}"
        case "model_type" | "model_attributes_type" | "union_tag_not_found":
            # A choice between classes has no name.
            owner = (first.get("ctx") or {}).get("class_name")
            fields = f"fields of {owner}" if owner else "the field kind"
            shown = _quote_value(first["input"])
            text = f"must be a table or a dict with {fields}, not {shown}"
            text += suggest_value(field, first["input"])
            return f"{field}: {text}" if field else text
        case _:
            message = first["msg"].removeprefix("Value error, ")
            given = first["input"]
            # The library's own errors may quote the value already.
            told = isinstance(given, str) and repr(given) in message
            shown = "" if told else f", not {_quote_value(given)}" if _is_shown(first) else ""
            text = message[:1].lower() + message[1:].replace("valid tuple", "list")
            text = re.sub(", unable to parse string as an? [a-z]+$", "", text)
            wants_list = first["type"] in ("list_type", "tuple_type")
            hint = suggest_value(field, given, wants_list=wants_list)
            text += f"{shown}{_near_value(first) or hint}"
            return f"{field}: {text}" if field else text


def describe_unknown_field(
    path: str, unknown: str, models: Sequence[Mapping[str, FieldInfo]]
) -> str:
    """Describe an unknown field in one sentence, with suggestions from the known fields."""
    from .hints import SYNONYMS, suggest_name

    known = [name for fields in models for name in _given_names(fields)]
    if hint := suggest_name(unknown, known):
        return f"{path}: there is no such field{hint}"
    hint = did_you_mean(unknown, known)
    # The same name in a part of the model, or this library's name for the same field, is a better
    # guess than a name that looks alike.
    for name in (unknown, *SYNONYMS.get(unknown.casefold(), ())):
        deeper = [place for fields in models for place in _nested_paths(fields, name)]
        places = [name] if name in known else deeper
        if places:
            hint = f"; did you mean {list_names(dict.fromkeys(places))}?"
            break
    return f"{path}: there is no such field{hint}"


def _given_names(fields: Mapping[str, FieldInfo]) -> list[str]:
    """Return the names that callers use for a model's fields: the alias if there is one."""
    return [
        field.validation_alias if isinstance(field.validation_alias, str) else name
        for name, field in fields.items()
    ]


def _nested_paths(fields: Mapping[str, FieldInfo], name: str) -> Iterator[str]:
    """Yield the paths of the fields with this name in the parts that a model always has."""
    from pydantic import BaseModel

    for part, field in fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found = (
                [name] if name in inner.model_fields else _nested_paths(inner.model_fields, name)
            )
            yield from (f"{part}.{place}" for place in found)


def _near_value(fault: ErrorDetails) -> str:
    """Suggest the value that was probably meant, for the end of an error."""
    if fault["type"] not in ("literal_error", "enum") or not isinstance(fault["input"], str):
        return ""
    known = re.findall("'([^']*)'", str((fault.get("ctx") or {}).get("expected")))
    return did_you_mean(fault["input"], known)


def _near_kind(field: str, tag: str, context: Mapping[str, Any]) -> str:
    """Suggest the kind that was probably meant, or another form, or else list all kinds."""
    from .hints import SYNONYMS, suggest_value

    kinds = str(context["expected_tags"])
    known = [kind.strip(" '") for kind in kinds.split(",")]
    same = [kind for kind in SYNONYMS.get(tag.casefold(), ()) if kind in known]
    if same:
        return f"; did you mean {list_names(same)}?"
    near = did_you_mean(tag, known)
    return near or suggest_value(f"{field}.kind", tag) or f"; choose one of {kinds}"


def _suggest_kinds(models: Sequence[type[BaseModel]], path: Sequence[str], given: object) -> str:
    """Suggest the kinds of a part that have all its fields, or else list all kinds."""
    name = next((part for part in reversed(path) if not part.isdecimal()), "")
    fields = [model.model_fields[name] for model in models if name in model.model_fields]
    kinds = {
        str(kind.model_fields["kind"].default): kind.model_fields
        for field in fields
        for kind in _models_in(field.annotation)
        if "kind" in kind.model_fields
    }
    own = given.keys() if isinstance(given, Mapping) else set[str]()
    fitting = [kind for kind, known in kinds.items() if own and own <= known.keys()]
    if len(fitting) == 1:
        return f"; add kind = {fitting[0]!r}"
    return f"; add one of {list_names(fitting or kinds)}" if kinds else ""


def _is_shown(fault: ErrorDetails) -> bool:
    """Return whether an error quotes the value, because it is short or of a wrong type."""
    return isinstance(fault["input"], str | int | float) or fault["type"].endswith("_type")


def _quote_value(given: object) -> str:
    if given is None or isinstance(given, str | int | float):
        return repr(given)
    return type(given).__name__


def first_fault(error: ValidationError) -> ErrorDetails:
    """Return the error to report, of all the errors that pydantic found."""
    found = error.errors(include_url=False)
    # A mistyped field is the reason why another one is missing.
    return next((one for one in found if one["type"] == "extra_forbidden"), found[0])


def _path(
    model: type[BaseModel], found: tuple[int | str, ...]
) -> tuple[list[str], list[type[BaseModel]]]:
    """Return the path of an error as in a file, without the kinds that pydantic adds.

    The second value is the models that contain the last field of the path.
    """
    path: list[str] = []
    at: list[type[BaseModel]] = [model]
    inside = at
    # The outermost model is not one of several kinds.
    chosen = True
    for part in found:
        kinds = [
            one
            for one in inside
            if "kind" in one.model_fields and one.model_fields["kind"].default == part
        ]
        # A field may be called like its kind.
        if kinds and not chosen:
            inside, chosen = kinds, True
            continue
        chosen = False
        path.append(str(part))
        if isinstance(part, int):
            continue
        at = inside
        fields = (one.model_fields.get(part) for one in at)
        inside = [inner for one in fields if one for inner in _models_in(one.annotation)]
    return path, at


def _models_in(annotation: object) -> list[type[BaseModel]]:
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        # The base of a tagged union stands for all its kinds.
        return [
            annotation,
            *(one for kind in annotation.__subclasses__() for one in _models_in(kind)),
        ]
    arguments = getattr(annotation, "__args__", ())
    return [found for argument in arguments for found in _models_in(argument)]
