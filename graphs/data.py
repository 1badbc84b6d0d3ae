"""What everything in a spec is made of: the frozen base, and texts of checked shape."""

from collections.abc import Iterable
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
)

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

Mark = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MARK_LENGTH, strip_whitespace=True),
    AfterValidator(_shown),
]
"""A mark on one line, of printable characters."""

Cap = Annotated[int, Field(strict=True, gt=0, le=MOST)]
"""A number from 1 to a million."""

Temperature = Annotated[float | None, Field(ge=0, le=2)]
"""A sampling temperature, 0 to 2. None: a default."""


class Data(BaseModel):
    """Base of everything in a spec: frozen, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Kinded(Data):
    """Base of what comes in several kinds: its ``kind`` is written even where it is the default."""

    @model_serializer(mode="wrap")
    def _with_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        return {"kind": getattr(self, "kind", None)} | written


def by_kind(given: Any) -> Any:  # noqa: ANN401
    """Read what comes in several kinds: a kind alone, as a word, needs no table."""
    return {"kind": given} if isinstance(given, str) else given


def all_different(names: tuple[str, ...]) -> tuple[str, ...]:
    """Make sure that no name stands in a list twice.

    Raises:
        ValueError: One does; names it.
    """
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"{name!r} stands there twice")
    return names


def listing(names: Iterable[str]) -> str:
    """Write names as a list for an error message, each in quotes."""
    return ", ".join(repr(name) for name in names)
