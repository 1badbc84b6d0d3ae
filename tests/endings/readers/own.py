"""Dialogues that you label yourself: TOML files in the format of `tests/corpus/endings.toml`."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from endings.dialogue import Case, Dialogue
from endings.readers import texts

Spoken = Annotated[list[Any], Field(min_length=2, max_length=3)]
"""A turn: the speaker, the text, and maybe the list of its tool calls."""


class Talk(BaseModel):
    """A dialogue with its label."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Unique in its file."""
    case: Case
    end: int | Literal["none"] | None = None
    """Number of turns after which it should end. None: all of them. "none": it should not end."""
    earliest: int = 0
    signalled: bool = True
    words: list[tuple[str] | tuple[str, str]] = []
    terminations: list[str] = []
    tools: list[tuple[str] | tuple[str, str]] = []
    before: list[Spoken] = []
    said: list[Spoken] = Field(min_length=1)
    rounds: int = Field(1, ge=1)
    after: list[Spoken] = []


class File(BaseModel):
    """A file of dialogues."""

    talks: list[Talk]


def read(folder: Path) -> Iterator[Dialogue]:
    """Read the `.toml` files below a folder.

    Raises:
        ValueError: A file is not in this format. Names the file, the field and the problem.
    """
    for path in sorted(folder.rglob("*.toml")):
        try:
            found = File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise ValueError(
                f"{path}: {place}: {first['msg']}; see the file format in tests/endings/README.md"
            ) from error
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path}: this is no TOML: {error}; correct the file") from error
        for talk in found.talks:
            row = talk.model_dump(exclude_none=True)
            yield texts.dialogue_of(row, f"own/{path.stem}/{talk.name}", "own")
