"""Prompts: texts with placeholders, each in its own file in ``texts``."""

import re
from importlib.resources import files
from typing import Final, Protocol, Self

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")

_NEEDED: Final = {"before", "criteria", "information", "objectives"} | {
    *("problem", "question", "summary", "task", "text", "transcript", "verdict")
}
"""The placeholders that a replacement must contain; without them, the prompt is incomplete."""


class Prompt(str):
    """A text for a model, with the file's name."""

    name: str

    def __new__(cls, name: str, text: str) -> Self:
        """Create a prompt from a file's name and its text."""
        prompt = super().__new__(cls, text)
        prompt.name = name
        return prompt

    def find_placeholder_error(self, text: str) -> str | None:
        """Return the reason why another text cannot replace this one, or None if it can."""
        known = dict.fromkeys(_PLACEHOLDER.findall(self))
        given = dict.fromkeys(_PLACEHOLDER.findall(text))
        unknown = next((name for name in given if name not in known), None)
        if unknown is not None:
            usable = ", ".join(f"{{{name}}}" for name in known)
            remedy = f"use only {usable}" if known else "this prompt has no placeholders"
            return f"unknown placeholder {{{unknown}}}; {remedy}"
        missing = next((name for name in known if name in _NEEDED and name not in given), None)
        return None if missing is None else f"the placeholder {{{missing}}} is missing; add it"


class RenderPrompt(Protocol):
    """A function that renders a prompt, or the conversation's replacement for it."""

    def __call__(self, prompt: Prompt, **values: object) -> str:
        """Return the prompt with these values in its placeholders."""
        ...


def fill_template(template: str, **values: object) -> str:
    """Return a template with these values in its placeholders.

    Only these names are replaced. Other braces in a user's prompt are not changed, and neither is
    a placeholder inside a value.
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
"""The prompts of every kind of conversation, by file name."""


def read_kind_prompt(name: str) -> str:
    """Return a prompt that belongs to one kind of conversation."""
    return (_FOLDER / "kinds" / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")
