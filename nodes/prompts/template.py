"""Putting values into a text."""

from typing import Self


class Prompt(str):
    """A text for a model, with the name of its file."""

    name: str

    def __new__(cls, name: str, text: str) -> Self:
        """Name a text."""
        prompt = super().__new__(cls, text)
        prompt.name = name
        return prompt


def filled(template: str, **values: object) -> str:
    """Put values into a template.

    Only the given names are replaced, so that braces in a user's own prompt stay as they are.
    """
    # One pass over the template: a value that itself holds "{task}" is left alone.
    parts = [template]
    for name, value in values.items():
        parts = [
            piece
            for index, part in enumerate(parts)
            for piece in (_split(part, name, str(value)) if index % 2 == 0 else [part])
        ]
    return "".join(parts)


def _split(part: str, name: str, value: str) -> list[str]:
    """Split text at a placeholder, with the value at the odd places."""
    pieces = part.split("{" + name + "}")
    return [text for piece in pieces for text in (piece, value)][:-1]
