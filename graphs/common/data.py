"""The base classes of specs and of stored data, their versions, and types for fields."""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from operator import is_not
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

from .addresses import has_secret
from .errors import SpecError, hide_frames, name_type
from .model_help import DocumentedMeta, field_docs, merge_positional, own_doc
from .validation import check_data, explain_error

T = TypeVar("T")
Stored = TypeVar("Stored", covariant=True)
Accepted = TypeVar("Accepted", contravariant=True)

MOST: Final = 1_000_000
"""The largest cap: more than any conversation reaches, and a number that any store can keep."""

NAME_LENGTH: Final = 80
"""Maximum length of a name, in characters."""

MARK_LENGTH: Final = 200
"""Maximum length of a mark, in characters."""


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be one line of printable characters")
    return text


Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
"""Text that contains more than white space."""

Name = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=NAME_LENGTH, strip_whitespace=True, pattern=r"^[^\r\n]+$"
    ),
]
"""A name on one line, up to 80 characters."""


class NamedObject(str):
    """A name that carries the Python object it refers to.

    It serializes, prints and compares as a plain `str`.

    Attributes:
        brought: The object.
    """

    brought: object

    def __new__(cls, name: str, brought: object) -> Self:
        """Create the name of an object."""
        made = super().__new__(cls, name)
        made.brought = brought
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickle the name only, because the object stays in this process."""
        return str, (str(self),)

    def __deepcopy__(self, memo: object) -> Self:
        """Return the name itself, so that the object is not copied."""
        return self


def is_agent(given: Any) -> bool:  # noqa: ANN401
    """Return whether an object looks like a LangChain Runnable, whose import is slow."""
    return hasattr(given, "ainvoke") and hasattr(given, "get_name") and not isinstance(given, type)


def is_method_of_agent(given: Any) -> bool:  # noqa: ANN401
    """Return whether a function runs a LangChain Runnable, as its method ``invoke`` does."""
    name = str(getattr(given, "__name__", "")).removeprefix("a")
    return name in ("invoke", "stream", "batch") and is_agent(getattr(given, "__self__", None))


def _read_named(given: Any, handler: ValidatorFunctionWrapHandler) -> object:  # noqa: ANN401
    """Validate a name, or an object that has one."""
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
            "a lambda has no name; write a function with `def`, or register it under a name"
        )
    if callable(given) or hasattr(given, "name"):
        raise ValueError("has no name; register it under a name and use the name here")
    return handler(given)


class HasName(Protocol):
    """An object with its own name, such as a tool."""

    @property
    def name(self) -> str | None:
        """Return the object's name."""


Thing: TypeAlias = str | Callable[..., Any] | HasName
"""The type of an argument that refers to a registered object: its name, or the object itself."""

Fields: TypeAlias = Mapping[str, Any]
"""The type of an argument for a part of a spec: its fields as a dict."""

if TYPE_CHECKING:

    class Accepts(Generic[Stored, Accepted]):
        """The type of a field that accepts more types than it stores.

        Type checkers read the second type as the type of the model's argument.
        """

        def __get__(self, instance: object, owner: object) -> Stored: ...
        def __set__(self, instance: object, value: Accepted) -> None: ...

else:

    class Accepts:
        """The first of two types, which a field stores; the second is for type checkers."""

        def __class_getitem__(cls, types: tuple[object, object]) -> object:
            """Return the stored type."""
            return types[0]


def default(value: Any) -> Any:  # noqa: ANN401  # is assigned to a field that `Accepts` others
    """Return the default of a field that accepts more types than it stores."""
    return value


def _check_secret(name: str) -> str:
    if has_secret(name):
        raise ValueError(
            "must be a name, not an address with a secret, since names are stored; set "
            "OPENAI_BASE_URL to the address of a model's server, and pass that of an agent or an "
            "MCP server as an option of the run"
        )
    return name


ModelName = Annotated[Text, AfterValidator(_check_secret)]
"""The name of a model."""

Named = Annotated[Name, WrapValidator(_read_named), AfterValidator(_check_secret)]
"""The name of a registered object, or in Python the object itself, which is registered by its own
name."""

Mark = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MARK_LENGTH, strip_whitespace=True),
    AfterValidator(_check_printable),
]
"""A mark on one line, of printable characters."""


