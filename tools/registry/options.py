"""Keyword options declared once in a typed dict, checked and shown in signatures.

A type checker reads ``**options: Unpack[Options]``. Without `list_options`, `help`, IPython and
`inspect.signature` would show only ``**options``.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from inspect import Parameter, formatannotation, signature
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_args, get_origin

from typing_extensions import get_original_bases, get_type_hints, is_typeddict

from ...graphs.common.validation import suggest_option

F = TypeVar("F", bound=Callable[..., Any])


class Default(NamedTuple):
    """The default of an option, as metadata of the type. Without it the default is None."""

    value: object


class _Unchanged:
    def __repr__(self) -> str:
        return "<unchanged>"


_MODULES: Final = re.compile(r"\b(?:\w+\.)+(?=\w)")
"""Module prefixes of type names, which would make a signature unreadable."""

UNCHANGED: Final = _Unchanged()
"""Shown in signatures as the default of options that replace a conversation's fields."""


def list_options(function: F) -> F:
    """Replace the parameter ``**options`` in a function's signature by the options themselves."""
    return _listed(function, None)


def list_changes(function: F) -> F:
    """List the replaceable fields in a function's signature, each with the default `UNCHANGED`."""
    return _listed(function, UNCHANGED)


def _listed(function: F, default: object) -> F:
    found = signature(function)
    *parameters, variadic = found.parameters.values()
    (options,) = get_args(variadic.annotation)
    # Without the metadata for pydantic.
    kinds = get_type_hints(options)
    for name, given in _fields_of(options).items():
        metadata = get_args(given)[1:] if get_origin(given) is Annotated else ()
        value = next((one.value for one in metadata if isinstance(one, Default)), default)
        of_kind = _MODULES.sub("", formatannotation(kinds[name]))
        parameters.append(
            Parameter(name, Parameter.KEYWORD_ONLY, default=value, annotation=of_kind)
        )
    function.__signature__ = found.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


def _fields_of(options: Any) -> dict[str, Any]:  # noqa: ANN401  # a typed dict
    """Return the fields of a typed dict with their types, its own before the inherited fields."""
    inherited: dict[str, Any] = {}
    for base in filter(is_typeddict, get_original_bases(options)):
        inherited |= _fields_of(base)
    own = {name: kind for name, kind in options.__annotations__.items() if name not in inherited}
    return own | inherited


def check_options(options: Mapping[str, object], known: type, *own: str) -> None:
    """Raise TypeError for an unknown option; `own` names further arguments of the function."""
    names = _names_of(known)
    for name in options:
        if name not in names:
            hint = suggest_option(name, [*own, *names])
            raise TypeError(f"there is no option {name!r}{hint}")


@lru_cache(maxsize=16)
def _names_of(known: type) -> tuple[str, ...]:
    return tuple(get_type_hints(known))
