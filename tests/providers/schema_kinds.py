"""Kinds of schemas for structured answers and arguments of tools. No tests here."""

from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Final, Literal, Optional
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model


class Item(BaseModel):
    name: str
    n: int


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class FreeDict(BaseModel):
    prices: dict[str, float]


class ListOfDicts(BaseModel):
    rows: list[dict[str, int]]


class PlainDict(BaseModel):
    data: dict  # type: ignore[type-arg]


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")

    a: int


class Whatever(BaseModel):
    value: Any


class ListOfWhatever(BaseModel):
    values: list[Any]


class Tree(BaseModel):
    name: str
    children: list["Tree"]


class Forest(BaseModel):
    first: Tree


class Chain(BaseModel):
    n: int
    rest: Optional["Chain"] = None


class Ping(BaseModel):
    pong: Optional["Pong"]


class Pong(BaseModel):
    ping: Annotated[Ping | None, Field(description="The other one.")]


class Union(BaseModel):
    pet: Cat | Dog


class Discriminated(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Optionals(BaseModel):
    a: int | None = None
    b: str = "x"


class Bounded(BaseModel):
    n: Annotated[int, Field(ge=1, le=5)]
    s: Annotated[str, Field(min_length=2, max_length=9, pattern="^[a-z]+$")]
    items: Annotated[list[int], Field(min_length=2, max_length=3)]


class Anywhere(BaseModel):
    s: Annotated[str, Field(pattern="[0-9]")]


class Lookahead(BaseModel):
    price: Annotated[str, WithJsonSchema({"type": "string", "pattern": "^(?!0)[0-9.]+$"})]


class Pair(BaseModel):
    both: tuple[int, str]


class Choices(BaseModel):
    one: Literal["a", "b", 3]
    colour: Colour


class Described(BaseModel):
    colour: Colour = Field(default=Colour.RED, description="The colour of the item.")
    item: Item = Field(description="The item.")


class Matrix(BaseModel):
    rows: list[list[int]]


class Formats(BaseModel):
    price: Decimal
    at: datetime
    day: date
    id: UUID


class Empty(BaseModel):
    pass


Deep: Any = Item
for level in range(12):
    Deep = create_model(f"Level{level}", inner=(Deep, ...))

Wide: Any = create_model("Wide", **{f"f{n}": (int, 0) for n in range(30)})  # type: ignore[call-overload]
Unions: Any = create_model("Unions", **{f"u{n}": (int | str, ...) for n in range(20)})  # type: ignore[call-overload]

MODELS: Final[dict[str, Any]] = {
    name: found
    for name, found in vars().items()
    if isinstance(found, type) and issubclass(found, BaseModel)
}
"""The kinds by their names."""
