"""Texts with placeholders, and putting values into them."""

import re
from typing import Final, Protocol, Self

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")

_NEEDED: Final = {"before", "criteria", "found", "known", "objectives"} | {
    *("problem", "question", "summary", "task", "text", "transcript")
}
"""The placeholders without which a model would not know what it is asked about."""


class Prompt(str):
    """A text for a model, with the name of its file."""

    name: str

    def __new__(cls, name: str, text: str) -> Self:
        """Name a text."""
        prompt = super().__new__(cls, text)
        prompt.name = name
        return prompt

    def find_placeholder_error(self, text: str) -> str | None:
        """Say why other words can't stand in the place of these; None where they can."""
        known = dict.fromkeys(_PLACEHOLDER.findall(self))
        given = dict.fromkeys(_PLACEHOLDER.findall(text))
        unknown = next((name for name in given if name not in known), None)
        if unknown is not None:
            there = ", ".join(f"{{{name}}}" for name in known)
            return f"there is no {{{unknown}}} here; there {f'are {there}' if known else 'is none'}"
        missing = next((name for name in known if name in _NEEDED and name not in given), None)
        return None if missing is None else f"needs {{{missing}}} in it"


class RenderPrompt(Protocol):
    """Gives what a model is told, in a conversation's own words where it has some."""

    def __call__(self, prompt: Prompt, **values: object) -> str:
        """Put the values into the text."""
        ...


def fill_template(template: str, **values: object) -> str:
    """Put values into a template.

    Only the given names are replaced, so that braces in a user's own prompt stay as they are; a
    value that itself holds "{task}" is left alone.
    """
    return _PLACEHOLDER.sub(lambda found: str(values.get(found[1], found[0])), template)
