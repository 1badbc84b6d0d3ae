"""Prompts: texts with placeholders, each in its own file in ``texts``."""

import re
from importlib.resources import files
from typing import Final, Protocol, Self

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")

_NEEDED: Final = {"before", "criteria", "information", "objectives"} | {
    *("problem", "question", "summary", "task", "text", "transcript", "verdict")
}
"""The placeholders that a replacement must contain: without them the question is incomplete."""


class Prompt(str):
    """A text for a model, with the name of its file."""

    name: str

    def __new__(cls, name: str, text: str) -> Self:
        """Make a prompt of a name and a text."""
        prompt = super().__new__(cls, text)
        prompt.name = name
        return prompt

    def find_placeholder_error(self, text: str) -> str | None:
        """Return why another text cannot replace this one, or None if it can."""
        known = dict.fromkeys(_PLACEHOLDER.findall(self))
        given = dict.fromkeys(_PLACEHOLDER.findall(text))
        unknown = next((name for name in given if name not in known), None)
        if unknown is not None:
            there = ", ".join(f"{{{name}}}" for name in known)
            return f"there is no {{{unknown}}} here; there {f'are {there}' if known else 'is none'}"
        missing = next((name for name in known if name in _NEEDED and name not in given), None)
        return None if missing is None else f"needs {{{missing}}} in it"


class RenderPrompt(Protocol):
    """Renders a prompt, in the conversation's own words if it replaces that prompt."""

    def __call__(self, prompt: Prompt, **values: object) -> str:
        """Return the prompt with these values."""
        ...


def fill_template(template: str, **values: object) -> str:
    """Return a template with these values.

    Only the given names are replaced: other braces in a user's own prompt stay as they are, and so
    does a placeholder inside a value.
    """
    return _PLACEHOLDER.sub(lambda found: str(values.get(found[1], found[0])), template)


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
