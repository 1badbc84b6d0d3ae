"""The prompts, each in its own file in ``texts``. They are read when this module is imported."""

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
"""The prompts of every kind of conversation, by the names of their files."""


def read_kind_prompt(name: str) -> str:
    """Return a prompt that belongs to one kind of conversation."""
    return (_FOLDER / "kinds" / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")
