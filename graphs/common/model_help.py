"""Signatures for calls, `help` and completion: of models, and of functions with keyword options.

Pydantic makes signatures only together with validators, which `Data` builds when a model is first
used. It reads the strings below fields when a class is made (`use_attribute_docstrings`), which
took a third of the time of importing all models. This module therefore makes both on demand.

Keyword options are declared once in a typed dict, and a type checker reads
``**options: Unpack[Options]``. Without `list_options`, `help`, IPython and `inspect.signature`
would show only ``**options``.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache, lru_cache
from inspect import Parameter, Signature, formatannotation, signature
from itertools import pairwise
from textwrap import dedent, fill
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    ForwardRef,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydantic import BaseModel
from typing_extensions import get_original_bases, get_type_hints, is_typeddict

from .errors import list_names, suggest_option

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

_LINE: Final = 88
"""Maximum length of a signature on one line, in characters."""

_LONGEST_TEXT: Final = 60
"""Maximum length of a text that a signature shows as a default, in characters."""

_SECTION: Final = re.compile(r"^(?:Raises|Example):$", re.MULTILINE)


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """Return the description of each field that has one."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            found |= _own_docs(base)
    fields = model.model_fields.items()
    return found | {name: field.description for name, field in fields if field.description}


@cache
def _own_docs(model: type[BaseModel]) -> dict[str, str]:
    try:
        (tree,) = ast.parse(dedent(inspect.getsource(model))).body
    except (OSError, TypeError):  # made without source code
        return {}
    assert isinstance(tree, ast.ClassDef)  # noqa: S101  # the result of `getsource`
    found = {}
    for field, below in pairwise(tree.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = inspect.cleandoc(text)
    return found


def _doc(model: type[BaseModel]) -> str:
    """Return a model's docstring, with its fields below the first part."""
    own, docs = own_doc(model), field_docs(model)
    described = [f"{name}: {docs[name]}" for name in model.model_fields if name in docs]
    if not described:
        return own
    fields = "\n".join(
        fill(one, 96, initial_indent="    ", subsequent_indent=" " * 8) for one in described
    )
    section = _SECTION.search(own)
    start = section.start() if section else len(own)
    parts = (own[:start], f"Fields:\n{fields}", own[start:])
    return "\n\n".join(part.strip() for part in parts if part.strip())


def own_doc(model: type[BaseModel]) -> str:
    """Return the docstring in a model's source."""
    return inspect.cleandoc(vars(model).get("__doc__") or "")


class _Signature(Signature):
    def __str__(self) -> str:
        """Return a long signature on several lines, as `help` does from Python 3.13 on."""
        line = super().__str__()
        if len(line) <= _LINE:
            return line
        parts = [str(one) for one in self.parameters.values()]
        by_name = [one.kind is Parameter.KEYWORD_ONLY for one in self.parameters.values()]
        if any(by_name):
            parts.insert(by_name.index(True), "*")
        return "(\n" + "".join(f"    {part},\n" for part in parts) + ")"


def positional_fields(model: type[BaseModel]) -> list[str]:
    """Return the names of the fields that are accepted by position, in this order."""
    return [name for name, field in model.model_fields.items() if field.kw_only is False]


def merge_positional(
    model: type[BaseModel], values: tuple[object, ...], data: Mapping[str, Any]
) -> dict[str, Any]:
    """Combine the fields passed by position and by name in one dict.

    Raises:
        TypeError: There are too many values, or a field is passed by position and by name.
    """
    names = positional_fields(model)
    if len(values) > len(names):
        if not names:
            raise TypeError(f"{model.__name__} accepts its fields by name only")
        raise TypeError(
            f"{model.__name__} accepts {list_names(names)} by position, not {len(values)} values; "
            "pass the other fields by name"
        )
    given = dict(zip(names, values, strict=False))
    twice = list_names(name for name in given if name in data)
    if twice:
        raise TypeError(f"{model.__name__} gets {twice} by position and by name; pass it only once")
    return {**given, **data}


def _parameters(model: type[BaseModel]) -> Iterator[Parameter]:
    positional = positional_fields(model)
    needed = [name for name in positional if model.model_fields[name].is_required()][-1:]
    for name in dict.fromkeys((*positional, *model.model_fields)):
        field = model.model_fields[name]
        shown = Shown(type_name(field.annotation))
        default: object = Parameter.empty
        if not field.is_required():
            value = field.get_default(call_default_factory=True, validated_data={})
            default = format_default(value)
        is_first = name in positional
        # Python allows no parameter without a default after one with a default.
        if is_first and needed and positional.index(name) < positional.index(needed[0]):
            default = Parameter.empty
        kind = Parameter.POSITIONAL_OR_KEYWORD if is_first else Parameter.KEYWORD_ONLY
        yield Parameter(name, kind, default=default, annotation=shown)


class Shown(str):
    """A piece of a signature, which is written without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


class _Beginning(str):
    """A long text of which a signature shows only the beginning."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{self[:_LONGEST_TEXT]!r}…"


def type_name(annotation: Any) -> str:  # noqa: ANN401
    """Return a type as it is written in code, without pydantic's annotations."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(arguments[0])
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(map(type_name, arguments)))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if annotation in (None, NoneType):
        return "None"
    if annotation is ...:
        return "..."
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    if isinstance(annotation, list):  # the parameters of a callable
        return f"[{', '.join(map(type_name, annotation))}]"
    name = getattr(origin or annotation, "__name__", str(annotation))
    return f"{name}[{', '.join(map(type_name, arguments))}]" if arguments else name


def format_default(value: object) -> object:
    """Return a default in the form that a signature shows, or unchanged if its `repr` fits."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return _Beginning(value)
    text = _default_text(value)
    return value if text == repr(value) else Shown(text)


def _default_text(value: object) -> str:
    if isinstance(value, Enum):
        return repr(value.value)
    if isinstance(value, BaseModel):
        given = ((name, getattr(value, name)) for name in value.model_fields_set)
        return f"{type(value).__name__}({', '.join(f'{n}={_default_text(v)}' for n, v in given)})"
    if isinstance(value, tuple):
        inner = ", ".join(map(_default_text, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def _signature(model: type[BaseModel]) -> Signature:
    return _Signature([*_parameters(model)])


class DocumentedMeta(ModelMetaclass):
    """The metaclass of models, with a signature on demand and descriptions of the fields.

    Both are properties of the class: the signature that pydantic sets with the validators shows how
    each field is validated, and these are the only descriptors in a class that `help` reads.
    """

    __signature__ = property(_signature, lambda model, pydantics: None)


# Within the class this would be the docstring of the metaclass.
DocumentedMeta.__doc__ = property(_doc)  # type: ignore[assignment]


F = TypeVar("F", bound=Callable[..., Any])


class Default(NamedTuple):
    """The default of an option, as metadata of the type. Without it the default is None."""

    value: object


_MODULES: Final = re.compile(r"\b(?:\w+\.)+(?=\w)")
"""Module prefixes of type names, which would make a signature unreadable."""


def list_changes(function: F) -> F:
    """List the replaceable fields in a function's signature, each with a default that says so."""
    return list_options(function, Shown("<unchanged>"))


def list_options(function: F, default: object = None) -> F:
    """Replace the parameter ``**options`` in a function's signature by the options themselves."""
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
