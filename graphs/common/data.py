"""The base class of everything in a spec, and the types of its fields."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    dataclass_transform,
)

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError
from pydantic_core.core_schema import (
    no_info_after_validator_function,
    no_info_wrap_validator_function,
    simple_ser_schema,
)

from .errors import SpecError
from .model_help import DocumentedMeta, by_name, field_docs, own_doc
from .validation import check_depth, explain_error, name_type

T = TypeVar("T")
Stored = TypeVar("Stored", covariant=True)
Accepted = TypeVar("Accepted", contravariant=True)

MOST: Final = 1_000_000
"""The largest cap: more than any conversation has, and a number that any store can keep."""

NAME_LENGTH: Final = 80
"""The longest name, in characters."""

MARK_LENGTH: Final = 200
"""The longest mark, in characters."""


def _shown(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be printable characters on one line")
    return text


Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
"""Text that holds more than white space."""

Name = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=NAME_LENGTH, strip_whitespace=True, pattern=r"^[^\r\n]+$"
    ),
]
"""A name on one line, up to 80 characters."""


class NamedObject(str):
    """A name that brings the object it names: in all that is stored, shown or compared, the name.

    Attributes:
        brought: The object.
    """

    brought: object

    def __new__(cls, name: str, brought: object) -> Self:
        """Make the name of an object."""
        made = super().__new__(cls, name)
        made.brought = brought
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Only the name leaves the process."""
        return str, (str(self),)

    def __deepcopy__(self, memo: object) -> Self:
        """Keep the very object."""
        return self


def is_agent(given: Any) -> bool:  # noqa: ANN401
    """Whether it looks like one of LangChain's Runnables, which take long to import."""
    return hasattr(given, "ainvoke") and hasattr(given, "get_name") and not isinstance(given, type)


def _named(given: Any, handler: ValidatorFunctionWrapHandler) -> object:  # noqa: ANN401
    """Read a name, or an object that has one."""
    if isinstance(given, str):
        name = handler(str(given))
        return NamedObject(name, given.brought) if isinstance(given, NamedObject) else name
    if isinstance(given, type) and not issubclass(given, BaseModel):
        raise ValueError(f"must be a function, a named object or a name, not {name_type(given)}")
    name = getattr(given, "__name__", None) or getattr(given, "name", None)
    if name is None and is_agent(given):
        name = given.get_name()
    if isinstance(name, str) and name != "<lambda>":
        return NamedObject(handler(name), given)
    if name == "<lambda>":
        raise ValueError(
            "a lambda has no name; write a function with `def`, or register it by name"
        )
    if callable(given) or hasattr(given, "name"):
        raise ValueError("has no name of its own; register it by name, and name it here")
    return handler(given)


class HasName(Protocol):
    """What has a name of its own, such as a tool."""

    @property
    def name(self) -> str | None:
        """Its name."""


Thing: TypeAlias = str | Callable[..., Any] | HasName
"""What may be given where something registered is named, by type."""

Fields: TypeAlias = Mapping[str, Any]
"""What may be given where a part of a spec stands, by type: its fields."""

if TYPE_CHECKING:

    class Accepts(Generic[Stored, Accepted]):
        """The type of a field that may be set from more types than it stores.

        Type checkers read the second as the type of the model's argument.
        """

        def __get__(self, instance: object, owner: object) -> Stored: ...
        def __set__(self, instance: object, value: Accepted) -> None: ...

else:

    class Accepts:
        """The type that a field stores, the first of two; the second is for type checkers."""

        def __class_getitem__(cls, types: tuple[object, object]) -> object:
            """Return the type that is stored."""
            return types[0]


def default(value: Any) -> Any:  # noqa: ANN401  # is assigned to a field that `Accepts` others
    """Return the default of a field that accepts more types than it stores."""
    return value


Named = Annotated[Name, WrapValidator(_named)]
"""The name of something registered, or in Python the thing itself, which is registered by its own
name."""

