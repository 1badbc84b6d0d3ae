"""Files of a scenario: images, PDFs and audio files that the simulated user can send."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator, Field

from ..common.content import Block, describe_file, make_content, name_of_file
from ..common.content_input import read_files
from ..common.data import NAME_LENGTH, Accepts, NamedObject

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9]+")


def _read(given: object) -> object:
    return tuple(read_files(given, "file")) if given else given


Files: TypeAlias = Annotated[
    Accepts[tuple[Block, ...], Sequence[Any]],
    BeforeValidator(_read),
    Field(repr=False),
]
"""Images and other files as content blocks. Paths, addresses and bytes are read."""


def make_file_tools(files: Sequence[Block]) -> list[NamedObject]:
    """Return a tool for each file that sends it to the agent with a message.

    Raises:
        ValueError: A file has no name, or two have alike names.
    """
    made: dict[str, NamedObject] = {}
    for file in files:
        tool = _name_tool(file)
        if tool in made:
            raise ValueError(
                f"files: two files have the name {name_of_file(file)!r}, or one that differs only "
                "in signs; rename one"
            )
        made[tool] = NamedObject(tool, _make_tool(tool, file))
    return [*made.values()]


def _name_tool(file: Block) -> str:
    name = name_of_file(file)
    if name is None:
        raise ValueError("files: a file has no name; pass its path, or a block with a filename")
    return f"send_{_NOT_IN_NAMES.sub('_', name).strip('_').lower()}"[:NAME_LENGTH]


def _make_tool(name: str, file: Block) -> object:
    # Imported here, since few scenarios have files.
    from langchain_core.tools import StructuredTool

    def send(message: str) -> object:
        return make_content(message, [file])

    return StructuredTool.from_function(
        send,
        name=name,
        description=f"Send your next message to the agent with your file: {describe_file(file)}.",
        return_direct=True,
    )


def check_alike_files(scenarios: Mapping[str, Sequence[Block]]) -> None:
    """Check that the same tool sends the same file in all scenarios, by their names.

    Raises:
        ValueError: Two scenarios have different files with one name, or with alike names.
    """
    known: dict[str, tuple[str, Block]] = {}
    for scenario, files in scenarios.items():
        for file in files:
            other, first = known.setdefault(_name_tool(file), (scenario, file))
            if file != first:
                raise ValueError(
                    f"scenarios.{scenario}.files: {name_of_file(file)!r} is another file than "
                    f"{name_of_file(first)!r} in {other!r}; rename one of them"
                )
