"""The texts of the prompts: each in a file of its own in ``texts``, read when this is imported."""

from importlib.resources import files
from typing import Final

from .template import Prompt

_FOLDER: Final = files(__package__) / "texts"

PROMPTS: Final = {
    file.name.removesuffix(".txt"): Prompt(
        file.name.removesuffix(".txt"), file.read_text(encoding="utf-8").rstrip("\n")
    )
    for file in sorted(_FOLDER.iterdir(), key=lambda file: file.name)
    if file.name.endswith(".txt")
}
"""What models are told whatever the kind of conversation, by the names of the files."""


def read_kind_prompt(name: str) -> str:
    """Read what one kind of conversation tells its speakers."""
    return (_FOLDER / "kinds" / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")
