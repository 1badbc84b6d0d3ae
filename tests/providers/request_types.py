"""Checks of a JSON request's fields against the types of a provider's own client."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from pydantic import TypeAdapter


@dataclass(frozen=True)
class FieldFault:
    """One wrong field of a request.

    Attributes:
        kind: The fault: an unknown field, a missing field, a wrong type or a wrong value.
        path: The keys and indexes that lead to the field.
        value: The field's value. None if it is missing.
        expected: The JSON types or the values that are accepted.
    """

    kind: Literal["unknown", "missing", "type", "value"]
    path: tuple[str | int, ...]
    value: Any = None
    expected: tuple[Any, ...] = ()

    def place(self) -> str:
        """Return the path as OpenAI writes it: `messages[0].content`."""
        keys = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.path)
        return "".join(keys).removeprefix(".")


class RequestType:
    """The type of a request's body. No other fields are accepted.

    Args:
        typed: A typed dict or pydantic model of the provider's client.
        changed: JSON schemas of fields that differ from the client's.
        optional: The names of fields that the client always sends, but the server does not require.
    """

    def __init__(
        self,
        typed: type,
        changed: Mapping[str, Any] | None = None,
        optional: Collection[str] = (),
    ) -> None:
        schema = TypeAdapter(typed).json_schema()
        _close(schema, optional)
        schema["properties"].update(changed or {})
        self._validator = Draft202012Validator(schema)

    def fault(self, body: object) -> FieldFault | None:
        """Return the first wrong field of a body, or None. Unknown top-level fields come first."""
        faults = [_fault(error) for error in self._validator.iter_errors(body)]
        return min(faults, key=_urgency) if faults else None


def _urgency(fault: FieldFault) -> tuple[bool, bool, str]:
    return (
        fault.kind != "unknown" or len(fault.path) > 1,
        fault.kind == "missing",
        fault.place(),
    )


_SCHEMAS: Final = ("additionalProperties", "allOf", "anyOf", "items", "oneOf")
"""The keywords of a JSON schema whose value is a schema, or a list of schemas."""


def _close(schema: object, optional: Collection[str]) -> None:
    """Change a JSON schema so that every object with listed fields refuses all other fields."""
    if isinstance(schema, list):
        for each in schema:
            _close(each, optional)
    elif isinstance(schema, dict):
        # A client's response classes, which requests may contain, allow any field.
        if "properties" in schema and schema.get("additionalProperties", True) is True:
            schema["additionalProperties"] = False
            required = schema.get("required", [])
            schema["required"] = [name for name in required if name not in optional]
        for keyword in ("properties", "$defs"):
            for each in schema.get(keyword, {}).values():
                _close(each, optional)
        for keyword in _SCHEMAS:
            _close(schema.get(keyword), optional)


def _fault(error: ValidationError) -> FieldFault:
    while error.validator in ("anyOf", "oneOf") and error.context:
        branch = _likeliest(error.context)
        if all(each.validator == "type" and not each.path for each in branch):
            # The value has the type of no alternative.
            types = (each.validator_value for each in error.context if not each.path)
            return FieldFault("type", tuple(error.absolute_path), error.instance, _flat(types))
        error = min(branch, key=lambda each: (_is_deep(each), _urgency(_plain(each))))
    return _plain(error)


def _is_deep(error: ValidationError) -> bool:
    return error.validator in ("anyOf", "oneOf")


def _likeliest(context: Iterable[ValidationError]) -> list[ValidationError]:
    """Return the errors of the alternative that the value most likely belongs to.

    The best alternative has the right `role` or `type`, then the right JSON type, then the fewest
    errors.
    """
    branches: dict[Any, list[ValidationError]] = {}
    for error in context:
        branches.setdefault(error.schema_path[0], []).append(error)

    def unlikeliness(errors: list[ValidationError]) -> tuple[int, int, int]:
        wrong_kind = sum(
            each.validator in ("const", "enum") and list(each.path)[-1:] in (["role"], ["type"])
            for each in errors
        )
        wrong_type = any(each.validator == "type" and not each.path for each in errors)
        return (wrong_kind, int(wrong_type), len(errors))

    return min(branches.values(), key=unlikeliness)


def _plain(error: ValidationError) -> FieldFault:
    path, wanted = tuple(error.absolute_path), error.validator_value
    value: Any = error.instance
    match error.validator:
        case "additionalProperties":
            known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
            name = next(name for name in value if name not in known)
            return FieldFault("unknown", (*path, name), value[name])
        case "required" if isinstance(wanted, list):
            name = next(each for each in wanted if f"{each!r} is a required" in error.message)
            return FieldFault("missing", (*path, name))
        case "type":
            return FieldFault("type", path, value, _flat([wanted]))
        case "enum" if isinstance(wanted, list):
            return FieldFault("value", path, value, tuple(wanted))
        case "const":
            return FieldFault("value", path, value, (wanted,))
        case _:
            return FieldFault("value", path, value)


def _flat(types: Iterable[Any]) -> tuple[str, ...]:
    """Return the JSON types of several alternatives, without null and without duplicates."""
    found: list[str] = []
    for each in types:
        found += [each] if isinstance(each, str) else each
    return tuple(dict.fromkeys(each for each in found if each != "null"))
