"""Making models out of data, with one clear sentence for what is wrong."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from duologue.graphs.errors import SpecError
from duologue.graphs.spec import listing

M = TypeVar("M", bound=BaseModel)


def validated(model: type[M], data: Mapping[str, Any], where: str = "") -> M:
    """Make a model out of data, with one clear error.

    Args:
        model: The pydantic model.
        data: Its fields.
        where: What to put in front of an error, such as a file's name.

    Returns:
        The model's instance.

    Raises:
        SpecError: The data does not fit; names the first field at fault.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise SpecError(where + explained(error, model)) from error


def explained(error: ValidationError, model: type[BaseModel]) -> str:
    """Say in one sentence what is wrong with a model's data.

    Args:
        error: What pydantic found.
        model: The model that was asked for.

    Returns:
        The field at fault, what is wrong, and the near names where the field is unknown.
    """
    found = error.errors(include_url=False)
    # A mistyped field is the reason why another one is missing.
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    field = ".".join(str(part) for part in first["loc"])
    match first["type"]:
        case "extra_forbidden":
            unknown = str(first["loc"][-1])
            hint = did_you_mean(unknown, _fields_at(model, first["loc"][:-1]))
            return f"{field}: there is no such field{hint}"
        case "missing":
            return f"{field}: is missing"
        case "string_too_short" | "string_pattern_mismatch" if not str(first["input"]).strip():
            return f"{field}: must not be empty"
        case "string_pattern_mismatch":
            return f"{field}: must be on one line, not {first['input']!r}"
        case "too_short":
            needed = (first.get("ctx") or {}).get("min_length")
            return f"{field}: needs at least {needed}"
        case _:
            message = first["msg"].removeprefix("Value error, ")
            given = first["input"]
            shown = f", not {given!r}" if isinstance(given, str | int | float) else ""
            text = message[:1].lower() + message[1:]
            return f"{field}: {text}{shown}" if field else text


def did_you_mean(unknown: str, known: Sequence[str]) -> str:
    """Ask whether a near name was meant, for the end of an error.

    Args:
        unknown: The name that is not known.
        known: Those that are.

    Returns:
        The question with a semicolon in front; empty where no name is near.
    """
    near = get_close_matches(unknown, known, n=3)
    return f"; did you mean {listing(near)}?" if near else ""


def _fields_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The fields of the model found at this path below another."""
    for part in path:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        if field is None:
            return []
        inner = _model_in(field.annotation)
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