@dataclass(frozen=True)
class AtLeast:
    """The minimum length of a list, checked only after its items are valid.

    Pydantic's own `min_length` does not count invalid items, so that one invalid speaker of two
    would also be reported as one speaker too few.
    """

    number: int
    """The minimum length."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Check the length after the items."""
        return no_info_after_validator_function(self._check_length, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add the length to the JSON schema, for forms."""
        return handler(schema) | {"minItems": self.number}

    def _check_length(self, found: tuple[T, ...]) -> tuple[T, ...]:
        if len(found) < self.number:
            told = {"field_type": "Tuple", "min_length": self.number, "actual_length": len(found)}
            raise PydanticKnownError("too_short", told)
        return found


Cap = Annotated[int, Field(strict=True, gt=0, le=MOST)]
"""A number from 1 to a million."""

UNSET: Final = "unset"
"""The temperature setting of a call that sends none, so that the model's own default applies."""


class _OrUnset:
    """A validator that accepts ``unset`` or a number, without pydantic's union path in errors."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Apply the number's schema to numbers only."""
        number = handler.generate_schema(Annotated[float | None, Field(ge=0, le=2)])
        return no_info_wrap_validator_function(
            self._read, number, serialization=simple_ser_schema("any")
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add ``unset`` to the JSON schema, for forms."""
        found = handler(schema)
        return {**found, "anyOf": [*found["anyOf"], {"const": UNSET, "type": "string"}]}

    @staticmethod
    def _read(given: object, number: ValidatorFunctionWrapHandler) -> object:
        return UNSET if given == UNSET else number(given)


Temperature = Annotated[float | Literal["unset"] | None, _OrUnset()]
"""A sampling temperature, 0 to 2; ``unset`` sends none. The default of the field if None."""


# Pydantic's plugin for mypy makes all fields keyword-only; this decorator extends that.
@dataclass_transform(kw_only_default=True, field_specifiers=(Field, PrivateAttr))
class Data(BaseModel, metaclass=DocumentedMeta):
    """Base of all of duologue's models: frozen, and an unknown field is an error."""

    # Validators are built when a model is first used, because a process needs only some of them.
    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, hide_input_in_errors=True
    )

    # Hidden, because type checkers know that a model is frozen.
    if not TYPE_CHECKING:

        @hide_frames
        def __setattr__(self, name: str, value: object) -> None:
            try:
                super().__setattr__(name, value)
            except ValidationError:
                can_replace = hasattr(self, "replace")
                how = f"make a copy by replace({name}=…)" if can_replace else "create a new one"
                text = f"{name}: a {type(self).__name__} can't be changed; {how}"
                raise SpecError(text) from None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return a copy of the model and of each dict, list and model in it.

        Pydantic copies a default that contains a dict each time it uses the default. Most values
        are texts and numbers, which need no copy.
        """
        copied = self.__copy__()
        for name, value in vars(self).items():
            if isinstance(value, (dict, list, tuple, BaseModel)):
                vars(copied)[name] = deepcopy(value, memo)
        return copied

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
    """Base of all parts of a spec: a mistake in Python code raises one `SpecError`."""

    # Hidden, because type checkers derive a model's arguments from its fields.
    if not TYPE_CHECKING:

        def __init__(self, /, *values: object, **data: Any) -> None:
            with hide_frames:
                if values:
                    data = merge_positional(type(self), values, data)
                check_data(data)
                try:
                    super().__init__(**data)
                except ValidationError as error:
                    text = explain_error(error, type(self))
                    raise SpecError(text) from error.with_traceback(None)

        # Marked as pydantic marks its own `__init__`: pydantic then does not call this one for
        # nested models, whose errors the outermost model collects, with their paths.
        __init__.__pydantic_base_init__ = True


class AnyCase(StrEnum):
    """Base of the choices in a spec; case is ignored, so that names from Python work, too."""

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
    """Convert a plain string that is a kind, such as ``"human"``, to ``{"kind": "human"}``."""
    return {"kind": given} if isinstance(given, str) else given


def check_distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Check that a list contains no name twice."""
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"{name!r} occurs twice; remove one")
    return names


DistinctNames = Annotated[tuple[Named, ...], AfterValidator(check_distinct)]
"""Unique names of registered objects."""


_IS_KNOWN: Final = partial(is_not, None)


class WithTokens:
    """A base class for data with the tokens of prompts and answers."""

    if TYPE_CHECKING:
        input_tokens: int
        output_tokens: int

    @property
    def tokens(self) -> int:
        """Tokens of the prompts and the answers."""
        return self.input_tokens + self.output_tokens


def sum_known(costs: Iterable[float | None]) -> float | None:
    """Return the sum of the known costs. None if no cost is known."""
    # This runs after each model call, and `filter` calls no Python function here.
    known: list[float] = [*filter(_IS_KNOWN, costs)]  # type: ignore[list-item]
    return sum(known) if known else None


Step = TypeVar("Step")

Migration = Callable[[dict[str, Any]], dict[str, Any]]
"""A function that returns data of the next version."""

BEFORE_RELEASE: Final = "written by a development version before 0.1.0"
"""The reason why data of a version before `Versions.oldest` is refused."""


class VersionError(SpecError):
    """An error about data of a version that this release does not read."""


@dataclass(frozen=True)
class Versions(Generic[Step]):
    """The versions of one kind of stored data that this release reads.

    To change the shape of the data, append the step that upgrades the newest version to the next.
    """

    oldest: int
    """The oldest version that is read, the version of the first release 0.1.0."""
    steps: tuple[Step, ...] = ()
    """The step from each version to the next one, beginning with the oldest."""

    @property
    def newest(self) -> int:
        """Return the version that this release writes."""
        return self.oldest + len(self.steps)

    def steps_from(self, version: int) -> tuple[Step, ...]:
        """Return the steps that upgrade this version to the newest one.

        Raises:
            VersionError: The version belongs to a newer release or to a development version.
        """
        if version > self.newest:
            raise VersionError(
                f"version: this release reads versions up to {self.newest}, not {version}; upgrade "
                "duologue"
            )
        if version < self.oldest:
            raise VersionError(f"version: {version} was {BEFORE_RELEASE}; create it again")
        return self.steps[version - self.oldest :]


def check_whole(name: str, value: object, least: int = 1) -> int:
    """Return a value if it is a whole number of at least `least`.

    Raises:
        SpecError: It is not; the error names the field.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SpecError(f"{name}: must be a whole number, {least} or more, not {value!r}")
    return value


def upgrade(data: dict[str, Any], versions: Versions[Migration], where: str = "") -> dict[str, Any]:
    """Upgrade versioned data to the newest version. Data without a version has the newest.

    Raises:
        SpecError: The version is not a valid number, or this release does not read it.
    """
    version = check_whole(f"{where}version", data.get("version", versions.newest))
    try:
        steps = versions.steps_from(version)
    except VersionError as error:
        raise VersionError(f"{where}{error}") from error
    for step in steps:
        version += 1
        data = step(data) | {"version": version}
    return data