Mark = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MARK_LENGTH, strip_whitespace=True),
    AfterValidator(_shown),
]
"""A mark on one line, of printable characters."""


@dataclass(frozen=True)
class AtLeast:
    """The least length of a list, checked only after its items are valid.

    Pydantic's own `min_length` counts without those at fault, so that one wrong speaker of two is
    also one speaker too few.
    """

    number: int
    """The least number."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Check the length after the items."""
        return no_info_after_validator_function(self._counted, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add it to the JSON schema, for forms."""
        return handler(schema) | {"minItems": self.number}

    def _counted(self, found: tuple[T, ...]) -> tuple[T, ...]:
        if len(found) < self.number:
            told = {"field_type": "Tuple", "min_length": self.number, "actual_length": len(found)}
            raise PydanticKnownError("too_short", told)
        return found


Cap = Annotated[int, Field(strict=True, gt=0, le=MOST)]
"""A number from 1 to a million."""

UNSET: Final = "unset"
"""The temperature of a call that sends none, so that the model uses its own."""


class _OrUnset:
    """Accepts the word beside a number, without pydantic's path of a union in errors."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Check numbers alone."""
        number = handler.generate_schema(Annotated[float | None, Field(ge=0, le=2)])
        return no_info_wrap_validator_function(
            self._read, number, serialization=simple_ser_schema("any")
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add the word to the JSON schema, for forms."""
        found = handler(schema)
        return {**found, "anyOf": [*found["anyOf"], {"const": UNSET, "type": "string"}]}

    @staticmethod
    def _read(given: object, number: ValidatorFunctionWrapHandler) -> object:
        return UNSET if given == UNSET else number(given)


Temperature = Annotated[float | Literal["unset"] | None, _OrUnset()]
"""A sampling temperature, 0 to 2; ``unset`` sends none. The default of the field if None."""


# Pydantic's plugin for mypy takes all fields by name alone; what is said here counts beside it.
@dataclass_transform(kw_only_default=True, field_specifiers=(Field, PrivateAttr))
class Data(BaseModel, metaclass=DocumentedMeta):
    """Base of all data of ours: frozen, and an unknown field is an error."""

    # Validators are built when a model is first used: a process needs but some of them.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        found = handler.resolve_ref_schema(schema)
        if "description" in found:
            found["description"] = own_doc(cls)
        docs = field_docs(cls)
        for name, field in found.get("properties", {}).items():
            if name in docs:
                field.setdefault("description", docs[name])
        return schema


class Spec(Data):
    """Base of everything in a spec: a mistake of who makes one in Python is one `SpecError`."""

    # Hidden, since type checkers read a model's arguments off its fields.
    if not TYPE_CHECKING:

        def __init__(self, /, *values: object, **data: Any) -> None:
            if values:
                data = by_name(type(self), values, data)
            check_depth(data)
            try:
                super().__init__(**data)
            except ValidationError as error:
                raise SpecError(explain_error(error, type(self))) from error

        # As pydantic marks its own: it does not call this one for models inside of others, whose
        # errors the outermost model collects, with their paths.
        __init__.__pydantic_base_init__ = True


class AnyCase(StrEnum):
    """Base of the choices in a spec: each is read in any case, so by its name in Python, too."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        folded = value.casefold() if isinstance(value, str) else None
        return next((one for one in cls if one.value.casefold() == folded), None)


class Kinded(Spec):
    """Base of the members of a tagged union: ``kind`` is always serialized, even as the default."""

    @model_serializer(mode="wrap")
    def _with_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        return {"kind": getattr(self, "kind", None)} | written


def by_kind(given: object) -> object:
    """Read a kind given as a bare word, such as ``"human"``, as ``{"kind": "human"}``."""
    return {"kind": given} if isinstance(given, str) else given


def check_distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Make sure that no name stands in a list twice."""
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"{name!r} is given twice")
    return names


DistinctNames = Annotated[tuple[Named, ...], AfterValidator(check_distinct)]
"""Different names of what is registered."""
